"""The plan: all constants of the tick, as tables."""

from __future__ import annotations

from typing import NamedTuple

from hilserver.numerics.arrays import Floats, Integers


class Plan(NamedTuple):
    """The tick's constants; columns as in :mod:`hilserver.tick.columns` and :mod:`hilserver.tick.bridge.columns`."""

    loop: Floats
    channel: Floats
    curve: Floats
    limit: Floats
    end: Floats
    input: Floats
    port: Floats
    valve: Floats
    output: Floats
    cylinder: Floats
    observer: Floats
    cycle: Floats
    layout: Integers
