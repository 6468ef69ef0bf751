"""Where a circuit cavitates in a run: nodes without enough oil, pumps that do not fill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hilserver.circuit.engine import VOID_CAPACITANCE
from hilserver.circuit.model import Circuit, Placed
from hilserver.components.shared.suction import Suction
from hilserver.numerics.arrays import Floats
from hilserver.numerics.pump import filling
from hilserver.units import BAR


def cavitation(circuit: Circuit, series: Mapping[str, Floats], dt: float) -> list[str]:
    """A sentence for each node that was without enough oil, and for each pump that did not fill; ``dt``: tick, s."""
    return [
        *_voids(series, dt),
        *(text for placed in circuit.placed for text in _unfilled(circuit, placed, series, dt)),
    ]


def _voids(series: Mapping[str, Floats], dt: float) -> Iterator[str]:
    for name, content in series.items():
        if name.endswith(".content"):
            node = name.removesuffix(".content")
            wanting = series[f"{node}.p"] - content  # the exposed pressure is the vapour pressure there
            if (wanting > 0.0).any():
                largest = 1e3 * VOID_CAPACITANCE * float(wanting.max())
                yield f"{node}: cavitates for {dt * int((wanting > 0.0).sum()):.3g} s, up to {largest:.3g} l of void."


def _unfilled(circuit: Circuit, placed: Placed, series: Mapping[str, Floats], dt: float) -> Iterator[str]:
    """A pump draws from T; a machine with two directions from the port from which oil flows into it."""
    machine = placed.component
    if not isinstance(machine, Suction):
        return
    fluid = circuit.fluid_of(placed)
    p_in, p_v = machine.full_from(fluid), fluid.vapour_pressure
    for port in ("T",) if "T" in placed.ports else ("A", "B"):
        p = series[f"{placed.ports[port]}.p"]
        short = (p < p_in) & (series[f"{placed.name}.q_{port}"] <= 0.0)
        if short.any():
            least = filling(float(np.min(p[short])), p_v, p_in)
            yield (
                f"{placed.name}: cavitates for {dt * int(short.sum()):.3g} s: below {p_in / BAR:.3g} bar at {port} it "
                f"does not fill, here down to {100 * least:.0f} % of its displacement."
            )
