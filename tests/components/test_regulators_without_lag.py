"""Pressure and flow valves without lag: the flow of their settled spool at every time; the others say why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from component_bench import program

from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError
from hilserver.simulation import Simulated, simulate

BAR, L_MIN = 1e5, 1e-3 / 60
Table = dict[str, Any]
TABLES: dict[str, tuple[Table, Table]] = {
    "pressure_compensator": (
        {"P": "P", "A": "A", "X": "X"},
        {"drop": "10 bar", "nominal_flow": {"flow": "60 l/min", "drop": "5 bar"}},
    ),
    "reducing_valve": (
        {"P": "P", "A": "A", "T": "T"},
        {"set_pressure": "50 bar", "nominal_flow": {"flow": "40 l/min", "drop": "8 bar"}},
    ),
    "flow_control_valve_2_way": ({"A": "P", "B": "T"}, {"flow": "20 l/min"}),
    "flow_control_valve_3_way": (
        {"P": "P", "A": "A", "T": "T"},
        {"flow": "20 l/min", "bypass_flow": {"flow": "60 l/min", "drop": "6 bar"}},
    ),
}
"""Ports and datasheet values by type."""
SUPPLY = [(0.0, 100.0), (0.05, 100.0), (0.0501, 150.0), (0.1, 60.0)]
"""bar: the pressure at P, with a step in 0.1 ms."""


def circuit(kind: str, changes: Table, at: dict[str, str]) -> Table:
    """A valve between prescribed pressures; that at P is 100 bar times the input."""
    ports, values = TABLES[kind]
    valve = {"type": kind, "ports": ports, **values, **changes}
    sources = {
        f"at_{node}": {"type": "pressure_source", "ports": {"P": node}, "pressure": p, "command": 1}
        for node, p in at.items()
        if node in ports.values()
    }
    supply = {"type": "pressure_source", "ports": {"P": "P"}, "pressure": "100 bar", "command": "p_P"}
    tank = {"tank": {"type": "tank", "ports": {"T": "T"}}} if "T" in ports.values() else {}
    return {"components": {"valve": valve, "supply": supply, **sources, **tank}}


def run(kind: str, changes: Table, at: dict[str, str]) -> Simulated:
    return simulate(circuit(kind, changes, at), {"p_P": [(t, p / 100.0) for t, p in SUPPLY]}, until=0.1)


@pytest.mark.parametrize(
    ("kind", "at", "port", "flow"),
    [
        ("pressure_compensator", {"A": "50 bar", "X": "40 bar"}, "A", 60.0),  # just its drop: the nominal flow
        ("pressure_compensator", {"A": "51 bar", "X": "40 bar"}, "A", 30.0),  # half of its control range above
        ("reducing_valve", {"A": "47.5 bar"}, "P", -20.0),  # half of its control range below
        ("flow_control_valve_2_way", {}, "B", 20.0),
    ],
)
def test_the_flow_follows_the_datasheet_at_once_whatever_the_supply(
    kind: str, at: dict[str, str], port: str, flow: float
) -> None:
    """The supply jumps from 100 to 150 bar: without lag the flow stays, with the usual one it jumps with the root."""
    ideal, usual = run(kind, {"lag": "none"}, at), run(kind, {}, at)
    assert ideal[f"valve.q_{port}"] == pytest.approx(flow * L_MIN, rel=1e-9)
    passed = usual[f"valve.q_{port}"]
    jump = np.argmin(np.abs(usual.time - 0.052))
    assert abs(passed[jump]) > 1.1 * abs(flow) * L_MIN
    assert np.all(np.diff(ideal["valve.U"][60:]) > 0.0)  # what is recorded opens while the supply falls


def test_a_bypass_without_lag_holds_the_drop() -> None:
    """3-way: a pump of 50 l/min in a volume of 0.1 l, the load at 80 bar: the drop is that of the bypass's flow."""
    ports, values = TABLES["flow_control_valve_3_way"]
    found = {}
    for lag in ({"lag": "none"}, {}):
        components = {
            "valve": {"type": "flow_control_valve_3_way", "ports": ports, **values, **lag},
            "pump": {"type": "flow_source", "ports": {"P": "P", "T": "T"}, "flow": "50 l/min", "command": 1},
            "line": {"type": "volume", "ports": {"P": "P"}, "volume": "0.1 l"},
            "load": {"type": "pressure_source", "ports": {"P": "A"}, "pressure": "80 bar", "command": "load"},
            "tank": {"type": "tank", "ports": {"T": "T"}},
        }
        solver = {"integrator": "rosenbrock", "substeps": 10}
        nodes = {"P": {"pressure": "88 bar"}}
        load = {"load": [(0.0, 1.0), (0.1, 1.0), (0.101, 0.5)]}
        found[len(lag)] = simulate({"components": components, "solver": solver, "nodes": nodes}, load, until=0.3)
    ideal, usual = found[1], found[0]
    drop = ideal["P.p"] - ideal["A.p"]
    bypass = 60.0 * (drop / BAR - 6.0) / 2.0  # l/min: none at 8 - 2 bar, the nominal 60 at 8 bar
    set_flow = 20.0 * np.sqrt(drop / (8.0 * BAR))
    at_rest = np.abs(ideal.time - 0.1) > 0.02
    assert (bypass + set_flow)[at_rest] == pytest.approx(50.0, rel=1e-3)
    assert usual["P.p"][-1] == pytest.approx(ideal["P.p"][-1], rel=1e-4)


@pytest.mark.parametrize("kind", TABLES)
def test_an_operating_point_has_the_settled_spool(kind: str) -> None:
    """The same as with a lag."""
    found = {}
    for lag in ("none", ""):
        table = circuit(kind, {"lag": "none"} if lag else {}, {"A": "49 bar", "X": "38.5 bar"})
        packed = pack(read_circuit(table, standard_library()), standard_library())
        analysis = Analysis(program(), packed)
        analysis.values[packed.values.index("p_P")] = 1.0
        analysis.steady_state()
        found[lag] = analysis.values[packed.values.index("valve.U")]
    assert found["none"] == pytest.approx(found[""], abs=1e-7)
    assert 0.0 <= found["none"] <= 1.0


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("relief_valve", "static_relief_valve"),
        ("sequence_valve", "settling_time"),
        ("counterbalance_valve", "settling_time"),
        ("unloading_valve", "response_time"),
    ],
)
def test_a_poppet_says_why_it_has_a_lag(kind: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_circuit({"components": {"valve": {"type": kind, "lag": "none"}}}, standard_library(), "file.toml")
    said = str(refused.value)
    assert "file.toml: components.valve" in said
    assert "needs a time constant" in said
    assert remedy in said


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lag": "none", "response_time": "5 ms"}, "give either response_time or lag"),
        ({"lag": "1 ms"}, "lag"),
        ({"lag": 0}, "lag"),
        ({"response_time": "0 ms"}, "response_time"),
        ({"response_time": "nan s"}, "response_time"),
        ({"response_time": "5 bar"}, "response_time"),
    ],
)
def test_bad_lags_are_refused(kind: str, changes: Table, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_circuit(circuit(kind, changes, {"A": "1 bar", "X": "1 bar"}), standard_library(), "file.toml")
    assert "file.toml: components.valve" in str(refused.value)
    assert said in str(refused.value)
