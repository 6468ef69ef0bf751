"""The effects between a demanded and a real flow for which a strategy may compensate."""

from __future__ import annotations

from enum import IntEnum

from hilserver.numerics.compilable import compilable


class Compensates(IntEnum):
    """The effects, as bits. (Compiled code knows IntEnum, not IntFlag.)"""

    NOTHING = 0
    LAG = 1
    LEAKAGE = 2
    OVERLAP = 4
    SUPPLY_DROOP = 8
    DELAY = 16
    VOLUME_ERROR = 32
    PARAMETERS = 64


@compilable
def includes(effects: int, effect: int) -> bool:
    """Whether ``effect`` is one of the ``effects``."""
    return effects & effect != 0
