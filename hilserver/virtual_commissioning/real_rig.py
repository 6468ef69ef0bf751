"""A rig with real devices in lockstep: a stand-in for its machine, read and commanded at the rates of the devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.scale import Curve
from hilserver.simulation.lockstep import RECORD, LockstepRun
from hilserver.tick.plant import PlantArrays
from hilserver.tick.program import no_command
from hilserver.tick.row import COLUMN, as_whole, header
from hilserver.virtual_commissioning.stand_in import StandIn

NAME = "stand-in"


@dataclass
class _Channel:
    """A measured channel of the rig: its place in the row, and its place among the sensors, or a constant reading.

    ``limits``: raw readings outside of which there is no sample.
    """

    curve: Curve
    limits: tuple[float, float]
    place: int
    every: int
    sensor: int | None
    constant: float = 0.0
    raw: float = np.nan
    age: float = 0.0

    def serve(self, readings: Floats) -> None:
        """Take a new sample."""
        value = self.constant if self.sensor is None else float(readings[self.sensor])
        self.raw, self.age = self.curve.nearest_raw(value, self.limits), 0.0


class StandInRun(LockstepRun):
    """A rig with real devices in lockstep, against a stand-in for its machine.

    A slow device has a new sample, and passes a new command on, once per period; in between both are held.
    """

    def __init__(self, rig: Rig, program: Program, substitute: StandIn) -> None:
        self._plant = PlantArrays._make(array.copy() for array in substitute.plant)
        super().__init__(rig, program=program)
        self.plants = {NAME: self._plant}
        self._tick = self.dt
        self._true: list[Floats] = []
        self._channels = list(_channels(rig, substitute))
        self._outputs = [rig.layout.column(f"valve.{name}.output") for name in rig.settings.valves]
        self._periods = [rig.slow_devices.ticks(valve.device) for valve in rig.settings.valves.values()]
        self._held: Floats = self.row[self._outputs].copy()
        self._readings = np.zeros(len(substitute.measured))
        first = rig.plan.layout[0]
        columns = [int(start) + c.place for start in (first.raw, first.age) for c in self._channels]
        self._inputs = np.array([COLUMN["tick"], COLUMN["missed"], *columns], dtype=np.int64)

    def _connect(self) -> None:
        """The stand-in replaces all devices."""

    def true_values(self, device: str) -> Floats:
        """The stand-in at the end of every tick so far."""
        return np.concatenate(self._true)

    def _block(self, rows: Floats, commands: Floats) -> Callable[[], None]:
        return partial(self._run_ticks, rows, commands)

    def _run_ticks(self, rows: Floats, commands: Floats) -> None:
        """Tick by tick. (No command of these runs depends on the mode.)

        All ticks have their arguments in the same place: they need not be examined in each.
        """
        trace = np.empty((len(rows), len(self._plant.values)))
        due = {int(line[0]): line[RECORD:] for line in commands}
        none, command = no_command(), no_command()
        given, row = np.zeros((1, len(self._inputs))), np.empty((1, rows.shape[1]))
        place = self.rig.plan.block, self.packed.index, self.packed.value, self.row, self._work
        sample = self.program.sample.bound(self._plant, self._readings)
        tick = self.program.run_recorded.bound(*place, command, self._inputs, given, row)
        move = self.program.move.bound(self._plant, self._held, self._tick)
        for k in range(len(rows)):
            command[:] = due.get(k, none)
            turn = int(header(self.row).tick) + 1
            sample()
            self._pass_readings(turn, given[0])
            tick()
            self._pass_commands(turn)
            move()
            rows[k], trace[k] = row[0], self._plant.values
        self._true.append(trace)

    def _pass_readings(self, turn: int, given: Floats) -> None:
        """Samples of the channels that are due in this tick, into the inputs of the tick."""
        for channel in self._channels:
            channel.age += self._tick
            if turn % channel.every == 0:
                channel.serve(self._readings)
        as_whole(given)[0] = turn
        given[2:] = [*(c.raw for c in self._channels), *(c.age for c in self._channels)]

    def _pass_commands(self, turn: int) -> None:
        """The outputs of the valves, to those devices that take one in this tick."""
        for number, (column, every) in enumerate(zip(self._outputs, self._periods, strict=True)):
            if turn % every == 0:
                self._held[number] = self.row[column]


def _channels(rig: Rig, substitute: StandIn) -> list[_Channel]:
    """The measured channels of a rig."""
    places = {name: place for place, name in enumerate(rig.layout.raw)}
    found = []
    for name, settings in rig.settings.channels.items():
        if settings.device is None:
            continue
        sensor = substitute.measured.index(name) if name in substitute.measured else None
        constant = 0.0 if sensor is not None else _quiet(rig, name, settings)
        every = rig.slow_devices.ticks(settings.device)
        found.append(_Channel(settings.curve(), settings.raw_limits(), places[name], every, sensor, constant))
    return found


def _quiet(rig: Rig, name: str, settings: ChannelSettings) -> float:
    """A value of a channel that the stand-in does not have, at which nothing happens."""
    if rig.settings.enable is not None and rig.settings.enable.channel == name:
        return 1.0
    limits = [limit for limit in rig.settings.limits.values() if limit.channel == name]
    low = max((limit.min.value for limit in limits if limit.min is not None), default=None)
    high = min((limit.max.value for limit in limits if limit.max is not None), default=None)
    if low is not None and high is not None:
        return 0.5 * (low + high) - settings.zero
    middle = sum(settings.measuring_range() or (0.0, 0.0)) / 2.0 + settings.zero
    return min(max(middle, low if low is not None else middle), high if high is not None else middle) - settings.zero
