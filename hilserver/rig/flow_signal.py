"""The flow-signal curve of a real valve whose flow is not proportional to its opening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hilserver.components.shared.fitting import flow_signal_table
from hilserver.numerics.arrays import Floats
from hilserver.tick.flow_signal import BENDS


@dataclass(frozen=True)
class FlowSignal:
    r"""A valve's spool positions, and the openings of a linear valve that passes the same flow at them.

    Both from 0 to 1, rising. The datasheet's curve begins with the overlap o, without flow, and has the flow
    :math:`f_1` (of that at full signal) at its next point :math:`s_1`. The linear valve has the overlap

    .. math:: \omega = \frac{r f_1}{1 - r (1 - f_1)}, \qquad r = o / s_1

    so that the curve of the openings is a straight line from 0 to the first point, and passes through
    :math:`\omega + (1 - \omega) f` at all others: no bend is needed at the overlap, which `adaptive` moves.
    """

    spool: tuple[float, ...]
    opening: tuple[float, ...]
    overlap: float

    @property
    def is_linear(self) -> bool:
        """Whether the flow is proportional to the opening past the overlap."""
        return len(self.spool) == 2 and self.opening[1] == self.spool[1]

    @property
    def first_slope(self) -> float:
        """Change of the opening with the spool's position near the middle."""
        return self.opening[1] / self.spool[1]

    @property
    def closed_to(self) -> float:
        """The overlap, as a position of the spool."""
        return float(self.spool_for(self.overlap))

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> FlowSignal:
        """From the points (signal, flow) of a datasheet. Raises ValueError for points that are no such curve."""
        table = flow_signal_table(points, 1.0)
        signal, flow = np.array(table.x), np.array(table.y)
        if flow[0] > 0.0 or signal[0] < 0.0:
            raise ValueError("flow_signal: begin with no flow, at the signal where the valve opens: 0 or the overlap")
        if signal[-1] != 1.0:
            raise ValueError("flow_signal: the last point must be at signal 1 (full signal)")
        closed = int(np.flatnonzero(flow == 0.0)[-1])
        signal, share = signal[closed:], flow[closed:] / flow[-1]
        if np.any(np.diff(share) <= 0.0):
            raise ValueError("flow_signal: the flow must rise with the signal: leave out points where it does not")
        if len(share) - 2 > BENDS:
            raise ValueError(f"flow_signal: at most {BENDS} points between opening and full signal: leave some out")
        ratio = signal[0] / signal[1]
        overlap = ratio * share[1] / (1.0 - ratio * (1.0 - share[1]))
        opening = [0.0, *(overlap + (1.0 - overlap) * share[1:])]
        return cls((0.0, *signal[1:].tolist()), tuple(map(float, opening)), float(overlap))

    def linear_opening(self, spool: Floats | float) -> Floats:
        """The opening of the linear valve at these spool positions, -1 … 1."""
        return np.asarray(np.sign(spool) * np.interp(np.abs(spool), self.spool, self.opening))

    def spool_for(self, opening: Floats | float) -> Floats:
        """The inverse of `linear_opening`."""
        return np.asarray(np.sign(opening) * np.interp(np.abs(opening), self.opening, self.spool))


def linear_valve(overlap: float) -> FlowSignal:
    """The curve of a valve whose flow is proportional to its opening past the overlap."""
    return FlowSignal((0.0, 1.0), (0.0, 1.0), overlap)
