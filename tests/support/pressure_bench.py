"""For the tests of pressure valves: a valve fed by a flow source, and that a valve is passive."""

from __future__ import annotations

from typing import Any

import circuit_text
import numpy as np
from circuit_text import flow_source, tank, toml
from component_bench import evaluate

from hilserver.components.base import Component

COUNTERBALANCE: dict[str, Any] = {
    "opening_pressure": "65 bar",
    "override": [["20 bar", "10 l/min"], ["60 bar", "30 l/min"]],
    "pilot_ratio": 3,
    "nominal_flow": {"flow": "60 l/min", "drop": "12 bar"},
    "check": {"flow": "60 l/min", "drop": "6 bar", "cracking_pressure": "1 bar"},
    "settling_time": "20 ms",
}


def passive(valve: Component, ports: str, **values: float) -> dict[str, float]:
    """The valve's flows; fails if oil is lost or energy made."""
    flows = evaluate(valve, None, **values)
    q = np.array([flows.get(f"q_{port}", 0.0) for port in ports])
    p = np.array([values[f"p_{port}"] for port in ports])
    assert abs(q.sum()) <= 1e-15 * abs(q).sum()
    assert q @ p <= 1e-14 * abs(q).sum() * abs(p).max()
    return flows


def fed(valve: str, flow: float, volume: str = "1 l", **values: Any) -> str:
    """A circuit: a flow source feeds node P with a volume; the valve with these datasheet values; a tank at T."""
    return (
        f"{valve}\n{toml(values)}\n"
        + flow_source("P=P T=T", f"{flow} l/min")
        + circuit_text.volume("P", volume, "line")
        + tank()
    )
