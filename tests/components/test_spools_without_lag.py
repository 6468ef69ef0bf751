"""Valves without lag: the flow that belongs to the command at every time, live switches, replay, refusals."""

from __future__ import annotations

import copy
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program

from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError
from hilserver.rig.build import assemble, load_rig
from hilserver.simulation import Simulated, simulate
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

BAR, L_MIN = 1e5, 1e-3 / 60
SUPPLY, LOAD = 100 * BAR, 36 * BAR
C_V = 40 * L_MIN / sqrt(5 * BAR)
"""Of each edge at full opening; the drops here are far above the laminar transition, where Q = C_v·U·sqrt(dp)."""
WITHIN_STAGE = ("proportional_valve_4_3", "servo_valve")
TYPES = {
    "proportional_valve_4_3": "PTAB",
    "servo_valve": "PTAB",
    "directional_valve_4_3": "PTAB",
    "load_sensing_valve": "PTABL",
    "directional_valve_2_2": "PA",
}
DEMO = Path(__file__).parents[2] / "config/rigs/demo.toml"


def circuit(kind: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A valve between four prescribed pressures."""
    nodes = {"P": "P", "T": "T", "A": "A", "B": "B", "L": "LS"}
    point = {"flow": "40 l/min", "drop": "5 bar"}
    if "B" in TYPES[kind]:
        point["per"] = "edge"
    valve = {
        "type": kind,
        "ports": {nodes[port]: nodes[port] for port in TYPES[kind]},
        "command": "u",
        "nominal_flow": point,
        "lag": "none",
        **(changes or {}),
    }
    pressures = {"P": SUPPLY, "A": LOAD, "B": LOAD}
    sources = {
        f"at_{node}": {"type": "pressure_source", "ports": {"P": node}, "pressure": f"{p} Pa", "command": 1}
        for node, p in pressures.items()
        if node in TYPES[kind]
    }
    if "T" in TYPES[kind]:
        sources["tank"] = {"type": "tank", "ports": {"T": "T"}}
    return {"components": {"valve": valve, **sources}}


def flow_into_A(u: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The root law at the edge that is open."""
    return np.where(u > 0, C_V * u * sqrt(SUPPLY - LOAD), C_V * u * sqrt(LOAD))


def at_A(run: Simulated) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The flow into A; of a load-sensing valve with what its LS line takes of it."""
    return run["valve.q_A"] + (run["valve.q_LS"] if "valve.q_LS" in run.values else 0.0)


@pytest.mark.parametrize("kind", TYPES)
def test_the_flow_is_that_of_the_command(kind: str) -> None:
    """A triangle of 4/s. Within the stage: exact at every time; else the command of the step's beginning, 0.1 ms."""
    points = [(0.0, 0.05), (0.2, 0.85), (0.4, 0.05)]
    run = simulate(circuit(kind), {"u": points}, until=0.4)
    u = np.interp(run.time, [t for t, _ in points], [value for _, value in points])
    slack = 0.0 if kind in WITHIN_STAGE else 1.001 * 4.0 * 1e-4
    error = np.abs(at_A(run) - flow_into_A(u)).max()
    assert error <= 1e-9 * L_MIN + slack * flow_into_A(np.ones(1))[0]
    assert np.abs(run["valve.U"] - u).max() <= 1.001 * 4.0 * 1e-4  # what is recorded is set before each step


@pytest.mark.parametrize("kind", [kind for kind, ports in TYPES.items() if "B" in ports])
def test_a_step_is_followed_at_once_in_both_directions_and_within_the_stroke(kind: str) -> None:
    run = simulate(circuit(kind), {"u": lambda t: 3.0 if t < 0.1 else -0.5}, until=0.2)
    expected = flow_into_A(np.where(run.time < 0.0995, 1.0, -0.5))
    held = np.abs(run.time - 0.1) > 2e-3  # the function is sampled each millisecond
    assert at_A(run)[held] == pytest.approx(expected[held], rel=1e-9)
    assert run["valve.U"][held] == pytest.approx(np.where(run.time < 0.0995, 1.0, -0.5)[held], abs=1e-12)


def test_offset_delay_and_hysteresis_still_hold() -> None:
    """20 ms later, behind a play of 0.1, 0.05 off the centre: all exact."""
    changes = {"delay": "20 ms", "hysteresis": 0.1, "null_offset": 0.05}
    run = simulate(circuit("directional_valve_4_3", changes), {"u": [(0.0, 0.0), (0.099, 0.0), (0.1, 0.5)]}, until=0.2)
    assert run["valve.U"][100:117] == pytest.approx(0.05)
    assert run["valve.U"][-1] == pytest.approx((0.5 - 0.05) / 0.95 + 0.05)
    assert run["valve.q_A"][-1] == pytest.approx(C_V * run["valve.U"][-1] * sqrt(SUPPLY - LOAD), rel=1e-9)
    offset = simulate(circuit("servo_valve", {"null_offset": 0.1}), {"u": 0.2}, until=0.01)
    assert offset["valve.q_A"][-1] == pytest.approx(C_V * 0.3 * sqrt(SUPPLY - LOAD), rel=1e-9)


@pytest.mark.parametrize("kind", TYPES)
def test_an_operating_point_has_the_spool_at_the_command(kind: str) -> None:
    packed = pack(read_circuit(circuit(kind), standard_library()), standard_library())
    analysis = Analysis(program(), packed)
    analysis.values[packed.values.index("u")] = 0.4
    analysis.steady_state()
    assert analysis.values[packed.values.index("valve.U")] == pytest.approx(0.4)


def with_lag(lag: bool) -> Any:
    """The demo's rig, its virtual valve with or without lag."""
    tables = copy.deepcopy(dict(load_rig(DEMO).sources))
    if not lag:
        valve = tables["circuit"]["components"]["main_valve"]
        del valve["f45"]
        valve["lag"] = "none"
    return assemble(tables, DEMO, standard_library())


def test_a_live_switch_keeps_the_spool_and_the_log_replays_to_the_last_bit(tmp_path: Path) -> None:
    log = tmp_path / "switched.arrow"
    slow, ideal = with_lag(True), with_lag(False)
    with LockstepRun(slow, log) as run:
        run.run_cycle()
        spool = run.rig.packed.names.index("main_valve.U") + len(run.rig.layout.names)
        before = run.row[spool]
        assert abs(before) < 1.0
        run.set_input("joystick", 0.6)
        run.run(2)
        lagging = run.row[spool]
        assert lagging < 0.5  # on its way
        run.swap(ideal.circuit)
        run.run(1)
        assert run.row[spool] == pytest.approx(0.6, abs=1e-12)  # there at once
        run.swap(slow.circuit)
        rows = run.run(3)
        assert rows[:, spool] == pytest.approx(0.6, abs=1e-9)  # goes on from where it is
        run.set_input("joystick", 0.0)
        rows = run.run(2)
        assert rows[0, spool] > 0.1  # with its lag
    found = replay_log(log)
    assert found.ok
    assert found.switches == 2
    assert found.differences == ()


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("proportional_valve_4_3", {"lag": None}, 'give f45, or lag = "none" for a spool without lag, not none'),
        ("proportional_valve_4_3", {"f45": "30 Hz"}, 'give f45, or lag = "none" for a spool without lag, not both'),
        ("servo_valve", {"lag": None}, 'give f90, or lag = "none" for a spool without lag, not none'),
        ("servo_valve", {"opening_rate": "10 1/s"}, 'opening_rate has no meaning with lag = "none"'),
        ("servo_valve", {"damping": 0.7}, 'damping has no meaning with lag = "none"'),
        ("directional_valve_4_3", {"f90": "30 Hz"}, 'or lag = "none", not f90 and lag'),
        ("directional_valve_4_3", {"opening_rate": "10 1/s"}, 'opening_rate has no meaning with lag = "none"'),
        ("servo_valve", {"lag": "some"}, "lag"),
    ],
)
def test_refusals(kind: str, changes: dict[str, Any], said: str) -> None:
    table = circuit(kind, changes)
    table["components"]["valve"] = {k: v for k, v in table["components"]["valve"].items() if v is not None}
    with pytest.raises(ConfigurationError) as error:
        read_circuit(table, standard_library(), "valve.toml")
    assert said in str(error.value)
    assert "components.valve" in str(error.value)
