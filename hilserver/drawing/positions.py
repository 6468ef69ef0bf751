"""The squares of a directional valve: which ports each position of the spool connects, and how this is drawn.

ISO 1219-1: one square for each position, the ports at the one without a command; arrows show the direction of flow, a
short bar a port that is closed, two arcs that face each other a path that is throttled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import hypot
from typing import Any

from hilserver.units import to_si

Edges = Mapping[str, float]
"""The edges that are open, and how far, of the nominal opening: {"PA": 1.0, "BT": 0.1}."""

TOP, BOTTOM, LEVEL = 40.0, 80.0, 60.0
"""Height of the squares, and of the line that joins ports in a centre position."""
OPEN = 0.02
"""Opening, of the nominal one, above which a connection is drawn: less is leakage."""
THROTTLED = 0.3
"""Opening up to which a connection is drawn with a throttle: at the same flow it costs 11 times the nominal drop."""
_CENTRES = {"closed": (), "open": ("PA", "PB", "AT", "BT"), "tandem": ("PT",), "float": ("AT", "BT")}
_SHUT: Edges = {}
_PARALLEL, _CROSSED = {"PA": 1.0, "BT": 1.0}, {"PB": 1.0, "AT": 1.0}
_RESTS: Mapping[str, Mapping[str, tuple[Edges, Edges]]] = {
    "directional_valve_2_2": {
        "closed": (_SHUT, {"PA": 1.0}),
        "open": ({"PA": 1.0}, _SHUT),
    },
    "directional_valve_3_2": {
        "A-T": ({"AT": 1.0}, {"PA": 1.0}),
        "P-A": ({"PA": 1.0}, {"AT": 1.0}),
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
        found = {0: dict(at_rest), 1: dict(moved)}
    elif kind in ("directional_valve_4_3", "load_sensing_valve", "proportional_valve_4_3", "servo_valve"):
        found = {-1: dict(_CROSSED), 0: _at_null(values), 1: dict(_PARALLEL)}
    else:
        return {}
    curves = values.get("openings") or {}
    for edge, points in curves.items() if isinstance(curves, Mapping) else ():
        if isinstance(points, str) or not points:
            continue  # the formula of a parameter, whose value is not known here
        for spool, edges in found.items():
            edges[edge] = _at(points, spool)
    return {spool: {edge: y for edge, y in edges.items() if y > OPEN} for spool, edges in found.items()}


def _at_null(values: Mapping[str, Any]) -> dict[str, float]:
    """Openings in the centre position: of what it connects, and where the spool's lands are shorter than the ports."""
    connected = _CENTRES.get(str(values.get("centre", "closed")), ())
    edges = dict.fromkeys(connected, _number(values.get("centre_opening"), 1.0))
    of_P = _number(values.get("overlap"), 0.0)
    for of, both in ((of_P, ("PA", "PB")), (_number(values.get("overlap_T"), of_P), ("AT", "BT"))):
        if of < 0.0:  # an edge opens linearly, from overlap to full travel
            edges |= {edge: max(edges.get(edge, 0.0), -of / (1.0 - of)) for edge in both}
    return edges


def _number(value: object, otherwise: float) -> float:
    """A value like 0.03 or "3 %"; what is not known here, like the formula of a parameter, is the other one."""
    if isinstance(value, str):
        try:
            return to_si(value, "")
        except ValueError:
            return otherwise
    return float(value) if isinstance(value, int | float) else otherwise


def _at(points: Iterable[Iterable[object]], spool: float) -> float:
    """An opening curve at a position of the spool: linear between its points, constant beyond its ends."""
    curve = [(_number(x, 0.0), _number(y, 1.0)) for x, y in points]
    before = max((p for p in curve if p[0] <= spool), default=curve[0])
    after = min((p for p in curve if p[0] >= spool), default=curve[-1])
    if before[0] == after[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (spool - before[0]) / (after[0] - before[0])


def square(edges: Edges, x: Mapping[str, float], shift: float, *, directed: bool) -> str:
    """The lines in a square, as SVG; ``x``: of each port, ``shift``: of the square from the one with the ports.

    ``directed``: two ports that are connected are joined by an arrow; in a centre position they are by a line.
    Throttles are on arrows, and on the lines of ports all of whose edges are throttled.
    """
    places = {port: at + shift for port, at in x.items() if port in "PTAB"}
    ends = {port: (20.0 if port in "AB" else 100.0) if not shift else _side(port) for port in places}
    lines, others = [], []
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
            way = (places[start], _side(start)), (places[end], _side(end))
            others.append(_arrow(*way))
            if _throttled(start, edges):
                others.append(_throttle(*way, 0.3 if crossed else 0.5))
        else:
            lines += [f"M{places[port]:g} {ends[port]:g}V{LEVEL:g}" for port in group]
            across = sorted({places[port] for port in group})
            if len(across) > 1:
                lines.append(f"M{across[0]:g} {LEVEL:g}H{across[-1]:g}")
            throttled = [port for port in "ABPT" if port in group and _throttled(port, edges)]
            for port in throttled[: len(group) - 1]:  # between any two of them one throttle is enough
                others.append(_throttle((places[port], _side(port)), (places[port], LEVEL), 0.5))
    return (f'<path d="{"".join(lines)}"/>' if lines else "") + "".join(others)


def _side(port: str) -> float:
    return TOP if port in "AB" else BOTTOM


def _throttled(port: str, edges: Edges) -> bool:
    """Whether all that a port is connected to is throttled."""
    return all(opening <= THROTTLED for edge, opening in edges.items() if port in edge)


def _connected(edges: Collection[str], ports: Iterable[str]) -> Iterator[tuple[str, ...]]:
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
    length = hypot(u - x, v - y)
    a, b = (u - x) / length, (v - y) / length
    foot = (u - 6 * a, v - 6 * b)
    corners = ((u, v), (foot[0] - 2.3 * b, foot[1] + 2.3 * a), (foot[0] + 2.3 * b, foot[1] - 2.3 * a))
    head = "L".join(f"{round(p, 1):g} {round(q, 1):g}" for p, q in corners)
    line = f"M{x:g} {y:g}L{round(foot[0], 1):g} {round(foot[1], 1):g}"
    return f'<path d="{line}"/><path fill="currentColor" stroke="none" d="M{head}Z"/>'


def _throttle(start: tuple[float, float], end: tuple[float, float], along: float) -> str:
    """Two arcs that face each other across a line; ``along``: where on it."""
    (x, y), (u, v) = start, end
    length = hypot(u - x, v - y)
    a, b = (u - x) / length, (v - y) / length

    def place(ahead: float, aside: float) -> str:
        at = (x + (u - x) * along + ahead * a - aside * b, y + (v - y) * along + ahead * b + aside * a)
        return " ".join(f"{round(number, 1):g}" for number in at)

    arcs = (f"M{place(-5, 5 * side)}Q{place(0, 0.5 * side)} {place(5, 5 * side)}" for side in (-1, 1))
    return f'<path d="{"".join(arcs)}"/>'
