"""For the tests of directional valves: valves with usual values, their flows, and circuits to test them in."""

from __future__ import annotations

from typing import Any

import numpy as np
from component_bench import BAR, L_MIN, Bench
from hypothesis import strategies as st

from hilserver.components.base import Component, Fluid, Table
from hilserver.components.load_sensing_valve import LoadSensingValve

openings = st.floats(0.0, 1.0)
POINT = {"flow": "40 l/min", "drop": "5 bar"}
EDGE = {**POINT, "per": "edge"}


def sensing(**values: Any) -> LoadSensingValve:
    return LoadSensingValve.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


def flows(valve: Component, U: float, **bar: float) -> dict[str, float]:
    """Flows into the ports in l/min with the spool at U and pressures in bar (0 where not given)."""
    known: dict[str, Any] = {"U": U, **{f"p_{port}": 0.0 for port in valve.hydraulic}}
    known |= {f"p_{port}": p * BAR for port, p in bar.items()}
    for name, value in valve.parameters(Fluid()).items():
        known[name] = (np.array([len(value.x), *value.x, *value.y]), 0) if isinstance(value, Table) else value
    (kernel,) = (k for k in valve.kernels if "q_P" in k.results)
    results = dict(zip(kernel.results, kernel.function(*(known[name] for name in kernel.arguments)), strict=True))
    return {name.removeprefix("q_"): q / L_MIN for name, q in results.items() if name.startswith("q_")}


def fed(lines: str, ports: str = "") -> str:
    """A four-way valve to tank and two lines of 0.5 l at 50 bar, without a supply."""
    return f"""
        [nodes]
        A = {{ pressure = "50 bar" }}
        B = {{ pressure = "50 bar" }}
        [components.valve]
        {lines}
        ports = {{ P = "P", T = "T", A = "A", B = "B"{ports} }}
        command = "u"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar", per = "edge" }}
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        [components.A_line]
        type = "volume"
        ports = {{ P = "A" }}
        volume = "0.5 l"
        [components.B_line]
        type = "volume"
        ports = {{ P = "B" }}
        volume = "0.5 l"
        """


SUPPLY = """
        [components.supply]
        type = "pressure_source"
        ports = { P = "P" }
        command = 1
        pressure = "140 bar"
        """


def spool(lines: str, kind: str = "directional_valve_4_3") -> Bench:
    """A valve alone between supply and tank; ``u`` is its command."""
    ports = {"directional_valve_2_2": 'P = "P", A = "T"', "directional_valve_3_2": 'P = "P", A = "T", T = "T"'}
    per = ', per = "edge"' if "4_" in kind else ""
    bench = Bench(
        f"""
        [components.valve]
        type = "{kind}"
        {lines}
        ports = {{ {ports.get(kind, 'P = "P", T = "T", A = "P", B = "T"')} }}
        command = "u"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar"{per} }}
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        {SUPPLY}
        """
    )
    bench.run(1e-4, 1e-4)  # a command of 0 is known to have been there before the first change
    return bench
