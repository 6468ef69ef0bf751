"""A test sequence on a simulated rig, or on recorded samples: without a clock, reproducible."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hilserver.circuit.model import Circuit
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats, Integers
from hilserver.protocol.commands import CircuitCommand
from hilserver.record.row_events import columns_looked_at
from hilserver.rig.end_of_running import Column, columns_of_end, ending_now, ends_of_running
from hilserver.rig.invalid_samples import invalid_samples
from hilserver.rig.rig import Device, Rig
from hilserver.sequences.capacity import missing_capacity
from hilserver.sequences.check import SequenceResult
from hilserver.sequences.model import Action, Fault, InputValue, Sequence, Step
from hilserver.sequences.play import Collector, Play, check_inputs, mode_of
from hilserver.service.command_translation import RowCommand, loop_command, loop_commands
from hilserver.service.playouts import PlayoutTable
from hilserver.service.reactions import ReactionTable
from hilserver.service.refusals import refusal_text
from hilserver.service.switching import prepare_switch
from hilserver.service.telemetry_samples import channel_columns
from hilserver.simulation.lockstep import ANY_MODE, LockstepRun
from hilserver.simulation.rows import RowMemory
from hilserver.simulation.steps import Steps, completed
from hilserver.tick.codes import Mode, ResultCode
from hilserver.tick.columns import is_whole
from hilserver.tick.lockstep import GOES_ON, IF_DONE, IF_REFUSED
from hilserver.tick.plant import PlantArrays
from hilserver.tick.plant_records import PlantActuator, SensorRecord, actuators_on, sensors_on
from hilserver.tick.records import RecordTable, Struct
from hilserver.tick.row import as_whole, header

R = TypeVar("R", bound=Struct)
TOGETHER = 4000
"""Ticks after which no further command is given in the same run."""
LOOKED_AT = ("tick", "result", "mode")
"""Columns of the rows that tell what has come of a command, and when."""
GETTING_READY = 1.0
"""Seconds allowed from the first tick to SAFE."""


def simulate_sequence(sequence: Sequence, rig: Rig, log: Path | None = None) -> SequenceResult:
    """Run a sequence; with ``log`` every tick is recorded there.

    Raises ConfigurationError if sequence and rig don't match, HilserverError if the rig does not reach SAFE.
    """
    return completed(PreparedSequence(sequence, rig).running(rig, log))


class PreparedSequence:
    """A sequence with all that is the same on rigs that differ in their circuits and simulated devices only.

    ``also``, ``only_required``: what is collected, such as ``circuit.supply.p``, see `Collector`.

    Raises ConfigurationError if sequence and rig don't match.
    """

    def __init__(self, sequence: Sequence, rig: Rig, also: Iterable[str] = (), only_required: bool = False) -> None:
        check_sequence(sequence, rig)
        self.sequence, self._rig = sequence, rig
        self.collector = Collector(rig, sequence, also, only_required)
        self.channels = channel_columns(rig)
        ends = (*(action.at for action in sequence.actions[1:]), sequence.length + 1.0 / rig.settings.loop.rate)
        pairs = zip(sequence.actions, ends, strict=False)
        self.actions = [_Timed(action, end, _record(rig, action)) for action, end in pairs]
        self.reacts = bool(sequence.reactions)
        self._dt = float(rig.plan.loop[0].dt)
        self._values = dict[tuple[int, int], tuple[Integers, Floats]]()
        self._unused = list[RowMemory]()

    @cached_property
    def looked_at(self) -> dict[str, int]:
        """Columns of the rows that are looked at besides those of the expectations, by name; `LOOKED_AT` first."""
        return {name: self._rig.layout.column(name) for name in (*LOOKED_AT, *columns_of_end(self._rig))}

    @cached_property
    def _places(self) -> dict[str, tuple[int, bool]]:
        """Where each of these columns is in the rows that a run keeps, and whether it holds whole numbers."""
        return {name: (place, is_whole(name)) for place, name in enumerate(self.looked_at)}

    def columns_of(self, rows: Floats) -> Column:
        """Gives the columns ``looked_at`` of rows that begin with these, by name: few of them are needed."""

        def column(name: str) -> NDArray[Any]:
            place, whole = self._places[name]
            return (as_whole(rows) if whole else rows)[:, place]

        return column

    @property
    def memory(self) -> int:
        """Bytes, about, that a run needs for its rows until it ends: as they come, and as they are collected."""
        columns = len(self.looked_at) + len(self.collector.columns(())) + len(columns_looked_at(self._rig.layout.names))
        return 2 * 8 * columns * round(self.sequence.length / self._dt)

    def values(self, number: int, tick: int) -> tuple[Integers, Floats]:
        """The values of inputs that follow each other from this action on, the first of them given in this tick.

        Their ticks, and the records of their commands.
        """
        if (number, tick) not in self._values:
            dt, next_tick, given = self._dt, tick, list[tuple[int, Floats]]()
            for action, end, record in itertools.islice(self.actions, number, None):
                if record is None:
                    break
                given.append((due(action.at, next_tick, dt), record))
                next_tick = due(end, given[-1][0] + 1, dt)
            ticks, records = zip(*given, strict=True)
            self._values[number, tick] = np.array(ticks), np.array(records)
        return self._values[number, tick]

    def serves(self, rig: Rig) -> bool:
        """Whether a rig differs from that for which this was prepared in circuits and simulated devices only.

        Everything here follows from the layout of the row, the settings, and the names of the devices' channels.
        """
        own, other = self._rig.settings, rig.settings
        return (
            rig.layout == self._rig.layout
            and all(getattr(own, key) is getattr(other, key) for key in type(own).model_fields if key != "devices")
            and list(map(_channels_of, rig.devices)) == list(map(_channels_of, self._rig.devices))
        )

    def running(self, rig: Rig, log: Path | None = None) -> Steps[SequenceResult]:
        """Run it in steps on a rig that it `serves`; with ``log`` every tick is recorded there.

        Raises HilserverError if the rig does not reach SAFE.
        """
        began, sequence = time.perf_counter(), self.sequence
        memory = self._unused.pop() if self._unused else RowMemory()
        with LockstepRun(rig, log) as run:
            bench = _Bench(self, rig, run, memory)
            bench.get_ready()
            play, todo = Play(sequence), list(self.actions)
            while todo and not play.ended:
                done = yield from bench.carry_out(todo, play)
                del todo[:done]
            if not play.ended:
                yield from bench.run_until(sequence.length + bench.dt)
            bench.note_reactions(play)
            play.endings += bench.endings
            recorded = bench.collector.recorded(bench.first_tick, bench.dt)
        self._unused.append(memory)
        where = f"simulated: {rig.file}" if not run.samples else f"on recorded samples: {rig.file}"
        return play.result(where, recorded, rig.circuit.source, log=str(log or ""), took=time.perf_counter() - began)


def due(at: float, tick: int, dt: float) -> int:
    """Number of the tick at ``at``, s from the start of the sequence; at least ``tick``."""
    return tick + max(round((at - tick * dt) / dt), 0)


class _Timed(NamedTuple):
    """An action, when the one after it is due, s, and of a value of an input the record of its command."""

    action: Action
    end: float
    record: Floats | None


def _record(rig: Rig, action: Action) -> Floats | None:
    if not isinstance(action, InputValue):
        return None
    return loop_command(rig, action.command).record()


def _channels_of(device: Device) -> object:
    return device.name, device.is_simulated, device.inputs, device.outputs


class _Given(NamedTuple):
    """A command with its tick, or values of inputs with theirs.

    ``refusal``: why it was refused beforehand; ``circuit``: to which it switches.
    """

    actions: list[_Timed]
    ticks: Integers | list[int]
    refusal: str = ""
    circuit: Circuit | None = None


def _may_be_refused(action: Action) -> bool:
    return isinstance(action, Step) and action.refused


def _is_refused(given: _Given) -> bool:
    """Whether a command was refused that should not have been: the sequence ends."""
    return bool(given.refusal) and not _may_be_refused(given.actions[0].action)


class _Bench:
    """A rig run without a clock that executes the MQTT commands."""

    def __init__(self, prepared: PreparedSequence, rig: Rig, run: LockstepRun, memory: RowMemory) -> None:
        self.rig, self.run, self.dt = rig, run, run.dt
        self.collector = prepared.collector.emptied(round(prepared.sequence.length / run.dt) + 2)
        self._prepared = prepared
        self._memory = memory
        self.circuit: Circuit = rig.circuit
        self.first_tick = 0.0
        self._tables = ReactionTable(rig, prepared.channels), PlayoutTable(rig, prepared.channels)
        self._noted = 0
        self.endings: list[tuple[float, str]] = []
        self._whole: dict[tuple[str, str, int], np.void] = {}

    @property
    def next_tick(self) -> int:
        """Number of the next tick, from the start of the sequence."""
        return int(self.run.tick + self.run.late + 1.0 - self.first_tick)

    @property
    def now(self) -> float:
        """Time of the next tick, s from the start of the sequence."""
        return self.next_tick * self.dt

    def get_ready(self) -> None:
        """Run to SAFE; the sequence starts with the next tick."""
        for _ in range(round(GETTING_READY / self.dt)):
            self.run.run(1)
            if mode_of(self.run.row) == "SAFE":
                self.first_tick = self.run.tick + 1.0
                return
        why = self.run.fault or "; ".join(invalid_samples(self.rig, self.run.row)) or "no samples"
        raise HilserverError(f"{self.rig.file}: the rig is in mode {self.run.mode}, not SAFE: {why.rstrip('.')}.")

    def run_until(self, at: float) -> Steps[Column]:
        """Run until the next tick is the one at ``at``; returns what gives the columns ``looked_at`` of the rows.

        They are valid until the next call.
        """
        looked_at, first, before = self._prepared.looked_at, self.next_tick, int(header(self.run.row).mode)
        columns = np.array([*looked_at.values(), *self.collector.columns(self.run.packed.names)], dtype=np.int64)
        rows = yield from self.run.running(due(at, first, self.dt) - first, memory=self._memory, columns=columns)
        column = self._prepared.columns_of(rows)
        if len(rows):
            self.collector.add(rows[:, len(looked_at) :])
            for row, how in ends_of_running(self.rig, column, before):
                self.endings.append(((column("tick")[row] - self.first_tick) * self.dt, how))
        return column

    def note_reactions(self, play: Play) -> None:
        """Note the reactions that have fired, and what playouts have done, since the last call."""
        for tick, event in self.run.reacted[self._noted :]:
            play.note_event(event, (tick - self.first_tick) * self.dt)
        self._noted = len(self.run.reacted)

    def carry_out(self, todo: list[_Timed], play: Play) -> Steps[int]:
        """Carry out the first of these actions when it is due; of commands, also those that can follow in the same run.

        Returns how many were carried out.
        """
        action = todo[0].action
        if self._prepared.reacts or not self._can_follow(action, play):
            yield from self.run_until(action.at)
            self.note_reactions(play)
        if play.skips(action):
            return 1
        if isinstance(action, Fault):
            play.note_fault(action, self.now)
            self.fail(action)
        elif isinstance(action, Step) or action.command.input not in play.resting:
            return (yield from self._give(todo, play))
        return 1

    def _give(self, todo: list[_Timed], play: Play) -> Steps[int]:
        """Give the first of these commands, and those that can follow it, in one run.

        The run ends before a value of an input if the rig is not running any more, and with a command whose result is
        not the expected one.
        """
        first = tick = self.next_tick
        given, queued = list[_Given](), 0
        while queued < len(todo) and not (given and _is_refused(given[-1])):
            action = todo[queued].action
            if given and (tick - first > TOGETHER or not self._can_follow(action, play)):
                break
            tick = due(action.at, tick, self.dt)
            if isinstance(action, InputValue) and tick > first and not play.resting:
                given.append(self._queued_values(todo[queued:], tick, first))
            else:
                given.append(self._queued(todo[queued], tick, tick - first))
            queued += len(given[-1].actions)
            tick = int(given[-1].ticks[-1]) + 1
            tick = due(todo[queued - 1].end, tick, self.dt)
        column, carried_out = (yield from self.run_until(tick * self.dt)), 0
        for each in given:
            taken = int(np.searchsorted(each.ticks, first + len(column("mode"))))
            if taken:  # all but the last of them are done
                self._note(each, taken - 1, column, int(each.ticks[taken - 1]) - first, play)
            carried_out += taken
        return carried_out

    def _can_follow(self, action: Action, play: Play) -> bool:
        """Whether an action can be prepared before the row is known in which its command is given."""
        if self.run.samples or self.run.late:
            return False
        if isinstance(action, InputValue):
            return not play.resting or action.command.input not in play.resting
        needs_row = isinstance(action, Fault) or isinstance(action.command, CircuitCommand | RowCommand)
        return not needs_row and not self._prepared.reacts  # which may end the run

    def _queued_values(self, todo: list[_Timed], tick: int, first: int) -> _Given:
        """Queue the values of inputs with which these actions begin, from this tick on; ``first``: of the run."""
        ticks, records = self._prepared.values(len(self._prepared.actions) - len(todo), tick)
        count = max(int(np.searchsorted(ticks, first + TOGETHER, side="right")), 1)
        self.run.give_all(records[:count], ticks[:count] - first, Mode.RUNNING, IF_DONE)
        return _Given(todo[:count], ticks[:count])

    def _queued(self, timed: _Timed, tick: int, after: int) -> _Given:
        """Queue a command for this tick, ``after`` so many ticks from now on; or the reason if it is refused."""
        action, given, run = timed.action, ([timed], [tick]), self.run
        assert not isinstance(action, Fault)
        if timed.record is not None:
            run.give(timed.record, after=after, mode=Mode.RUNNING if after else ANY_MODE, wanted=IF_DONE)
            return _Given(*given)
        command, wanted = action.command, IF_REFUSED if _may_be_refused(action) else IF_DONE
        try:
            if isinstance(command, CircuitCommand):
                new = prepare_switch(self.rig, run.program, self.circuit, run.packed, run.row, command)
                run.swap(new.circuit, new.packed, wanted)
                return _Given(*given, circuit=new.circuit)
            orders = loop_commands(self.rig, command, run.packed, run.row, *self._tables)
        except ConfigurationError as error:
            return _Given(*given, refusal="; ".join(map(str, error.problems)))
        except HilserverError as error:
            return _Given(*given, refusal=str(error))
        for k, order in enumerate(orders, 1):
            run.give(order.record(), about=order.about, after=after, wanted=wanted if k == len(orders) else GOES_ON)
        return _Given([timed], [tick + len(orders) - 1])

    def _note(self, given: _Given, number: int, column: Column, row: int, play: Play) -> None:
        """Note that a command, or the value of this number, was carried out or refused, as its row tells."""
        action, refusal = given.actions[number].action, given.refusal
        at = float(column("tick")[row] - self.first_tick) * self.dt
        assert not isinstance(action, Fault)
        if not refusal and (result := int(column("result")[row])) != ResultCode.DONE:
            mode, violated = Mode(int(column("mode")[row])).name, ending_now(self.rig, column, row)
            refusal = refusal_text(action.command, result, mode, violated)
        if isinstance(action, Step):
            play.note(action, at, refusal)
        elif refusal:
            play.rest(action, at, refusal)
        if not refusal and given.circuit is not None:
            self.circuit = given.circuit

    # --- faults ------------------------------------------------------------------------------------------------------

    def fail(self, fault: Fault) -> None:
        """Inject a fault from the next tick on, or clear it."""
        if fault.ticks is not None:
            self.run.miss(fault.ticks)
            return
        name, plant = self._plant(fault)
        device = next(device for device in self.rig.devices if device.name == name)
        whole = fault.sensor is None and fault.actuator is None
        for number, sensor in enumerate(device.inputs):
            if whole or sensor == fault.sensor:
                reading = self.run.row[self._slot(name, sensor)] if fault.raw is None else fault.raw
                self._fail_sensor(
                    fault.fault, self._intact((name, "sensor", number), sensors_on(plant.sensor)), reading
                )
        for number, actuator in enumerate(device.outputs):
            if whole or actuator == fault.actuator:
                driven = self._intact((name, "actuator", number), actuators_on(plant.actuator))
                self._fail_actuator(fault.fault, driven, plant.values)

    def _intact(self, place: tuple[str, str, int], table: RecordTable[R]) -> R:
        """The record of a sensor or an actuator in its table, restored to its state before any fault; a view."""
        lines, number = np.asarray(table), place[2]
        lines[number] = self._whole.setdefault(place, lines[number].copy())
        return table[number]

    @staticmethod
    def _fail_sensor(how: str, sensor: SensorRecord, reading: float) -> None:
        if how in ("silent", "unplugged"):
            sensor.raw_zero = sensor.raw_low = sensor.raw_high = np.nan
        elif how != "healed":
            sensor.gain = sensor.noise = 0.0
            sensor.raw_zero, sensor.raw_low, sensor.raw_high = reading, -np.inf, np.inf

    @staticmethod
    def _fail_actuator(how: str, actuator: PlantActuator, values: Floats) -> None:
        if how != "healed":
            actuator.gain, actuator.value_zero = 0.0, values[actuator.target]

    def _plant(self, fault: Fault) -> tuple[str, PlantArrays]:
        name = fault.device or next(iter(self.run.plants))
        return name, self.run.plants[name]

    def _slot(self, device: str, sensor: str) -> int:
        slots = [(d.name, name) for d in self.rig.devices for name in d.inputs]
        return int(self.rig.plan.layout[0].raw) + slots.index((device, sensor))


def check_sequence(sequence: Sequence, rig: Rig) -> None:
    """Raise ConfigurationError if the sequence uses inputs, devices or reactions that the rig does not have."""
    file = str(sequence.file)
    problems = check_inputs(sequence, {name: entry.range for name, entry in rig.settings.inputs.items()})
    problems += missing_capacity(sequence, rig.settings.loop.reactions, rig.settings.loop.playouts)
    plants = {d.name: d for d in rig.devices if d.is_simulated}
    for number, fault in enumerate(sequence.settings.fault):
        if fault.fault == "missed":
            continue
        key = f"fault[{number}]"
        if fault.device not in plants and (fault.device is not None or len(plants) != 1):
            text = f"name one of the rig's simulated devices: {', '.join(plants) or 'it has none'}."
            problems.append(Problem(text, f"{key}.device", file))
            continue
        plant = plants[fault.device or next(iter(plants))]
        channels: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
            ("sensor", fault.sensor, plant.inputs),
            ("actuator", fault.actuator, plant.outputs),
        )
        for what, wanted, known in channels:
            if wanted is not None and wanted not in known:
                text = f'{plant.name} has no {what} "{wanted}" that the rig uses.{did_you_mean(wanted, known)}'
                problems.append(Problem(text, f"{key}.{what}", file))
    if problems:
        raise ConfigurationError(problems)
