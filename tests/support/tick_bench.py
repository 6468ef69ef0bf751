"""What the tests of the tick share: the bench's rig in a mode, a supplied circuit, a work cycle."""

from __future__ import annotations

from typing import Any

from rig_bench import Bench, bench_rig

from hilserver.tick.codes import Mode

CYCLE = {"inputs": {"flow": {"points": [["0 s", 0.0], ["10 ms", 1.0]]}}}
TANK = {"type": "tank", "ports": {"T": "t"}}
SUPPLIED: dict[str, Any] = {
    "components": {
        "tank": TANK,
        "pump": {"type": "flow_source", "ports": {"P": "s", "T": "t"}, "flow": "10 l/min", "command": 1},
        "line": {"type": "volume", "ports": {"P": "s"}, "volume": "1 l"},
        "relief": {
            "type": "relief_valve",
            "ports": {"P": "s", "T": "t"},
            "opening_pressure": "100 bar",
            "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
        },
        "throttle": {
            "type": "orifice",
            "ports": {"A": "s", "B": "rig.A"},
            "nominal_flow": {"flow": "20 l/min", "drop": "35 bar"},
        },
    },
    "nodes": {"s": {"pressure": "80 bar"}},
}


def bench(mode: int = Mode.SAFE, **changes: Any) -> Bench:
    """The bench's rig in this mode: p_A 50 bar, p_S 160 bar."""
    circuit, cycle = changes.pop("circuit", None), changes.pop("cycle", None)
    made = Bench(bench_rig(changes, circuit, cycle))
    made.raw.update(p_A=5.0, p_S=8.0)
    return made.run_to(mode)
