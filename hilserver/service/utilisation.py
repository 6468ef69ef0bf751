"""Utilisation of the real valves: flow and speed that the virtual circuit requires, as fractions of the possible
ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.protocol.driven import Utilisation
from hilserver.rig.rig import Rig
from hilserver.rig.valves import NO_FLOW, spool_speed
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Mode
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import headers

root = np.vectorize(root_of_drop, otypes=[np.float64])


@dataclass(frozen=True)
class _Valve:
    """A valve: line of the plan, columns of the row, maximum speed in full strokes per second."""

    line: ValveRecord
    flow: int
    strategy: str
    speed: float


class UtilisationMeter:
    """The largest utilisation since the last `take`. Outside RUNNING, or when driven by hand, it is zero."""

    def __init__(self, rig: Rig) -> None:
        self._rate, self._layout = rig.settings.loop.rate, rig.layout
        self._valves = {
            name: _Valve(
                rig.plan.valve[i],
                rig.layout.column(f"valve.{name}.flow_virtual"),
                f"valve.{name}.strategy",
                min(spool_speed(v), v.slew),
            )
            for i, (name, v) in enumerate(rig.settings.valves.items())
        }
        self._largest = {name: np.zeros(4) for name in self._valves}
        self._last: dict[str, Floats] = {}

    def add(self, rows: Floats) -> None:
        """Evaluate the rows that follow those of the last call."""
        for name, valve in self._valves.items():
            if len(rows):
                self._add(name, valve, rows)

    def take(self) -> dict[str, Utilisation]:
        """The largest utilisation since the last call, by valve."""
        found = {
            name: Utilisation(**dict(zip(Utilisation.model_fields, largest.tolist(), strict=True)))
            for name, largest in self._largest.items()
        }
        self._largest = {name: np.zeros(4) for name in self._valves}
        return found

    def _add(self, name: str, valve: _Valve, rows: Floats) -> None:
        share = shares(valve.line, rows, valve.flow)
        by_hand = self._layout.values(rows, valve.strategy) == Strategy.manual
        share[(headers(rows)["mode"] != Mode.RUNNING) | by_hand] = 0.0
        now = np.column_stack([headers(rows)["tick"], np.clip(share, -1.0, 1.0)])
        segment = np.vstack([self._last.get(name, now[:1]), now])
        self._last[name] = now[-1:]
        ticks = np.maximum(np.diff(segment[:, 0]), 1.0)
        speed = np.diff(segment[:, 1]) * self._rate / ticks / valve.speed
        new = [share.max(), -share.min(), speed.max(), -speed.min()]
        self._largest[name] = np.fmax(self._largest[name], new) + 0.0  # no -0.0


def shares(line: ValveRecord, rows: Floats, flow: int) -> Floats:
    """Virtual flow divided by the flow of the real valve at full command, in each row; negative to the tank.

    Infinite without a pressure drop in its direction. Flows below 1 % of the nominal flow count as zero.
    """
    q, p = rows[:, flow], rows[:, line.column_p]
    to_port = q > 0.0
    drop = np.where(to_port, rows[:, line.column_S] - p, p - rows[:, line.column_T])
    passes = np.where(to_port, line.C_PA, line.C_AT) * root(np.maximum(drop, 0.0), line.p_tr)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(np.abs(q) < NO_FLOW * line.Q_nominal, 0.0, q / passes)
    return found
