"""A test sequence on a simulated rig, or on recorded samples: without a clock, reproducible."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from hilserver.circuit.model import Circuit
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import CircuitCommand
from hilserver.rig.build import Rig
from hilserver.sequences.check import SequenceResult
from hilserver.sequences.model import Action, Fault, InputValue, Sequence, Step
from hilserver.sequences.play import Collector, Play, check_inputs, mode_of
from hilserver.sequences.room import missing_room
from hilserver.service.loop_commands import refusal_text
from hilserver.service.loop_orders import RowCommand, loop_orders
from hilserver.service.playouts import PlayoutTable
from hilserver.service.reactions import ReactionTable
from hilserver.service.switching import prepare_switch
from hilserver.service.telemetry import channel_columns
from hilserver.simulation.lockstep import ANY_MODE, LockstepRun, RowMemory
from hilserver.simulation.pacing import TickPace
from hilserver.tick.codes import Mode, ResultCode
from hilserver.tick.lockstep import GOES_ON, IF_DONE, IF_REFUSED
from hilserver.tick.plant import PlantArrays
from hilserver.tick.plant_records import ActuatorRecord, SensorRecord, actuators_on, sensors_on
from hilserver.tick.records import RecordTable, Struct
from hilserver.tick.row import headers

R = TypeVar("R", bound=Struct)
TimedActions = list[tuple[Action, float]]
"""Actions, each with the time, s, when the next one is due."""
TOGETHER = 4000
"""Ticks after which no further command is given in the same run."""
GETTING_READY = 1.0
"""Seconds allowed from the first tick to SAFE."""


def simulate_sequence(
    sequence: Sequence,
    rig: Rig,
    log: Path | None = None,
    *,
    also: Iterable[str] = (),
    only_required: bool = False,
    pace: TickPace | None = None,
    memory: RowMemory | None = None,
) -> SequenceResult:
    """Run a sequence; with ``log`` every tick is recorded there.

    ``also``, ``only_required``: what is collected, such as ``circuit.supply.p``, see `Collector`; ``pace``,
    ``memory``: see `LockstepRun`.

    Raises ConfigurationError if sequence and rig don't match, HilserverError if the rig does not reach SAFE.
    """
    began = time.perf_counter()
    check_sequence(sequence, rig)
    with LockstepRun(rig, log, pacing=pace) as run:
        bench = _Bench(rig, run, Collector(rig, sequence, also, only_required), memory or RowMemory())
        bench.get_ready()
        play = Play(sequence)
        ends = [*(action.at for action in sequence.actions[1:]), sequence.length + bench.dt]
        todo = list(zip(sequence.actions, ends, strict=False))
        while todo and not play.ended:
            del todo[: bench.carry_out(todo, play)]
        if not play.ended:
            bench.run_until(sequence.length + bench.dt)
        bench.note_reactions(play)
        recorded = bench.collector.recorded(bench.first_tick, bench.dt)
    where = f"simulated: {rig.file}" if not run.samples else f"on recorded samples: {rig.file}"
    return play.result(where, recorded, rig.circuit.source, log=str(log or ""), took=time.perf_counter() - began)


@dataclass(frozen=True)
class _Given:
    """A command given in a tick: the mode it needs; why it was refused beforehand; to which circuit it switches."""

    action: Step | InputValue
    tick: int
    needs: str = ""
    refusal: str = ""
    circuit: Circuit | None = None


def _may_be_refused(action: Action) -> bool:
    return isinstance(action, Step) and action.refused


class _Bench:
    """A rig run without a clock that executes the MQTT commands."""

    def __init__(self, rig: Rig, run: LockstepRun, collector: Collector, memory: RowMemory) -> None:
        self.rig, self.run, self.collector, self.dt = rig, run, collector, run.dt
        self._memory = memory
        self.circuit: Circuit = rig.circuit
        self.first_tick = 0.0
        self._tables = ReactionTable(rig, channel_columns(rig)), PlayoutTable(rig, channel_columns(rig))
        self._noted = 0
        self._whole: dict[tuple[str, str, int], np.void] = {}

    @property
    def next_tick(self) -> int:
        """Number of the next tick, from the start of the sequence."""
        return int(self.run.tick + 1.0 - self.first_tick)

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
        raise HilserverError(f"{self.rig.file}: the rig is in mode {self.run.mode}, not SAFE: {self.run.fault}.")

    def run_until(self, at: float) -> Floats:
        """Run until the next tick is the one at ``at``; returns the rows, which are valid until the next call."""
        rows = self.run.run(self._ticks(self.next_tick, at), memory=self._memory)
        if len(rows):
            self.collector.add(self.run.packed.names, rows)
        return rows

    def note_reactions(self, play: Play) -> None:
        """Note the reactions that have fired, and what playouts have done, since the last call."""
        for tick, event in self.run.reacted[self._noted :]:
            play.note_event(event, (tick - self.first_tick) * self.dt)
        self._noted = len(self.run.reacted)

    def _ticks(self, tick: int, at: float) -> int:
        """Number of ticks from the one of this number to the one at ``at``, s."""
        return max(round((at - tick * self.dt) / self.dt), 0)

    def carry_out(self, todo: TimedActions, play: Play) -> int:
        """Carry out the first of these actions when it is due; of commands, also those that can follow in the same run.

        Returns how many were carried out.
        """
        action = todo[0][0]
        self.run_until(action.at)
        self.note_reactions(play)
        if play.skips(action):
            return 1
        if isinstance(action, Fault):
            play.note_fault(action, self.now)
            self.fail(action)
        elif isinstance(action, Step) or action.command.input not in play.resting:
            return self._give(todo, play)
        return 1

    def _give(self, todo: TimedActions, play: Play) -> int:
        """Give the first of these commands, and those that can follow it, in one run.

        The run ends before a value of an input if the rig is not running any more, and with a command whose result is
        not the expected one.
        """
        first = tick = self.next_tick
        given = list[_Given]()
        for action, end in todo:
            if given and (tick - first > TOGETHER or not self._can_follow(action, play)):
                break
            assert not isinstance(action, Fault)
            tick += self._ticks(tick, action.at)
            given.append(self._queued(action, tick, tick - first))
            tick = given[-1].tick + 1
            if given[-1].refusal and not _may_be_refused(action):
                break
            tick += self._ticks(tick, max(tick * self.dt, end))
        rows = self.run_until(tick * self.dt)
        last = first + len(rows)
        taken = [each for each in given if each.tick < last]
        results = headers(rows)["result"][[each.tick - first for each in taken]]
        for each, result in zip(taken, results.tolist(), strict=True):
            refusal = each.refusal
            if not refusal and result == ResultCode.DONE and isinstance(each.action, InputValue):
                continue  # as most of them
            if not refusal and result != ResultCode.DONE:
                refusal = refusal_text(each.action.command, each.needs, result, mode_of(rows[each.tick - first]))
            self._note(each, refusal, play)
        return len(taken)

    def _can_follow(self, action: Action, play: Play) -> bool:
        """Whether an action can be prepared before the row is known in which its command is given."""
        if self.run.samples or self.run.is_late:
            return False
        if isinstance(action, InputValue):
            return action.command.input not in play.resting
        needs_row = isinstance(action, Fault) or isinstance(action.command, CircuitCommand | RowCommand)
        return not needs_row and not play.sequence.reactions  # which may end the run

    def _queued(self, action: Step | InputValue, tick: int, after: int) -> _Given:
        """Queue a command for this tick, ``after`` so many ticks from now on; or the reason if it is refused."""
        command, run, wanted = action.command, self.run, IF_REFUSED if _may_be_refused(action) else IF_DONE
        try:
            if isinstance(command, CircuitCommand):
                new = prepare_switch(self.rig, run.program, self.circuit, run.packed, run.row, command)
                run.swap(new.circuit, new.packed, wanted)
                return _Given(action, tick, circuit=new.circuit)
            orders = loop_orders(self.rig, command, run.packed, run.row, *self._tables)
        except ConfigurationError as error:
            return _Given(action, tick, refusal="; ".join(map(str, error.problems)))
        except HilserverError as error:
            return _Given(action, tick, refusal=str(error))
        mode = Mode.RUNNING if isinstance(action, InputValue) and after else ANY_MODE
        for k, order in enumerate(orders, 1):
            run.command(
                order.kind, order.first, order.second, *order.further,
                about=order.about, after=after, mode=mode, wanted=wanted if k == len(orders) else GOES_ON,
            )  # fmt: skip
        return _Given(action, tick + len(orders) - 1, orders[0].needs)

    def _note(self, given: _Given, refusal: str, play: Play) -> None:
        """Note that a command was carried out, or refused."""
        action, at = given.action, given.tick * self.dt
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
    def _fail_actuator(how: str, actuator: ActuatorRecord, values: Floats) -> None:
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
    problems += missing_room(sequence, rig.settings.loop.reactions, rig.settings.loop.playouts)
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
