"""Shared by all ways of running a test sequence: actions in order, recorded channels, the verdict on each step."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilserver.client.samples import circuit_units
from hilserver.errors import Problem, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import ENDING
from hilserver.record.row_events import DISARMED
from hilserver.rig.rig import Rig
from hilserver.sequences import check
from hilserver.sequences.check import RecordedChannels, SequenceResult, Verdict, judged
from hilserver.sequences.model import Action, Fault, InputValue, Step
from hilserver.sequences.model import Sequence as TestSequence
from hilserver.service.telemetry_samples import ACTUATOR_CHANNELS, VALVE_CHANNELS, channel_columns
from hilserver.tick.codes import Mode, PlayoutState
from hilserver.tick.columns import is_whole
from hilserver.tick.row import as_whole, header
from hilserver.units import CIRCUIT


class Collector:
    """Collects the channels of telemetry, and all required values of the circuit, from rows.

    ``also``: channels that are required beside those expected; ``only_required``: of telemetry, too, only those.
    """

    def __init__(self, rig: Rig, sequence: TestSequence, also: Iterable[str] = (), only_required: bool = False) -> None:
        required = (*(e.channel for e in sequence.settings.expect), *also)
        columns = channel_columns(rig)
        if only_required:
            columns = {name: at for name, at in columns.items() if name in ("tick", *required)}
        self._names = list(columns)
        self._whole = {name for name, column in columns.items() if is_whole(column)}
        self._places = [rig.layout.column(column) for column in columns.values()]
        self._circuit = list(dict.fromkeys(channel for channel in required if channel.startswith(CIRCUIT)))
        self._first = len(rig.layout.names)
        self._found: tuple[Sequence[str], list[int | None]] = (), [None] * len(self._circuit)
        """The names of a circuit's values, and in which columns those are that are required."""
        self._table, self._count = np.empty((len(self._places) + len(self._circuit), 0)), 0
        self._seen: set[str] = set()
        self.units = channel_units(rig, dict.fromkeys(self._circuit))

    def emptied(self, expected: int) -> Collector:
        """One for the same channels that has collected nothing yet, with room for this number of rows."""
        found = copy.copy(self)
        found._table, found._count, found._seen = np.empty((len(self._table), expected)), 0, set()
        return found

    def columns(self, names: Sequence[str]) -> list[int]:
        """The columns of the rows with the required channels; ``names``: of the circuit's values in them.

        In place of those that the circuit does not have is any other.
        """
        if names != self._found[0]:
            places = {f"{CIRCUIT}{name}": place for place, name in enumerate(names, self._first)}
            self._found = names, [places.get(name) for name in self._circuit]
        return [*self._places, *(place or 0 for place in self._found[1])]

    def add(self, rows: Floats) -> None:
        """Collect the columns of some rows that were asked for last."""
        collected = self._room_for(len(rows))
        collected[:] = rows.T
        for k, (name, place) in enumerate(zip(self._circuit, self._found[1], strict=True), len(self._places)):
            if place is None:
                collected[k] = np.nan
            else:
                self._seen.add(name)

    def _room_for(self, ticks: int) -> Floats:
        first, self._count = self._count, self._count + ticks
        if self._count > self._table.shape[1]:
            larger = np.empty((len(self._table), 2 * self._count))
            larger[:, :first] = self._table[:, :first]
            self._table = larger
        return self._table[:, first : self._count]

    def recorded(self, first_tick: float, period: float) -> RecordedChannels:
        """The collected channels; time counts from ``first_tick``. Unknown names of the circuit are left out."""
        names = [*self._names, *self._circuit]
        channels = {
            name: as_whole(values).astype(np.float64) if name in self._whole else values
            for name, values in zip(names, self._table[:, : self._count], strict=True)
            if name not in self._circuit or name in self._seen
        }
        tick = channels.pop("tick")
        if not (wanted := tick >= first_tick).all():
            tick, channels = tick[wanted], {name: values[wanted] for name, values in channels.items()}
        return RecordedChannels((tick - first_tick) * period, channels, self.units)


def check_inputs(sequence: TestSequence, ranges: Mapping[str, tuple[float, float]]) -> list[Problem]:
    """Problems of the inputs that a sequence sets; ``ranges``: of the rig's inputs."""
    problems, file = [], str(sequence.file)
    for name in sequence.settings.inputs:
        if name not in ranges:
            hint = did_you_mean(name, ranges)
            problems.append(Problem(f"the rig has no such input.{hint}", f"inputs.{name}", file))
    for action in sequence.actions if not problems else ():
        if isinstance(action, InputValue):
            name, value = action.command.input, action.command.value
            low, high = ranges[name]
            if not low <= value <= high:
                text = f"{value:g} at {action.at:g} s is out of range: must be {low:g} … {high:g}."
                problems.append(Problem(text, f"inputs.{name}", file))
                break
    return problems


def channel_units(rig: Rig, circuit: Mapping[str, object]) -> dict[str, str]:
    """SI units of the channels, as far as they are known."""
    units = {name: settings.unit for name, settings in rig.settings.channels.items()}
    units |= {f"input.{name}": "" for name in rig.settings.inputs}
    units |= {f"valve.{v}.{name}": f.unit for v in rig.settings.valves for name, f in VALVE_CHANNELS.items()}
    actuators = rig.settings.actuators
    units |= {f"actuator.{a}.{name}": f.unit for a in actuators for name, f in ACTUATOR_CHANNELS.items()}
    return {**units, "mode": "", **circuit_units(circuit)}


@dataclass
class Play:
    """A sequence while it runs. ``resting``: inputs no longer set; ``ended``: why it was ended early; ``endings``: when
    and why RUNNING has ended without a command.

    ``halted``: why no further steps are carried out, although the run continues and the channels are still checked.
    """

    sequence: TestSequence
    moments: list[tuple[float, str]] = field(default_factory=list)
    effects: dict[str, float] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    endings: list[tuple[float, str]] = field(default_factory=list)
    resting: set[str] = field(default_factory=set)
    halted: str = ""
    ended: str = ""
    ended_at: float = float("inf")

    def note(self, step: Step, at: float, refusal: str) -> None:
        """Note that a step was carried out at ``at``, or refused."""
        title = step.name or step.title
        if bool(refusal) != step.refused:
            found = f"refused: {refusal}" if refusal else "carried out, but it should have been refused."
            self.verdicts.append(Verdict(title, check.FAILED, found))
            self.end(f"{title}: {found}", at)
            return
        found = f"refused, as expected: {refusal}" if refusal else f"carried out at {at:.4g} s."
        self.verdicts.append(Verdict(title, check.PASSED, found))
        self.effects |= {step.name: at} if step.name else {}
        self.moments.append((at, step.name or step.command.name))

    def note_fault(self, fault: Fault, at: float) -> None:
        """Note that a fault was injected."""
        what = f"{fault.fault} {fault.sensor or fault.actuator or fault.ticks or fault.device or ''}".rstrip()
        self.effects |= {fault.name: at} if fault.name else {}
        self.moments.append((at, fault.name or what))

    def note_event(self, event: Mapping[str, Any], at: float) -> None:
        """Note that a reaction has fired or was disarmed, or that a playout has come to a new state, by its name.

        `after` refers to the first time that a reaction has fired, and to the end of a playout.
        """
        name, state = str(event["name"]), event.get("state", "")
        if event["kind"] == DISARMED:
            self.moments.append((at, f"{name} is disarmed by a switch of the circuit"))
            return
        self.moments.append((at, f"{name}: {state}" if state else name))
        if state != PlayoutState.CONTROLLED.name:
            self.effects.setdefault(name, at)
        if event.get("then") in ENDING:
            self.halted = f"reaction {name} has ended the run at {at:.4g} s."

    def skips(self, action: Action) -> bool:
        """Whether an action is not carried out, because a reaction has ended the run; a refusal can still be tested."""
        if not self.halted or isinstance(action, Fault) or (isinstance(action, Step) and action.refused):
            return False
        if isinstance(action, Step):
            self.verdicts.append(Verdict(action.name or action.title, check.SKIPPED, self.halted))
        elif action.command.input not in self.resting:
            self.rest(action, action.at, self.halted)
        return True

    def rest(self, value: InputValue, at: float, refusal: str) -> None:
        """Note that an input was refused since the rig is not running (any more): it is no longer set."""
        name = value.command.input
        self.resting.add(name)
        self.verdicts.append(Verdict(f"input {name}", check.SKIPPED, f"not set from {at:.4g} s on: {refusal}"))

    def end(self, reason: str, at: float) -> None:
        """End the sequence early."""
        self.ended, self.ended_at = reason, at

    def result(
        self, where: str, recorded: RecordedChannels, circuit: Mapping[str, Any], *, log: str = "", took: float = 0.0
    ) -> SequenceResult:
        """The result; what was not carried out, or can't be judged any more, is skipped."""
        verdicts, recorded = list(self.verdicts), recorded.until(self.sequence.length)
        reached = {verdict.name for verdict in verdicts}
        for step in self.sequence.steps:
            if self.ended and (title := step.name or step.title) not in reached:
                verdicts.append(Verdict(title, check.SKIPPED, "the sequence ended before this step."))
        for expectation, verdict in zip(
            self.sequence.settings.expect, judged(self.sequence, recorded, self.effects), strict=True
        ):
            start = self.effects.get(expectation.after, 0.0 if not expectation.after else self.ended_at)
            if self.ended and start + expectation.at + expectation.delay >= self.ended_at:
                verdict = Verdict(verdict.name, check.SKIPPED, f"the sequence ended early: {self.ended}")
            verdicts.append(verdict)
        moments = sorted([*self.moments, *self.endings], key=lambda moment: moment[0])
        endings = tuple(self.endings)
        return SequenceResult(
            self.sequence, where, recorded, tuple(moments), tuple(verdicts), log, took, circuit, endings, self.ended
        )


def mode_of(row: Floats) -> str:
    """The mode of a row, by name."""
    return Mode(int(header(row).mode)).name
