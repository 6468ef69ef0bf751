"""Bridge strategies of the real valves: those that a valve offers, and those that drive them now."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats
from hilserver.rig.available_strategies import cannot
from hilserver.rig.rig import Rig
from hilserver.tick.bridge.strategies import STRATEGY_NAMES, Strategy


def offered_strategies(rig: Rig, valve: str) -> tuple[str, ...]:
    """The strategies that can drive a valve."""
    return tuple(name for name in STRATEGY_NAMES if not cannot(rig.settings, rig.settings.valves[valve], name))


def present_strategies(rig: Rig, row: Floats) -> dict[str, str]:
    """The strategy that drives each valve in this row."""
    numbers = {name: int(rig.layout.values(row, f"valve.{name}.strategy")) for name in rig.settings.valves}
    return {name: Strategy(number).name for name, number in numbers.items()}
