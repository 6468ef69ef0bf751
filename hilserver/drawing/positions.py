"""The squares of a directional valve: which ports each position of the spool connects, and how this is drawn.

ISO 1219-1: one square for each position, the ports at the one without a command; arrows show the direction of flow, a
short bar a port that is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Edges = frozenset[str]
"""The edges that are open, like {"PA", "BT"}."""

TOP, BOTTOM, LEVEL = 40.0, 80.0, 60.0
"""Height of the squares, and of the line that joins ports in a centre position."""
OPEN = 0.02
"""Opening, of the nominal one, above which a connection is drawn: less is leakage."""
CENTRES: Mapping[str, Edges] = {
    "closed": frozenset(),
    "open": frozenset({"PA", "PB", "AT", "BT"}),
    "tandem": frozenset({"PT"}),
    "float": frozenset({"AT", "BT"}),
}
_PARALLEL, _CROSSED = frozenset({"PA", "BT"}), frozenset({"PB", "AT"})
_RESTS: Mapping[str, Mapping[str, tuple[Edges, Edges]]] = {
    "directional_valve_2_2": {
        "closed": (frozenset(), frozenset({"PA"})),
        "open": (frozenset({"PA"}), frozenset()),
    },
    "directional_valve_3_2": {
        "A-T": (frozenset({"AT"}), frozenset({"PA"})),
        "P-A": (frozenset({"PA"}), frozenset({"AT"})),
    },
    "directional_valve_4_2": {"crossed": (_CROSSED, _PARALLEL), "parallel": (_PARALLEL, _CROSSED)},
}
"""By type and ``rest``: the edges that are open at rest and with the command."""


def positions(kind: str, values: Mapping[str, Any]) -> dict[int, Edges]:
    """The open edges in each position of a valve (command -1, 0, 1) from its datasheet values; {} for another type.

    Curves (``openings``) go before ``rest`` and ``centre``; underlap opens edges in the centre position.
    """
    rests = _RESTS.get(kind)
    if rests is not None:
        at_rest, moved = rests.get(str(values.get("rest")), next(iter(rests.values())))
        found = {0: at_rest, 1: moved}
    elif kind in ("directional_valve_4_3", "load_sensing_valve", "proportional_valve_4_3", "servo_valve"):
        centre = CENTRES.get(str(values.get("centre", "closed")), frozenset())
        found = {-1: _CROSSED, 0: centre | _underlapped(values), 1: _PARALLEL}
    else:
        return {}
    curves = values.get("openings") or {}
    for edge, points in curves.items() if isinstance(curves, Mapping) else ():
        if isinstance(points, str) or not points:
            continue  # the formula of a parameter, whose value is not known here
        for spool, edges in found.items():
            found[spool] = edges | {edge} if _at(points, spool) > OPEN else edges - {edge}
    return found


def _underlapped(values: Mapping[str, Any]) -> Edges:
    """The edges that are open at null because the spool's lands are shorter than the ports."""
    of_P = values.get("overlap")
    of_T = of_P if values.get("overlap_T") is None else values["overlap_T"]
    pairs = ((of_P, ("PA", "PB")), (of_T, ("AT", "BT")))
    return frozenset(edge for of, both in pairs for edge in both if isinstance(of, int | float) and of < -OPEN)


def _at(points: Iterable[Iterable[float]], spool: float) -> float:
    """An opening curve at a position of the spool: linear between its points, constant beyond its ends."""
    curve = [(float(x), float(y)) for x, y in points]
    before = max((p for p in curve if p[0] <= spool), default=curve[0])
    after = min((p for p in curve if p[0] >= spool), default=curve[-1])
    if before[0] == after[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (spool - before[0]) / (after[0] - before[0])


def square(edges: Edges, x: Mapping[str, float], shift: float, *, directed: bool) -> str:
    """The lines in a square, as SVG; ``x``: of each port, ``shift``: of the square from the one with the ports.

    ``directed``: two ports that are connected are joined by an arrow; in a centre position they are by a line.
    """
    places = {port: at + shift for port, at in x.items() if port in "PTAB"}
    ends = {port: (20.0 if port in "AB" else 100.0) if not shift else _side(port) for port in places}
    lines, arrows = [], []
    groups = list(_connected(edges, places))
    pairs = [group for group in groups if len(group) == 2]
    crossed = len(pairs) == 2 and all(places[a] != places[b] for a, b in pairs)
    for group in groups:
        if len(group) == 1:
            lines.append(_closed(group[0], places[group[0]], ends[group[0]]))
        elif len(group) == 2 and "".join(group) != "PT" and (directed or crossed or len(edges) == 1):
            start, end = group
            if not shift:
                lines += [f"M{places[port]:g} {ends[port]:g}V{_side(port):g}" for port in group]
            arrows.append(_arrow((places[start], _side(start)), (places[end], _side(end))))
        else:
            lines += [f"M{places[port]:g} {ends[port]:g}V{LEVEL:g}" for port in group]
            across = sorted({places[port] for port in group})
            if len(across) > 1:
                lines.append(f"M{across[0]:g} {LEVEL:g}H{across[-1]:g}")
    return (f'<path d="{"".join(lines)}"/>' if lines else "") + "".join(arrows)


def _side(port: str) -> float:
    return TOP if port in "AB" else BOTTOM


def _connected(edges: Edges, ports: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Ports in groups that are connected; in the order in which oil flows through a pair."""
    groups = [{port} for port in ports]
    for edge in edges:
        one = next(group for group in groups if edge[0] in group)
        other = next(group for group in groups if edge[1] in group)
        if one is not other:
            one |= other
            groups.remove(other)
    for group in groups:
        yield tuple(sorted(group, key="PABT".index))


def _closed(port: str, x: float, end: float) -> str:
    """A closed port: a line that ends at a short bar."""
    y = TOP + 8.0 if port in "AB" else BOTTOM - 8.0
    return f"M{x:g} {end:g}V{y:g}M{x - 4:g} {y:g}h8"


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A line with a filled arrow head at its end."""
    (x, y), (u, v) = start, end
    length = ((u - x) ** 2 + (v - y) ** 2) ** 0.5
    a, b = (u - x) / length, (v - y) / length
    foot = (u - 6 * a, v - 6 * b)
    corners = ((u, v), (foot[0] - 2.3 * b, foot[1] + 2.3 * a), (foot[0] + 2.3 * b, foot[1] - 2.3 * a))
    head = "L".join(f"{round(p, 1):g} {round(q, 1):g}" for p, q in corners)
    line = f"M{x:g} {y:g}L{round(foot[0], 1):g} {round(foot[1], 1):g}"
    return f'<path d="{line}"/><path fill="currentColor" stroke="none" d="M{head}Z"/>'
