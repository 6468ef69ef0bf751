"""The lift rig behind a slow device: its simulated machine is read and commanded only every few ticks.

The bridge knows the device as a Modbus device of that rate; the samples' ages and the commands held in between are
those of an I/O process. Nothing here uses the bridge's own idea of the lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from component_bench import program
from lift_bench import both, lift
from rig_bench import Bench

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.plant_records import sensors_on

DT = 1e-3


def modbus(rate: float) -> dict[str, Any]:
    """A Modbus device with the lift rig's channels."""
    names = ("p_A", "p_B", "p_S", "p_T", "x")
    return {
        "driver": "modbus",
        "tcp": {"host": "127.0.0.1"},
        "rate": f"{rate} Hz",
        "inputs": {n: {"table": "input", "address": 2 * i, "type": "float32"} for i, n in enumerate(names)},
        "outputs": {
            n: {"table": "holding", "address": 2 * i, "type": "float32", "safe": 0}
            for i, n in enumerate(("valve_A", "valve_B"))
        },
    }


def slow_lift(rate: float, strategy: str, changes: dict[str, Any] | None = None) -> Rig:
    """The lift rig as the bridge knows it behind a slow device."""
    bridges = {"rig": {"valves": {name: {"bridge": {"strategy": strategy}} for name in ("A", "B")}}}
    sources = dict(lift(both(bridges, changes or {})).sources)
    rig = dict(sources["rig"])
    rig["devices"] = {"rig": modbus(rate)}
    return assemble({**sources, "rig": rig, "devices": {}}, lift().file, standard_library())


class SlowLift(Bench):
    """The rig in lockstep with its machine; the device is served at its rate, ``phase`` ticks after the loop.

    ``machine``: a rig with another simulated machine, if not that of `lift`.
    """

    def __init__(self, rig: Rig, phase: int = 0, machine: Rig | None = None) -> None:
        super().__init__(rig)
        machine = machine or lift()
        (self.plant,), (device,) = machine.plants().values(), machine.devices
        self.every = round(1.0 / (rig.slow_devices.rates["rig"] * DT))
        self.phase, self.turn = phase, 0
        self._inputs_of = list(device.inputs)
        self._outputs = [rig.layout.column(f"valve.{name}.output") for name in ("A", "B")]
        self._command = self.row[self._outputs].copy()
        self._sample, unused = np.zeros(len(self._inputs_of)), np.zeros(len(self._inputs_of))
        self._sampled = program().sample.bound(self.plant, self._sample)
        self._not_sampled = program().sample.bound(self.plant, unused)  # the sensors' own delay goes on
        self._moved = program().move.bound(self.plant, self._command, DT)
        self._x = sensors_on(self.plant.sensor)[self._inputs_of.index("x")].source
        self.raw = dict.fromkeys(self.raw, np.nan)
        self.positions: list[float] = []
        """Where the piston really was at the end of each tick, m."""

    def step(
        self, kind: int = CommandKind.NOTHING, first: float = 0.0, lost: Mapping[str, float] | None = None
    ) -> None:
        """One tick of the loop and of the machine. ``lost``: readings instead of those of the machine."""
        if served := (self.turn + self.phase) % self.every == 0:
            self._sampled()
            self.raw.update(zip(self._inputs_of, map(float, self._sample), strict=True))
        else:
            self._not_sampled()
        for name in self.ages:
            self.ages[name] = 0.0 if served else self.ages[name] + DT
        self.raw.update(lost or {})
        self.tick(kind, first)
        self.missed = 0
        if served:
            self._command[:] = self.row[self._outputs]
        self._moved()
        self.positions.append(float(self.plant.values[self._x]))
        self.turn += 1

    def pause(self, ticks: int, watchdog: int) -> None:
        """The loop and the device stand for these ticks; after ``watchdog`` of them, the valves are closed."""
        for late in range(ticks):
            if late >= watchdog:
                self._command[:] = 0.0
            self._not_sampled()
            self._moved()
            self.positions.append(float(self.plant.values[self._x]))
        self.missed = ticks
        for name in self.ages:
            self.ages[name] += ticks * DT

    def start(self) -> None:
        """To RUNNING, once the first samples are there."""
        for _ in range(self.every):
            self.step()
        for kind in (CommandKind.ARM, CommandKind.START):
            self.step(kind)
        assert self["mode"] == Mode.RUNNING

    def run(self, seconds: float, names: tuple[str, ...]) -> dict[str, Floats]:
        """Columns of the row, tick by tick."""
        rows = np.empty((round(seconds / DT), len(names)))
        for k in range(len(rows)):
            self.step()
            rows[k] = [self[name] for name in names]
        return dict(zip(names, rows.T, strict=True))
