"""The table ``drawing`` of a circuit: where its parts stand in the schematic, as far as somebody has said so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hilserver.errors import Problem, did_you_mean, shown

DRAWING = "drawing"
"""The table's name: ``pump = [4, 12]`` are the columns and rows from the upper left corner of the drawing."""
LAST = 1000
"""The last column and row."""


def is_place(value: object) -> bool:
    """Whether a value is a place: column and row, two whole numbers.

    >>> is_place([4, 12]), is_place([4, -1]), is_place([4.5, 12])
    (True, False, False)
    """
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LAST for number in value)
    )


def wrong_places(table: Mapping[str, Any], file: str, inside: str = "") -> Iterator[Problem]:
    """What is wrong with the places in a circuit's table; ``inside``: what leads to it from the beginning of its
    file."""
    places = table.get(DRAWING, {})
    if not isinstance(places, Mapping):
        yield Problem(f"{shown(places)} is not a table of places such as pump = [4, 12].", inside + DRAWING, file)
        return
    known = set(drawn_names(table))
    for name, value in places.items():
        key = f"{inside}{DRAWING}.{name}"
        if name not in known:
            yield Problem("there is no such component." + did_you_mean(name, known), key, file)
        elif not is_place(value):
            text = f"{shown(value)} is not a place: give column and row, whole numbers from 0 to {LAST}, like [4, 12]."
            yield Problem(text, key, file)


def drawn_names(table: Mapping[str, Any]) -> Iterator[str]:
    """The names of what a drawing shows: components, and the ports of the machine to which they connect."""
    components = table.get("components", {})
    for name, part in components.items() if isinstance(components, Mapping) else ():
        yield str(name)
        ports = part.get("ports", {}) if isinstance(part, Mapping) else {}
        for node in ports.values() if isinstance(ports, Mapping) else ():
            if isinstance(node, str) and node.startswith("rig."):
                yield node


def places_kept(places: object, components: Mapping[str, Any]) -> dict[str, Any]:
    """The places of what is still there in a circuit without sub-circuits."""
    known = set(drawn_names({"components": components}))
    return {name: place for name, place in places.items() if name in known} if isinstance(places, Mapping) else {}
