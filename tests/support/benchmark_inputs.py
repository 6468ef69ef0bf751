"""For tests of the benchmark: rigs with a device that is not simulated, and a report's figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rig_bench import CIRCUIT, RIG

from hilserver.bench.bench import BenchReport
from hilserver.bench.components import ComponentCost
from hilserver.bench.drivers import DriverCost
from hilserver.bench.parts import PartCost
from hilserver.circuit.library import standard_library
from hilserver.commissioning.rates import RateTrial
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig

TRIAL = RateTrial(1000.0, 2000, 0.0, 0, 20.0, 60.0, 30.0, 80.0, 200.0)
"""A rate that is sustained."""


def rig_with_modbus(port: int) -> Rig:
    """The small rig of the bridge's tests with a Modbus device, whose valve is at null at 300."""
    places = {name: {"table": "input", "address": number, "type": "uint16"} for number, name in enumerate("ASQ")}
    return rig_with(
        {
            "driver": "modbus",
            "tcp": {"host": "127.0.0.1", "port": port},
            "inputs": places,
            "outputs": {"valve": {"table": "holding", "address": 40, "type": "uint16", "safe": 300}},
        },
        raw=[100, 500],
    )


def rig_with(device: Mapping[str, Any], raw: Sequence[float]) -> Rig:
    """The small rig of the bridge's tests with this device, and the raw values of its valve's full commands."""
    table = {**RIG, "name": f"bench-device-{os.getpid()}", "devices": {"card": device}}
    table["valves"] = {"main": {**RIG["valves"]["main"], "raw": raw}}
    return assemble({"rig": table, "circuit": CIRCUIT}, Path("bench.toml"), standard_library())


def figures(factor: float = 1.0, highest: float = 5000.0) -> dict[str, Any]:
    """A report in which everything takes ``factor`` times as long."""
    report = BenchReport(
        "demo",
        parts=[PartCost("circuit", "tick", 4.0 * factor)],
        components=[ComponentCost("relief_valve", 1, 8.0 * factor, 0.3 * factor)],
        drivers=[DriverCost("card", "ni", "loop", 3.0 * factor, 0.0)],
    ).figures()
    return {**report, "rates": [vars(TRIAL)], "highest_rate": highest}
