"""The servo valve of the bridge's tests as the plan describes it, and the flow that the real one passes."""

from __future__ import annotations

from typing import Any

from rig_bench import bench_rig

from hilserver.numerics.valve import edge_flow, leakage_fade
from hilserver.tick.plan import ValveRecord

# An asymmetrical valve: the A-T edge passes half of what P-A passes. Leakage 1 l/min at 70 bar over one edge at null.
ASYMMETRICAL = {
    "nominal_flow_to_tank": {"flow": "30 l/min", "drop": "35 bar", "per": "edge"},
    "leakage": {"flow": "1 l/min", "drop": "70 bar", "per": "edge"},
}


def valve(**changes: Any) -> ValveRecord:
    """The plan's line of the bench's servo valve."""
    line: ValveRecord = bench_rig({"valves": {"main": changes}}).plan.valve[0]
    return line


def flow_of(opening: float, p: float, p_S: float, p_T: float, v: ValveRecord, spool: float | None = None) -> float:
    """Flow into the port that the real valve passes: its two edges, and its leakage at ``spool`` where given."""
    share = leakage_fade(abs(spool), v.leak_gone) if spool is not None else 0.0
    from_supply = edge_flow(opening, p_S - p, v.C_PA, share * v.leak_PA, v.p_tr)
    return from_supply - edge_flow(-opening, p - p_T, v.C_AT, share * v.leak_AT, v.p_tr)
