"""One signal over another, with the datasheet curve of a component behind the points."""

from __future__ import annotations

from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.simulation.characteristics import KINDS as CURVES
from hilserver.simulation.characteristics import component_curve
from hilserver.viewer.overlay import DrawnSignal

MOST_POINTS = 20_000
"""Points of an X/Y plot; of more samples, every n-th is drawn."""
CURVE_COLOUR = "#b45309"
MARGIN = 0.05
"""By which a datasheet curve goes beyond the points, as a fraction of their range from 0."""


def xy_chart(
    one: DrawnSignal, other: DrawnSignal, span: tuple[float, float], component: str = ""
) -> tuple[str, dict[str, Any]]:
    """One signal over another: a note, and the options of the chart.

    ``component``: its datasheet curve is drawn behind the points. Raises HilserverError if there are none.
    """
    times, across = one.samples(*span)
    up = values_at(times, *other.samples(*span))
    every = -(-len(times) // MOST_POINTS) or 1
    points = [
        [float(x), float(y)]
        for x, y in zip(across[::every], up[::every], strict=True)
        if np.isfinite(x) and np.isfinite(y)
    ]
    if not points:
        raise HilserverError("The two signals have no samples at the same time in this span.")
    axis = {"type": "value", "scale": True, "nameLocation": "middle", "nameGap": 32}
    options = {
        "animation": False,
        "grid": {"left": 80, "right": 20, "top": 16, "bottom": 48},
        "xAxis": {**axis, "name": _titled(one)},
        "yAxis": {**axis, "name": _titled(other), "nameGap": 56},
        "series": [{"type": "line", "showSymbol": False, "lineStyle": {"width": 1}, "data": points}],
    }
    note = f"{len(points)} points" + (f", 1 of every {every} samples." if every > 1 else ", every sample.")
    if component:
        try:
            note += _add_curve(options, one, other, span[0], component)
        except HilserverError as error:
            note += f" No datasheet curve: {error}"
    return note, options


def _add_curve(options: dict[str, Any], one: DrawnSignal, other: DrawnSignal, begin: float, component: str) -> str:
    """Draw the datasheet curve of a component behind the points, from 0 on; returns what it is, in words."""
    circuit, points = one.opened.log.circuit_at(begin - one.offset), np.array(options["series"][0]["data"])
    turned = (one.si, other.si) not in CURVES and (other.si, one.si) in CURVES
    across, up, place = (other, one, 1) if turned else (one, other, 0)
    found = [0.0, *(points[:, place] * across.shown.factor)]
    low, high = float(min(found)), float(max(found))
    margin = MARGIN * (high - low)
    own = f"circuit.{component}."
    value = up.signal.removeprefix(own) if up.signal.startswith(own) else ""
    known = component_curve(
        circuit, component, (across.si, up.si), low - margin * (low < 0.0), high + margin * (high > 0.0), value
    )
    x, y = known.x / across.shown.factor, known.y / up.shown.factor
    data = np.column_stack([y, x] if turned else [x, y]).tolist()
    line = {"width": 3, "type": "dashed"}
    curve = {"type": "line", "name": component, "showSymbol": False, "lineStyle": line, "color": CURVE_COLOUR}
    options["series"].insert(0, {**curve, "z": 1, "data": data})
    return f" Dashed: {component} by its datasheet, at rest ({known.conditions})."


def values_at(times: Floats, other_times: Floats, values: Floats) -> Floats:
    """The values at these times: as they are on the same time base, else interpolated between samples."""
    if len(times) == len(other_times) and np.array_equal(times, other_times):
        return values
    if len(other_times) == 0:
        return np.full(len(times), np.nan)
    return np.interp(times, other_times, values, left=np.nan, right=np.nan)


def _titled(curve: DrawnSignal) -> str:
    return f"{curve.name}, {curve.shown.unit}" if curve.shown.unit else curve.name
