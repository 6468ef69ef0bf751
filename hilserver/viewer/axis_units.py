"""The unit of an axis: one of those that are offered for its quantity, or any other of the same dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hilserver.errors import shown
from hilserver.units import SI_UNITS, to_si
from hilserver.web.display import CHOICES, Shown

MORE: Mapping[str, tuple[str, ...]] = {
    "N": ("N", "kN"),
    "N*m": ("N*m", "kN*m"),
    "W": ("W", "kW"),
    "rad": ("rad", "deg"),
    "rad/s": ("rad/s", "deg/s"),
    "1/s": ("1/s", "rpm"),
    "m/s^2": ("m/s^2",),
    "m^2": ("m^2", "cm^2", "mm^2"),
}
"""Units that are offered for quantities which the panel shows in their SI unit only."""
SI_OF_AXES = frozenset({*SI_UNITS, *CHOICES, *MORE} - {""})
"""The SI units whose axes can have another unit."""


def offered_units(si: str) -> list[str]:
    """The units to choose from for this SI unit; empty if there is only one.

    >>> offered_units("Pa"), offered_units("N"), offered_units("")
    (['bar', 'MPa', 'psi', 'Pa'], ['N', 'kN'], [])
    """
    return [choice.unit for choice in CHOICES[si]] if si in CHOICES else list(MORE.get(si, ()))


def axis_unit(unit: str, si: str) -> Shown:
    """A unit by its name, for values of this SI unit. Raises ValueError with the reason and what is possible.

    >>> axis_unit("MPa", "Pa").factor, axis_unit("mbar", "Pa").factor, axis_unit("m³/h", "m^3/s").unit
    (1000000.0, 100.0, 'm³/h')
    """
    for choice in CHOICES.get(si, ()):
        if choice.unit == unit:
            return choice
    offered = offered_units(si)
    such_as = f" Possible units: {', '.join(offered)}." if offered else ""
    try:
        one, two = to_si(f"1 {unit}", si), to_si(f"2 {unit}", si)
    except ValueError:
        raise ValueError(f"{shown(unit)} is not a unit for values in {si or 'no unit'}.{such_as}") from None
    if not (one > 0.0 and math.isclose(two, 2.0 * one)):  # a temperature with an offset
        raise ValueError(f"{shown(unit)} is not a multiple of {si}, as the unit of an axis must be.{such_as}")
    return Shown(unit, one, 3)
