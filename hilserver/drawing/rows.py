"""Orientation and row of each component, and the zone of each node's line.

Each hydraulic node is a horizontal line in a *zone*; between two zones is a *row* of symbols, both counted from the
lowest. A component is placed in the row above the nodes at its lower ports and below those at its upper ones.
"""

from __future__ import annotations

from hilserver.drawing.parts import DrawnComponent, DrawnComponents


class Rows:
    """``turns`` and ``row`` by component, ``zone`` by node (of tanks none), and the ``top`` row."""

    def __init__(self, parts: DrawnComponents) -> None:
        self.parts, self.tanks, self.pilots = parts.hydraulic, parts.tanks, parts.pilots
        self._driven = {
            node
            for part in self.parts
            if not part.kind or (part.mechanical and "drive" not in part.mechanical)
            for node in part.hydraulic.values()
        }
        self.turns = {part.name: self._turn(part) for part in self.parts}
        self.zone = self._zones()
        self.row = {part.name: self._row(part) for part in self.parts}
        self.top = max((*self.row.values(), *self.zone.values()), default=0)
        actuators = (part.name for part in self.parts if not part.kind or self._is_actuator(part))
        self.row |= dict.fromkeys(actuators, self.top)
        self._keep_within_reach()

    def _turn(self, part: DrawnComponent) -> str:
        """How a symbol is turned so that its lines run upwards, and those to the tank downwards."""
        sides = {part.symbol.side(port): node for port, node in part.hydraulic.items()}
        if "left" in sides and "right" in sides and not ("top" in sides and "bottom" in sides):
            return "down" if sides["right"] in self.tanks else "up"
        if list(sides) == ["left"]:
            return "down"
        top, bottom = sides.get("top"), sides.get("bottom")
        if top is None or bottom is None or part.mechanical:
            return ""
        upside_down = (top in self.tanks and bottom not in self.tanks) or (
            bottom in self._driven and top not in self._driven and len(part.hydraulic) < 5
        )
        return "over" if upside_down else ""

    def _sides(self, part: DrawnComponent, side: str) -> list[str]:
        """Nodes at one side of a part as it is turned, tanks left out."""
        turned = part.symbol.turned(self.turns[part.name])
        found = (node for port, node in part.hydraulic.items() if turned.side(port) == side)
        return [node for node in found if node not in self.tanks]

    def _zones(self) -> dict[str, int]:
        """The zone of each node: one above the highest node at the other side of a component."""
        above = self._nodes_above()
        order: list[str] = []
        open_ways: set[str] = set()

        def visit(node: str) -> None:
            open_ways.add(node)
            for high in list(above[node]):
                if high in open_ways:  # a circle: this way it is drawn downwards
                    del above[node][high]
                elif high not in order:
                    visit(high)
            open_ways.discard(node)
            order.append(node)

        sources = [node for part in self.parts if not self._sides(part, "bottom") for node in self._sides(part, "top")]
        for node in dict.fromkeys((*sources, *above)):
            if node not in order:
                visit(node)
        zone = dict.fromkeys(order, 1)
        for node in reversed(order):
            for high in above[node]:
                zone[high] = max(zone[high], zone[node] + 1)
        return zone

    def _nodes_above(self) -> dict[str, dict[str, None]]:
        """For each node other than a tank, the nodes at the upper side of the components above it."""
        nodes = (node for part in self.parts for node in part.hydraulic.values() if node not in self.tanks)
        above: dict[str, dict[str, None]] = {node: {} for node in nodes}
        for part in self.parts:
            for low in self._sides(part, "bottom"):
                above[low].update(dict.fromkeys(high for high in self._sides(part, "top") if high != low))
        return above

    def _row(self, part: DrawnComponent) -> int:
        low, high = self._sides(part, "bottom"), self._sides(part, "top")
        if low:
            return max(self.zone[node] for node in low)
        if high:
            return min(self.zone[node] for node in high) - 1
        return max((self.zone[node] for node in part.hydraulic.values() if node not in self.tanks), default=0)

    def _is_actuator(self, part: DrawnComponent) -> bool:
        return bool(part.mechanical) and not self._sides(part, "top") and "drive" not in part.mechanical

    def _keep_within_reach(self) -> None:
        """Keep each node's line within the zones of its ends."""
        zones: dict[str, list[int]] = {}
        for part in self.parts:
            for side, zone in (("top", self.row[part.name] + 1), ("bottom", self.row[part.name])):
                for node in self._sides(part, side):
                    zones.setdefault(node, []).append(zone)
            for node in (*self._sides(part, "left"), *self._sides(part, "right")):
                zones.setdefault(node, []).extend(() if zones.get(node) else (max(self.row[part.name], 1),))
        for node, found in zones.items():
            self.zone[node] = min(max(self.zone[node], min(found)), max(found))
