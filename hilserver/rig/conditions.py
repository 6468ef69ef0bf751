"""Conditions as a person writes them: ``p_A > 200 bar``."""

from __future__ import annotations

import re
from typing import NamedTuple

from hilserver.errors import shown
from hilserver.units import Quantity, quantity

_CONDITION = re.compile(r"\s*(?P<signal>\S+)\s*(?P<sign>[<>])(?P<equal>=?)\s*(?P<level>\S.*?)\s*")


class Condition(NamedTuple):
    """A condition: the name of a signal, +1 above the level or -1 below it, the level in SI."""

    signal: str
    direction: float
    level: Quantity

    def require_unit(self, unit: str) -> None:
        """Raise ValueError if the signal is measured in another unit than the level."""
        if unit != self.level.unit:
            wanted, given = unit or "no unit", self.level.unit or "no unit"
            raise ValueError(f"{self.signal} is measured in {wanted}, not in {given}.")


def condition(text: str) -> Condition:
    """Read a condition. Raises ValueError with the reason.

    >>> condition("p_A > 200 bar")
    Condition(signal='p_A', direction=1.0, level=Quantity(value=20000000.0, unit='Pa'))
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(f'{shown(text)} is not a condition; write it like "p_A > 200 bar".')
    if match["equal"]:
        raise ValueError(f"{shown(text)}: write > or <, not {match['sign']}=.")
    level = quantity(_number(match["level"]))
    return Condition(match["signal"], 1.0 if match["sign"] == ">" else -1.0, level)


def _number(text: str) -> str | float:
    """A level without a unit is a plain number."""
    try:
        return float(text)
    except ValueError:
        return text
