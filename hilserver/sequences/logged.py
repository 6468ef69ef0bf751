"""A test sequence on the log of a run of it: replayed without hardware, with this version of the software."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.protocol.commands import ENDING, SetInput, TriggerCommand
from hilserver.record.format import Event
from hilserver.record.row_events import REACTION, RowEvents
from hilserver.rig.end_of_running import Column, columns_of, ending_now, ends_of_running
from hilserver.rig.rig import Rig
from hilserver.sequences import check
from hilserver.sequences.check import ROUNDING, SequenceResult, Verdict
from hilserver.sequences.logged_commands import (
    NO_TRIGGERS,
    UNKNOWN_REFUSAL,
    LoggedCommand,
    LoggedRun,
    WantedCommand,
    commands_in,
    find_run,
    record_of,
    wanted_of,
)
from hilserver.sequences.model import InputValue, Sequence
from hilserver.sequences.play import Collector, Play
from hilserver.simulation.replay import ComputedRows, replay_log
from hilserver.tick.codes import CommandKind, ResultCode
from hilserver.tick.row import CommandRecord, command_in, header

Happened = tuple[float, Callable[[float], None]]
"""A tick, and what notes what has happened in it, with the time of the sequence, s."""


def check_log(sequence: Sequence, log: Path, *, trust: bool = False) -> SequenceResult:
    """Find a sequence in a log, replay the run from its recorded inputs, and check the expectations against the replay.

    Faults are not searched for: they are contained in the recorded inputs. Whether a command was refused is what the
    replay says. ``trust`` as for `replay_log`.
    Raises RecordError if the log can't be used, HilserverError if it does not contain the sequence.
    """
    began = time.perf_counter()
    watched: list[_Watched] = []
    commands, names = commands_in(log)

    def watch(computed: ComputedRows) -> None:
        if not watched:
            watched.append(_Watched(sequence, computed.rig, commands, names))
        watched[0].take(computed)

    replayed = replay_log(log, watch=watch, trust=trust)
    if not watched:
        raise HilserverError(f"{log}: no part of it can be replayed.")
    (seen,), rig = watched, watched[0].rig
    dt = 1.0 / rig.settings.loop.rate
    wanted = [wanted_of(step, rig) for step in sequence.steps]
    found = [commands[tick] for tick in sorted(commands)]
    run = find_run(sequence.steps, wanted, found, dt, sequence.length, seen.halts)
    if run is None:
        raise HilserverError(
            f"{log}: it does not contain the steps of {sequence.file} in this order and at these times."
        )
    play = Play(sequence)
    _note(play, run, wanted, [*seen.happened(play), *_refused_inputs(play, run, rig, found)], dt)
    recorded = seen.collector.recorded(run.first, dt)
    if play.ended:  # what the log has after it is no part of the sequence
        recorded = recorded.until(play.ended_at)
    where = f"replayed: {log}" if replayed.same_program else f"replayed with another version: {log}"
    if run.later:
        where += "; a later start of the sequence was refused"
    return play.result(where, recorded, rig.circuit.source, log=str(log), took=time.perf_counter() - began)


class _Watched:
    """What a replay shows: the channels, the answers to the commands, reactions, and why RUNNING has ended.

    ``commands``: by tick; they get their answers, and refused values of inputs are added. ``names``: by number, the
    events of the commands that arm reactions.
    """

    def __init__(
        self, sequence: Sequence, rig: Rig, commands: dict[float, LoggedCommand], names: Mapping[int, Event]
    ) -> None:
        self.rig, self.collector = rig, Collector(rig, sequence)
        self._commands, self._names = commands, names
        self._reactions = RowEvents(rig.layout.names)
        self._reacted: list[tuple[float, Event]] = []
        self._endings: list[tuple[float, str]] = []

    def take(self, computed: ComputedRows) -> None:
        """Take the next rows, of which the first has a command or none."""
        rows, order, column = computed.rows, command_in(computed.command), columns_of(self.rig, computed.rows)
        ticks = column("tick")
        if order.kind != CommandKind.NOTHING:
            self._note_answer(order, float(ticks[0]), column)
        armed = self._names.get(int(order.sequence))
        fired = self._reactions.find(rows, {0: [armed]} if armed is not None else {})
        self._reacted += [(float(ticks[row]), event) for row, event in fired]
        before = int(header(computed.before).mode)
        self._endings += [(float(ticks[row]), how) for row, how in ends_of_running(self.rig, column, before)]
        self.collector.add(rows[:, self.collector.columns(computed.packed.names)])

    def _note_answer(self, order: CommandRecord, tick: float, column: Column) -> None:
        """Note the result of a command in the first of these rows."""
        result = int(column("result")[0])
        if order.kind == CommandKind.SET_INPUT and result == ResultCode.DONE:
            return
        violated = ending_now(self.rig, column, 0) if result == ResultCode.LIMIT_ACTIVE else ()
        self._commands[tick] = LoggedCommand(tick, record_of(order), result, int(column("mode")[0]), violated)

    @property
    def halts(self) -> list[float]:
        """The ticks in which a reaction has ended a run."""
        return [tick for tick, event in self._reacted if event["kind"] == REACTION and event.get("then") in ENDING]

    def happened(self, play: Play) -> Iterator[Happened]:
        """What is noted of reactions, playouts and ends of RUNNING."""
        for tick, event in self._reacted:
            yield tick, partial(play.note_event, event)
        for tick, how in self._endings:
            yield tick, partial(_note_end, play, how)


def _note_end(play: Play, how: str, at: float) -> None:
    play.endings.append((at, how))


def _refused_inputs(play: Play, run: LoggedRun, rig: Rig, found: Iterable[LoggedCommand]) -> Iterator[Happened]:
    """What is noted of the values of inputs that were refused, of those that the sequence sets."""
    names, steps = list(rig.settings.inputs), {each.tick for each in run.taken.values()}
    for each in found:
        if each.record[0] == CommandKind.SET_INPUT and each.tick not in steps:
            command = SetInput(input=names[int(each.record[1])], value=each.record[2])
            if command.input in play.sequence.settings.inputs:
                yield each.tick, partial(_rest, play, command, each.refusal(command))


def _rest(play: Play, command: SetInput, refusal: str, at: float) -> None:
    if command.input not in play.resting:
        play.rest(InputValue(at, command, at), at, refusal)


def _note(play: Play, run: LoggedRun, wanted: list[WantedCommand], happened: list[Happened], dt: float) -> None:
    """Note what has become of the steps, up to the one with which the sequence ended, and what has happened meanwhile.

    The log goes on after the sequence: that is no part of it.
    """
    waiting = deque(sorted((each for each in happened if each[0] >= run.first), key=lambda each: each[0]))

    def note_before(tick: float) -> None:
        while waiting and waiting[0][0] < tick:
            at, note = waiting.popleft()
            note((at - run.first) * dt)

    for number, (step, what) in enumerate(zip(play.sequence.steps, wanted, strict=True)):
        given = run.taken.get(number)
        tick = given.tick if given is not None else run.first + step.at / dt
        note_before(tick)
        if given is not None:
            play.note(step, (tick - run.first) * dt, given.refusal(step.command))
        elif what.refusal:
            play.note(step, step.at, what.refusal)
        elif not play.skips(step):
            why = NO_TRIGGERS if isinstance(step.command, TriggerCommand) else UNKNOWN_REFUSAL
            play.verdicts.append(Verdict(step.name or step.title, check.SKIPPED, why))
        if play.ended:
            note_before(tick + 1.0)
            return
    note_before(run.first + (play.sequence.length + ROUNDING) / dt)
