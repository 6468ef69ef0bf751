"""Values as displayed: in the units that each user chooses. Values to and from the server are SI."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hilserver.protocol.published import Description
from hilserver.units import BAR, GAL_MIN, L_MIN, PSI, shown_value, unit_of_value


@dataclass(frozen=True)
class Shown:
    """A display unit: its factor to SI, and the number of decimal places."""

    unit: str
    factor: float
    digits: int


CHOICES: Mapping[str, tuple[Shown, ...]] = {
    "Pa": (
        Shown("bar", BAR, 1),
        Shown("MPa", 1e6, 3),
        Shown("psi", PSI, 0),
        Shown("Pa", 1.0, 0),
    ),
    "m^3/s": (
        Shown("l/min", L_MIN, 2),
        Shown("m³/h", 1 / 3600, 3),
        Shown("US gal/min", GAL_MIN, 2),
        Shown("m³/s", 1.0, 7),
    ),
    "m^3": (Shown("ml", 1e-6, 2), Shown("l", 1e-3, 3), Shown("m³", 1.0, 7)),
    "m": (Shown("mm", 1e-3, 1), Shown("m", 1.0, 4), Shown("in", 0.0254, 2)),
    "m/s": (Shown("mm/s", 1e-3, 1), Shown("m/s", 1.0, 4), Shown("in/s", 0.0254, 2)),
    "s": (Shown("µs", 1e-6, 1), Shown("ms", 1e-3, 4), Shown("s", 1.0, 7)),
}
"""The display units for each SI unit; the first is the default."""

QUANTITIES = {"Pa": "pressure", "m^3/s": "flow", "m^3": "volume", "m": "length", "m/s": "speed", "s": "time"}


@dataclass
class Units:
    """One user's choice of units."""

    chosen: dict[str, str] = field(default_factory=dict)

    def of(self, si: str) -> Shown:
        """The unit in which values of this SI unit are displayed."""
        choices = CHOICES.get(si)
        if choices is None:
            return Shown(si.replace("^3", "³").replace("^2", "²"), 1.0, 3)
        return next((shown for shown in choices if shown.unit == self.chosen.get(si)), choices[0])

    def number(self, value: float | None, si: str, finer: int = 0) -> str:
        """A value without its unit; a dash if there is none. ``finer``: by how many decimal places.

        >>> Units().number(1.403e7, "Pa"), Units({"Pa": "MPa"}).number(1.403e7, "Pa"), Units().number(None, "Pa")
        ('140.3', '14.030', '–')
        """
        if value is None or not math.isfinite(value):
            return "–"
        shown = self.of(si)
        return _with_digits(value / shown.factor, shown.digits + finer)

    def text(self, value: float | None, si: str, finer: int = 0) -> str:
        """A value with its unit; a dash if there is none. ``finer``: by how many decimal places.

        >>> Units().text(-1e-3, "m^3/s"), Units().text(None, "m^3/s"), Units().text(1.234e-5, "m", finer=2)
        ('−60.00 l/min', '–', '0.012 mm')
        """
        number = self.number(value, si, finer)
        return number if number == "–" else f"{number} {self.of(si).unit}".strip()


def percent(share: float | None) -> str:
    """A fraction in per cent; a dash if there is none.

    >>> percent(-0.334), percent(-1e-9), percent(None)
    ('−33.4 %', '0.0 %', '–')
    """
    return "–" if share is None else f"{_with_digits(100 * share, 1)} %"


def _with_digits(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text) != 0 else text.replace("-", "")


def unit_of(channel: str, description: Description | None) -> str:
    """The SI unit of a channel: as described, or derived from the name for values of the virtual circuit.

    >>> unit_of("circuit.supply.p", None), unit_of("p_A", None)
    ('Pa', '')
    """
    if description is not None and channel in description.channels:
        return description.channels[channel].unit
    return unit_of_value(channel.removeprefix("circuit.")) if channel.startswith("circuit.") else ""


def label(channel: str) -> str:
    """A channel's display name.

    >>> label("circuit.supply.p"), label("valve.main.flow_virtual"), label("p_A")
    ('supply p (virtual)', 'main virtual flow', 'p_A')
    >>> label("actuator.table.position"), label("actuator.table.specimen_mass")
    ('table displacement to follow', 'table specimen mass')
    """
    first, _, rest = channel.partition(".")
    if first == "circuit" and rest:
        return f"{rest.removeprefix('rig.').replace('.', ' ')} (virtual)"
    if first in ("valve", "actuator") and rest:
        driven, _, word = rest.rpartition(".")
        shown = _WORDS.get(word, word) if first == "valve" else _OF_AN_ACTUATOR.get(word, word.replace("_", " "))
        return f"{driven} {shown}"
    return f"{first} {rest.replace('.', ' ')}".strip()


_WORDS = {
    "flow_virtual": "virtual flow",
    "flow_measured": "real flow",
    "demand": "demanded command",
    "command": "command",
    "saturation": "saturation",
}

_OF_AN_ACTUATOR = {
    "position": "displacement to follow",
    "velocity": "velocity to follow",
    "acceleration": "acceleration to follow",
    "measured": "measured displacement",
    "estimate": "estimated displacement",
    "error": "error",
    "demand": "demanded command",
    "force": "force on the virtual circuit",
    "force_measured": "measured force",
    "force_estimate": "estimated force",
    "disturbance": "offset of the command",
}


def in_practice(value: float, unit: str) -> str:
    """A property of a valve or actuator in the units of its datasheet.

    >>> in_practice(1e-3, "m^3/s"), in_practice(0.00123, "s"), in_practice(-0.0123, "")
    ('60 l/min', '1.23 ms', '-0.0123')
    """
    return f"{1e3 * value:.3g} ms" if unit == "s" else shown_value(value, unit, 4) if unit else f"{value:.4f}"
