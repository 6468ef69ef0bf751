"""The look-ahead of a port that is served by the other edges of a valve: it receives what the spool passes there."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest
from rig_bench import BAR, L_MIN, bench_rig
from scipy.optimize import brentq
from valve_bench import ASYMMETRICAL, flow_of

from hilserver.rig.plan import first_row
from hilserver.tick.codes import Mode
from hilserver.tick.look_ahead import ahead_of, flow_into, spool_ahead
from hilserver.tick.program import work_array
from hilserver.tick.row import header

A, B = 0, 1
ONE_SPOOL: dict[str, Any] = {
    "devices": {"card": {"columns": ["A", "S", "Q", "B"]}},
    "channels": {"p_B": {"device": "card", "source": "B", "scale": {"raw": [0, 10], "value": ["0 bar", "200 bar"]}}},
    "ports": {"B": "p_B"},
    "valves": {"main": {**ASYMMETRICAL, "other_port": "B"}},
}


@pytest.mark.parametrize("q", [20 * L_MIN, 3 * L_MIN, -8 * L_MIN])
def test_the_other_port_receives_what_the_spool_passes(q: float) -> None:
    """Against the edges' flows and scipy's root: 1e-8 of the nominal flow.

    The spool is at the position that belongs to flow and pressure at the end of a step. The pressure of the next one
    does not move it.
    """
    rig = bench_rig(ONE_SPOOL)
    plan, work = rig.plan, work_array(rig.packed, rig.plan)
    row, v = first_row(rig.layout, plan, rig.packed), plan.valve[0]
    p, p_B, p_S, p_T = 60 * BAR, 30 * BAR, 160 * BAR, 2 * BAR
    row[v.column_S], row[v.column_T] = p_S, p_T
    header(row).mode = Mode.RUNNING
    spool = brentq(lambda U: flow_of(U, p, p_S, p_T, v, spool=U) - q, -1.0, 1.0, xtol=1e-14)
    ahead = ahead_of(plan, work, A)
    ahead.flow, ahead.p = q, p
    ahead.spool = spool_ahead(plan, row, work, A)
    ahead.p = p + 5 * BAR
    wanted = flow_of(-spool, p_B, p_S, p_T, v, spool=spool)
    assert ahead.spool == pytest.approx(spool, abs=1e-8)
    assert flow_into(plan, row, work, B, p_B, nan) == pytest.approx(wanted, abs=1e-8 * v.Q_nominal)
    assert spool_ahead(plan, row, work, B) == 0.0  # no valve drives this port
