"""The commands in the log of a run: what the loop answered to each, and which of them are the steps of a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.protocol import commands
from hilserver.protocol.commands import CircuitCommand, SetInput, TriggerCommand
from hilserver.record.format import Event
from hilserver.record.reader import LogReader
from hilserver.record.row_events import PLAYOUT, REACTION
from hilserver.record.run import recorded_command
from hilserver.rig.rig import Rig
from hilserver.sequences.model import Step
from hilserver.service.command_translation import loop_command
from hilserver.service.refusals import refusal_text
from hilserver.tick.codes import CommandKind, Mode, ResultCode
from hilserver.tick.row import CommandRecord, command_in

TIME_TOLERANCE = 1.0
"""Permitted deviation of a step's time in a log, s, relative to the first step."""
UNKNOWN_REFUSAL = "not in the log: commands that are refused before they reach the real-time loop are not logged."
NO_TRIGGERS = "not in the log: triggers are commands to the recorder."


@dataclass
class LoggedCommand:
    """A command that the loop has taken: its tick, its kind and numbers, and the loop's result.

    ``mode``: in this tick; ``violated``: the limits that would end RUNNING in it.
    """

    tick: float
    record: tuple[float, ...]
    result: int
    mode: int
    violated: Sequence[str] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the loop has refused it."""
        return self.result != ResultCode.DONE

    def refusal(self, command: commands.Command) -> str:
        """Why it was refused, in the words of the other ways to run a sequence; empty if it was carried out."""
        if not self.is_refused:
            return ""
        return refusal_text(command, self.result, Mode(self.mode).name, self.violated)


def commands_in(log: Path) -> tuple[dict[float, LoggedCommand], dict[int, Event]]:
    """The commands of a log by their ticks, and, by their numbers, the events of those that arm reactions or playouts.

    New values of inputs, which are many, are left out.
    """
    found, reactions = dict[float, LoggedCommand](), dict[int, Event]()
    reader = LogReader(log)
    for batch in reader.batches():
        ticks, results, modes = (batch.column(name) for name in ("tick", "result", "mode"))
        for number, event in batch.events:
            if event.get("kind") != "command":
                continue
            order, row = command_in(recorded_command(event, reader.header)), number - batch.start
            if order.kind == CommandKind.SET_INPUT:
                continue
            tick = float(ticks[row])
            found[tick] = LoggedCommand(tick, record_of(order), int(results[row]), int(modes[row]))
            if REACTION in event or PLAYOUT in event:
                reactions[int(order.sequence)] = event
    return found, reactions


def record_of(order: CommandRecord) -> tuple[float, ...]:
    """What is compared of a command to the loop: its kind and its numbers."""
    return float(order.kind), float(order.a), float(order.b)


@dataclass(frozen=True)
class LoggedRun:
    """A run of a sequence in a log: the tick of its time 0, and the commands of its steps, by number of the step.

    ``later``: whether there is a later run in which a step was refused that should not have been.
    """

    first: float
    taken: Mapping[int, LoggedCommand]
    later: bool = False


class WantedCommand(NamedTuple):
    """What the loop receives of a step, as far as it is compared.

    ``refusal``: why the rig of the log refuses it in any case: the loop receives nothing then.
    """

    record: tuple[float, ...] = ()
    refusal: str = ""


_KINDS: Mapping[type[commands.Command], CommandKind] = {
    commands.React: CommandKind.REACT_THEN,
    commands.Release: CommandKind.RELEASE,
    commands.BeginPlayout: CommandKind.PLAY,
    commands.EndPlayout: CommandKind.PLAY_END,
}
"""The last command to the loop, for those that are several."""
_PARTS: dict[int, tuple[int, ...]] = {
    CommandKind.REACT_WHEN: (CommandKind.REACT_THEN,),
    CommandKind.PLAY_TARGET: (CommandKind.PLAY_DRIVE, CommandKind.PLAY),
    CommandKind.PLAY_DRIVE: (CommandKind.PLAY,),
}
"""The commands before the last one, and what follows them: where the loop refuses one, a server gives no further."""
_AMBIGUOUS = (CommandKind.SET_INPUT, CommandKind.RELEASE, CommandKind.PLAY_END)
"""Commands that may belong to another step, or to the course of an input: that one was carried out tells nothing."""


def wanted_of(step: Step, rig: Rig) -> WantedCommand:
    """What the loop receives of a step; of switches, reactions and playouts only the kind, of triggers nothing."""
    if isinstance(step.command, CircuitCommand):
        return WantedCommand((float(CommandKind.SWAP),))
    if isinstance(step.command, TriggerCommand):
        return WantedCommand()
    if (kind := _KINDS.get(type(step.command))) is not None:
        return WantedCommand((float(kind),))
    try:
        order = loop_command(rig, step.command)
    except ConfigurationError as error:
        return WantedCommand(refusal="; ".join(map(str, error.problems)))
    return WantedCommand((float(order.kind), order.first, order.second))


def find_run(
    steps: Sequence[Step],
    wanted: Sequence[WantedCommand],
    found: Sequence[LoggedCommand],
    dt: float,
    length: float,
    halts: Sequence[float] = (),
) -> LoggedRun | None:
    """The last run of a sequence in which no step was refused that should not have been.

    Without one, that with the most steps up to the one that was refused. ``length``: of the sequence, s; ``halts``: the
    ticks in which a reaction has ended a run, after which steps are not carried out. None if the log does not contain
    it. Raises HilserverError if the sequence can't be identified in any log.
    """
    marks = _marks(steps, wanted)
    given, best = [*_without_parts(found)], dict[int, LoggedCommand]()
    for start in range(len(given) - 1, -1, -1):
        if not _same(given[start], wanted[marks[0]]):
            continue
        taken, is_complete = _taken(steps, wanted, marks, given[start:], dt, halts)
        if is_complete:
            return _with_refused(steps, wanted, taken, given, dt, length, bool(best))
        if len(taken) > len(best):
            best = taken
    return _with_refused(steps, wanted, best, given, dt, length, False) if best else None


def _marks(steps: Sequence[Step], wanted: Sequence[WantedCommand]) -> list[int]:
    """The numbers of the steps by which a sequence is identified: those to be carried out, or else the refused ones."""
    marks = [k for k, step in enumerate(steps) if not step.refused and not isinstance(step.command, TriggerCommand)]
    if not marks:  # of switches, the loop does not receive those that are refused
        marks = [k for k, step in enumerate(steps) if wanted[k].record and not isinstance(step.command, CircuitCommand)]
    if not marks or any(isinstance(steps[k].command, SetInput) for k in marks):
        raise HilserverError(
            "a sequence is identified in a log by its steps: set inputs under [inputs], arm the rig by a step."
        )
    if why := wanted[marks[0]].refusal:
        raise HilserverError(f"the rig of the log refuses {steps[marks[0]].title}: {why}")
    return marks


def _without_parts(found: Sequence[LoggedCommand]) -> Iterator[LoggedCommand]:
    """The commands in order; of a command that is several to the loop, the last one only.

    Refused before that, it has the kind of the last one, which then was not given, or was refused, too.
    """
    for number, each in enumerate(found):
        further = _PARTS.get(int(each.record[0]))
        if further is None:
            yield each
        elif each.is_refused and not any(
            later.is_refused and later.record[0] in further for later in found[number + 1 : number + 2]
        ):
            yield replace(each, record=(float(further[-1]), *each.record[1:]))


def _taken(
    steps: Sequence[Step],
    wanted: Sequence[WantedCommand],
    marks: Sequence[int],
    given: Sequence[LoggedCommand],
    dt: float,
    halts: Sequence[float],
) -> tuple[dict[int, LoggedCommand], bool]:
    """The commands of these steps in a run that begins with the first of ``given``, and whether it has all of them.

    It does not go beyond a step that was refused; it is none if a command is missing that no reaction has prevented.
    """
    taken, place = dict[int, LoggedCommand](), 0
    first = given[0].tick - steps[marks[0]].at / dt
    for number in marks:
        step, due = steps[number], first + steps[number].at / dt
        if wanted[number].refusal:
            return taken, False
        near = [place] if not taken else _near(given, place, wanted[number], due, dt)
        if not near:
            is_halted = any(given[0].tick <= tick < due for tick in halts)
            return (taken, True) if is_halted else ({}, False)
        fits = [k for k in near if given[k].is_refused == step.refused]
        place = (fits or near)[0]
        taken[number] = given[place]
        if not fits:
            return taken, False
        place += 1
    return taken, True


def _near(given: Sequence[LoggedCommand], place: int, wanted: WantedCommand, due: float, dt: float) -> list[int]:
    """The places, from one on, of the commands of a step that is due in this tick."""
    found = []
    for k in range(place, len(given)):
        if (given[k].tick - due) * dt > TIME_TOLERANCE:
            break
        if (due - given[k].tick) * dt <= TIME_TOLERANCE and _same(given[k], wanted):
            found.append(k)
    return found


def _with_refused(
    steps: Sequence[Step],
    wanted: Sequence[WantedCommand],
    taken: Mapping[int, LoggedCommand],
    given: Sequence[LoggedCommand],
    dt: float,
    length: float,
    later: bool,
) -> LoggedRun:
    """The run with the commands that should be refused, as far as they are in the log, between the steps around them.

    One that was carried out counts only within the sequence: behind it, a server restores what it found.
    """
    mark = min(taken)
    first = taken[mark].tick - steps[mark].at / dt
    found = dict(taken)
    for number, step in enumerate(steps):
        if not step.refused or number in found or not wanted[number].record:
            continue
        after = max((each.tick for k, each in found.items() if k < number), default=float("-inf"))
        before = min((each.tick for k, each in found.items() if k > number), default=float("inf"))
        near = [given[k] for k in _near(given, 0, wanted[number], first + step.at / dt, dt)]
        between = [each for each in near if after < each.tick < before]
        refused = [each for each in between if each.is_refused]
        if wanted[number].record[0] not in _AMBIGUOUS:
            refused += [each for each in between if not each.is_refused and (each.tick - first) * dt <= length]
        if refused:
            found[number] = refused[0]
    return LoggedRun(first, found, later)


def _same(logged: LoggedCommand, wanted: WantedCommand) -> bool:
    return bool(wanted.record) and logged.record[: len(wanted.record)] == wanted.record
