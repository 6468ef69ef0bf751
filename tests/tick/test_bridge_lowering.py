"""The bridge in front of a check valve, a counterbalance valve and small, stiff chambers: the reference is the judge.

A circuit whose oil passes the port within a tick, and whose pressure at the port settles within a tick, with valves of
60 Hz.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import pi
from typing import Any

import numpy as np
import pytest
from lift_bench import of_valves, true_valves
from lowering_bench import CONFIG, SENSORS, late, lowering

from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.results import SegmentResult
from hilserver.fidelity.strategies import compare
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.plan import plan_on

pytestmark = pytest.mark.slow

LIGHTER = {"rig": {"cylinders": {"lift": {"mass": "2000 kg"}}}}  # 31 % less than it is
HEAVIER = {"rig": {"cylinders": {"lift": {"mass": "4000 kg"}}}}


def results(changes: dict[str, Any], *strategies: str) -> dict[str, tuple[float, float, float]]:
    """By strategy: NRMSE of the position, the worse one of the pressures, and the larger noise of a command."""
    result = compare(lowering(changes), strategies, chosen_by_user=True)
    found = {}
    for variant in result.variants:
        assert variant.cycle is not None
        of = {name: deviation.nrmse for name, deviation in variant.cycle.deviations.items()}
        found[variant.name] = (
            of["position rod"],
            max(of["pressure A"], of["pressure B"]),
            noise(variant.cycle, result.dt),
        )
    return found


def noise(cycle: SegmentResult, dt: float) -> float:
    return max(cycle.noise(valve, dt) for valve in cycle.command)


@pytest.mark.parametrize(("rate", "substeps", "length"), [("1 kHz", 10, "11 s"), ("4 kHz", 3, "8 s")])
def test_the_load_is_lowered_and_lifted_as_in_the_reference(rate: str, substeps: int, length: str) -> None:
    """Position within 0.02 %, pressures within 2 %, noise of the command below 0.1 % of full command.

    At 4 kHz, a tick of which takes as long to compute, up to the first second of lifting at full speed.
    """
    rig = {"rig": {"loop": {"rate": rate}}, "circuit": {"solver": {"substeps": substeps}}, "cycle": {"length": length}}
    found = results(rig, "prediction", "feedback", "adaptive")
    for position, pressure, command in found.values():
        assert position < 2e-4
        assert pressure < 0.02
        assert command < 1e-3


@pytest.mark.parametrize(
    "wrong",
    [late(1.0), late(2.0), late(3.0), true_valves(f90="48 Hz"), LIGHTER, HEAVIER],
    ids=["1 ms late", "2 ms late", "3 ms late", "slower spool", "a lighter load stated", "a heavier load stated"],
)
def test_unknown_parameters_do_not_make_the_bridge_oscillate(wrong: dict[str, Any]) -> None:
    """Pressures within 8 %; where the rig oscillated, with the lead of the newest prediction, 50 to 90 %."""
    for position, pressure, command in results(wrong, "feedback").values():
        assert position < 5e-4
        assert pressure < 0.08
        assert command < 1e-3


def test_noisy_sensors_do_not_shake_the_valve() -> None:
    """0.05 bar and 3 µm of noise: command below 1 % above 100 Hz; 3 % with the lead of the newest prediction."""
    sensors = {name: {"noise": 0.05 / 400} for name in SENSORS} | {"x": {"noise": 0.003e-3}}
    noisy = {"rig": {"devices": {"rig": {"sensors": sensors}}, "channels": {"x": {"noise": "0.003 mm"}}}}
    ((position, _, command),) = results(noisy, "feedback").values()
    assert position < 2e-4
    assert command < 0.01


@pytest.mark.parametrize(("rig", "load"), [("lift", 0.5), ("lift", 2.0), ("demo", 0.5), ("demo", 2.0)])
def test_an_unknown_load_comes_to_rest(rig: str, load: float) -> None:
    """After a step of the joystick and back, the oscillation of the pressure has fallen to 60 % after 1.2 s."""
    for strategy in ("prediction", "feedback"):
        found = load_rig(CONFIG / "rigs" / f"{rig}.toml")
        sources = json.loads(json.dumps(found.sources))  # a deep copy
        machine = sources["devices"]["rig"]["machine"]
        mass = float(machine["components"]["load"]["mass"].removesuffix(" kg"))
        machine["components"]["load"]["mass"] = f"{load * mass} kg"
        machine["nodes"]["rod"] = {"position": "0.5 m"}
        points = [["0 s", 0.0], ["0.3 s", 0.5], ["0.8 s", 0.0]]
        sources["cycle"] = {"inputs": {"joystick": {"shape": "hold", "points": points}}, "length": "2.3 s"}
        for valve in sources["rig"]["valves"].values():
            valve["bridge"] = {**valve.get("bridge", {}), "strategy": strategy}
        changed = assemble(sources, found.file, found.library)
        with LockstepRun(changed, trace=True) as run:
            run.run_cycle()
            true = run.true_values("rig")
        names = list(plant_circuit(machine, sources["devices"]["rig"]["drive"], found.library).names)
        p = true[:, names.index("B.p")]
        assert np.ptp(p[2100:2300]) < 0.6 * np.ptp(p[900:1100])


def test_a_wrong_flow_gain_is_compensated() -> None:
    """C_v 2 % and frequency 10 % off: feedback within 0.05 %, and ten times closer than prediction."""
    nominal = {"flow": "39.2 l/min", "drop": "35 bar", "per": "edge"}
    found = results(true_valves(f90="66 Hz", nominal_flow=nominal), "prediction", "feedback")
    assert found["feedback"][0] < 5e-4
    assert found["feedback"][0] < 0.1 * found["prediction"][0]


@pytest.mark.parametrize("stated", [36.0, 44.0])
def test_a_wrong_flow_is_not_taken_for_a_wrong_null_or_delay(stated: float) -> None:
    """Although small openings hardly tell them apart: up to 0.2 % of the stroke and 3 ms were found in passing."""
    rig = lowering(of_valves(nominal_flow={"flow": f"{stated} l/min", "drop": "35 bar", "per": "edge"}))
    columns = run_cycle_on(rig, "rig", "adaptive", standard_program()).record.columns
    for valve in "AB":
        assert np.abs(columns[f"valve.{valve}.null"]).max() < 3e-4
        assert np.abs(columns[f"valve.{valve}.delay"]).max() < 0.5e-3
        assert columns[f"valve.{valve}.gain_PA"][-1] == pytest.approx(40.0 / stated, rel=0.005)


@pytest.mark.parametrize("strategy", ["inverse_lag_leakage", "prediction", "feedback"])
def test_every_litre_is_accounted_for(strategy: str) -> None:
    """Virtual = real + error + lost: what was passed is measured at the simulated machine, by position and pressure.

    The virtual volume is that of the circuit's flow in the log; under feedback the chambers have received it within
    0.1 % of the largest volume.
    """
    rig = lowering(of_valves(bridge={"strategy": strategy}))
    plan = plan_on(rig.plan.block.copy())
    plan.valve["strategy_first"][:] = Strategy[strategy]
    with LockstepRun(replace(rig, plan=plan), trace=True) as run:
        rows, true = run.run_cycle(), run.true_values("rig")
    tables = rig.sources["devices"]["rig"]
    names = list(plant_circuit(tables["machine"], tables["drive"], rig.library).names)
    x, begin = true[:, names.index("rod.x")], 100
    area = {"A": pi / 4 * 0.063**2, "B": -pi / 4 * (0.063**2 - 0.036**2)}
    dead = {"A": 0.1e-3, "B": 0.7e-3 + pi / 4 * (0.063**2 - 0.036**2) * 0.8}
    for port in "AB":
        b = {f: rows[:, rig.layout.column(f"valve.{port}.{f}")] for f in ("volume_error", "volume_lost")}
        virtual = rows[:, rig.layout.column(f"valve.{port}.volume_virtual")]
        flow = rows[:, rig.layout.column(f"valve.{port}.flow_virtual")]
        assert np.cumsum(1e-3 * flow) == pytest.approx(virtual, abs=1e-12)
        p = true[:, names.index(f"{port}.p")]
        chamber = dead[port] + area[port] * x
        passed = np.concatenate([[0.0], np.cumsum(np.diff(area[port] * x) + np.diff(p) * chamber[1:] / 1.5e9)])
        until_now = virtual - 1e-3 * flow  # the virtual volume reaches to the end of the tick, the errors to its start
        delivered = until_now - b["volume_error"] - b["volume_lost"]
        real = np.concatenate([[0.0], passed[:-1]])
        off = (delivered - delivered[begin]) - (real - real[begin])
        assert np.abs(off[begin:]).max() < 2e-3 * np.ptp(real)
        if strategy == "feedback":
            owed = (virtual - virtual[begin]) - (passed - passed[begin])
            assert abs(owed[-1]) < 1e-3 * np.ptp(passed)
