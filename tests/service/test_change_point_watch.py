"""A mechanism of the running circuit at its change point: the rig trips, with the reason."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.change_point_watch import ChangePointWatch
from hilserver.service.running_circuit import RunningCircuit
from hilserver.service.telemetry import TelemetryReader
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.row import header, headers

DEMO = Path(__file__).parents[2] / "config/rigs/demo.toml"


def linkage(method: str, coupler: float, speed: str) -> dict[str, Any]:
    """Two cranks of 0.3 m on a base of 0.5 m; with a coupler as long as that, a parallelogram. No gravity."""
    bar = {"mass": "1 kg", "inertia": "0.01 kg*m^2"}
    rise = (0.09 - (coupler - 0.5) ** 2) ** 0.5

    def joint(one: str, other: str, x: float, y: float, **more: str) -> dict[str, Any]:
        return {"type": "revolute", "between": [one, other], "point": [f"{x} m", f"{y} m"], **more}

    return {
        "method": method,
        "gravity": ["0 m/s^2", "0 m/s^2"],
        "bodies": {
            "left": {**bar, "centre": ["0 m", "0.15 m"]},
            "coupler": {**bar, "centre": ["0.25 m", "0.3 m"]},
            "right": {**bar, "centre": ["0.5 m", "0.15 m"]},
        },
        "joints": {
            "base_left": joint("ground", "left", 0.0, 0.0, start_speed=speed),
            "top_left": joint("left", "coupler", 0.0, 0.3),
            "top_right": joint("coupler", "right", coupler, rise),
            "base_right": joint("right", "ground", 0.5, 0.0),
        },
    }


class Ring:
    """The telemetry of recorded rows, published as far as the test says."""

    def __init__(self, rig: Rig, rows: Floats) -> None:
        self.rig, self.rows, self.published, self.trip_reason = rig, rows, 0, ""

    def since(self, cursor: int) -> Floats:
        return self.rows[cursor : self.published]


def watched(method: str, coupler: float, speed: str, mode: str) -> tuple[list[str], list[Any], Ring, Floats]:
    """Messages and commands when the demo runs with this linkage for 0.4 s, and the rows."""
    rig = load_rig(DEMO)
    source = copy.deepcopy(dict(rig.circuit.source))
    source["mechanisms"] = {"m": {"definition": linkage(method, coupler, speed)}}
    circuit = rig.read_circuit(source)
    packed = rig.pack(circuit)
    with LockstepRun(rig) as run:
        run.swap(circuit, packed)
        if mode == "RUNNING":
            run.start()
        rows = run.run(400)
    said: list[str] = []
    commanded: list[Any] = []

    async def execute(command: Command) -> Answer:
        commanded.append((type(command).__name__, ring.published))
        return Answer(id="", command="estop", ok=True, time=0.0)

    ring = Ring(rig, rows)
    running = RunningCircuit(circuit, packed, int(header(rows[-1]).circuit_version), None)
    watch = ChangePointWatch(cast(TelemetryReader, ring), lambda: running, execute)

    async def look() -> None:
        while ring.published < len(rows):
            ring.published = min(ring.published + 50, len(rows))
            await watch.look(lambda trouble, text: said.append(text) if trouble else None)

    asyncio.run(look())
    return said, commanded, ring, rows


@pytest.mark.parametrize("method", ["absolute", "recursive"])
def test_a_parallelogram_in_its_dead_centre_trips_the_rig(method: str) -> None:
    """From upright at one turn per second, its bars are in one line after a quarter of a second; said once for each."""
    said, commanded, ring, rows = watched(method, 0.5, "60 rpm", "RUNNING")
    assert said
    assert said[0].startswith("mechanism m of the virtual circuit is at a change point: ")
    assert "; tripped (tick " in said[0]
    name, published = commanded[0]
    assert name == "Trip"
    assert published <= 300  # within one look of the quarter of a second
    tick = int(said[0].rpartition("tick ")[2].removesuffix(")"))
    began = headers(rows)["tick"][0]
    assert tick - began == pytest.approx(250, abs=12)
    assert ring.trip_reason.startswith("mechanism m of the virtual circuit is at a change point")


def test_in_safe_it_is_reported_only() -> None:
    said, commanded, _, _ = watched("absolute", 0.5, "60 rpm", "SAFE")
    assert said
    assert "tripped" not in said[0]
    assert commanded == []


@pytest.mark.parametrize(("coupler", "speed"), [(0.42, "-60 rpm"), (0.5, "20 rpm")])
def test_none_is_invented(coupler: float, speed: str) -> None:
    """A linkage that has none, turned; and a parallelogram that does not come to it."""
    said, commanded, _, rows = watched("absolute", coupler, speed, "RUNNING")
    assert np.isfinite(rows[-1]).any()
    assert said == []
    assert commanded == []


def test_a_circuit_without_mechanisms_costs_nothing() -> None:
    rig = load_rig(DEMO)
    ring = Ring(rig, np.empty((0, rig.layout.width)))
    running = SimpleNamespace(circuit=rig.circuit, version=1)
    watch = ChangePointWatch(cast(TelemetryReader, ring), lambda: cast(RunningCircuit, running), cast(Any, None))
    ring.published = 7
    asyncio.run(watch.look(lambda *_: pytest.fail("nothing to say")))
