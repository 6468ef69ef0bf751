"""The texts of a schematic: the room that they need, names and live values, in any unit and in any common font.

The texts are written by the browser in a font that the drawing does not know. Widths are therefore those of DejaVu
Sans, the widest of the common interface fonts; `schematic.css` sets the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

NAME, VALUE = 11.5, 11.0
"""Font sizes of names, of values and signals, and of port letters; a unit is a pixel at scale 1."""
LINE = 14.0
"""Distance between the base lines of two lines of text."""
ABOVE, BELOW = 9.0, 3.0
"""How far a text of values reaches above and below its base line."""
PRESSURE, FLOW, NUMBER = "−12345678 Pa", "−123.45 US gal/min", "−1234.567"
"""The widest live values of a node, of a port and of a signal."""
_NARROW = dict.fromkeys("ijlI.,:;'|! ()[]-/frt", 0.36) | {"r": 0.42, "f": 0.38, "t": 0.4}
_WIDE = dict.fromkeys("mMwWQO%@−·→", 0.98) | {"w": 0.82, "O": 0.8, "Q": 0.8, "−": 0.84, "·": 0.36}


def text_width(text: str, size: float = VALUE, *, bold: bool = False) -> float:
    """An upper bound of the width of a line of text; of the em of each character, DejaVu Sans by groups.

    >>> round(text_width("supply", 10.0), 1), round(text_width("supply", 10.0, bold=True), 1), text_width("")
    (35.6, 40.6, 0.0)
    """
    em = sum(
        _NARROW.get(character) or _WIDE.get(character) or (0.72 if character.isupper() else 0.64) for character in text
    )
    return em * size * (1.14 if bold else 1.0)


def label_width(name: str, flows: Sequence[str]) -> float:
    """Width of a component's label: its name, and a line for each of its live flows."""
    return max(text_width(name, NAME, bold=True), *(text_width(f"{flow} {FLOW}".strip()) for flow in flows), 0.0)


def signal_width(name: str) -> float:
    """Width of a signal's name with its live value."""
    return text_width(f"{name} {NUMBER}")


def node_width(name: str) -> float:
    """Width of a node's name with its live pressure."""
    return text_width(f"{name}  {PRESSURE}")
