"""Charts of the editor: characteristic curves of a component, and a trial run."""

from __future__ import annotations

from typing import Any

from hilserver.editor.curves import CharacteristicCurves
from hilserver.editor.trial import TrialPanel
from hilserver.web.display import Units

COLOURS = ("#0f4c81", "#b45309", "#15803d", "#7c3aed", "#b91c1c", "#0e7490", "#a16207", "#be185d")
_GRID = {"left": 55, "right": 20, "top": 34, "bottom": 42}


def characteristic_chart(found: CharacteristicCurves) -> dict[str, Any]:
    """The options of ECharts for characteristic curves; the datasheet's own points are drawn as dots."""
    series = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "data": [[float(x), float(y)] for x, y in zip(found.x, curve, strict=True)],
        }
        for name, curve in found.curves.items()
    ]
    if found.given:
        series.append({"name": "datasheet", "type": "scatter", "data": [list(point) for point in found.given]})
    return {**_chart(found.across, found.along), "series": series}


def trial_chart(panel: TrialPanel, units: Units) -> dict[str, Any]:
    """The options of ECharts for one quantity of a trial run."""
    shown = units.of(panel.unit)
    series = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "data": [[time, value / shown.factor] for time, value in line],
        }
        for name, line in panel.lines.items()
    ]
    label = f"{panel.label} [{shown.unit}]" if shown.unit else panel.label
    return {**_chart("time [s]", label), "series": series}


def _chart(across: str, along: str) -> dict[str, Any]:
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": _GRID,
        "legend": {"top": 0, "type": "scroll"},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "value", "name": across, "nameLocation": "middle", "nameGap": 26},
        "yAxis": {"type": "value", "name": along, "nameLocation": "middle", "nameGap": 42, "scale": True},
    }
