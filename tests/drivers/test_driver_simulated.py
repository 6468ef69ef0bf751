"""The simulated driver passes through what its plant measures and is told: what every driver must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from driver_bench import NAME, Bench
from driver_conformance import DriverConformance

from hilserver.driver import Driver, Floats
from hilserver_drivers.simulated import SimulatedRig

CIRCUITS = Path(__file__).parents[2] / "config/circuits"
SENSORS = {name: {"of": name, "value": ["0 bar", "250 bar"]} for name in ("p_A", "p_B", "p_S", "x")}
ACTUATORS = {"valve": {"to": "u", "safe": 0.5}, "pump": {"to": "n"}}


class StubPlant:
    """A plant whose sensors show what it is told, for the channels that a driver chose."""

    def __init__(self, bench: SimulatedBench, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._bench, self._inputs, self._outputs = bench, inputs, outputs

    def read(self, values: Floats, ages: Floats) -> None:
        values[:], ages[:] = [self._bench.measured[name] for name in self._inputs], 0.0

    def write(self, values: Floats) -> None:
        self._bench.writes += zip(self._outputs, values.tolist(), strict=True)

    def make_safe(self) -> None:
        self._bench.writes += [(name, self._bench.safe[name]) for name in self._outputs]

    def stand_in(self) -> StubPlant:
        return StubPlant(SimulatedBench(), self._inputs, self._outputs)

    def close(self) -> None:
        """Nothing to let go of."""


class SimulatedBench(Bench):
    """A simulated rig with a stub for the circuit."""

    driver = SimulatedRig

    def __init__(self) -> None:
        files = {"machine": str(CIRCUITS / "machine.toml"), "drive": str(CIRCUITS / "drive.toml")}
        self.settings = {**files, "sensors": SENSORS, "actuators": ACTUATORS}
        self.input_span = dict.fromkeys(SENSORS, (1.0, 7.0))
        self.output_span = dict.fromkeys(ACTUATORS, (-3.0, 4.0))
        self.safe = {"valve": 0.5, "pump": 0.0}
        self.timeout = 0.0
        self.measured = dict.fromkeys(SENSORS, 0.0)
        self.writes: list[tuple[str, float]] = []

    def make(self, inputs: Sequence[str], outputs: Sequence[str]) -> Driver:
        config = SimulatedRig.Config.model_validate(self.settings)
        return SimulatedRig(NAME, config, inputs, outputs, plant=StubPlant(self, inputs, outputs))

    def measure(self, values: Mapping[str, float]) -> None:
        self.measured = dict(values)

    def written(self) -> list[tuple[str, float]]:
        return list(self.writes)


class TestSimulatedRig(DriverConformance):
    """Behind the plant's protocol, without a circuit."""

    @pytest.fixture
    def bench(self) -> SimulatedBench:
        return SimulatedBench()
