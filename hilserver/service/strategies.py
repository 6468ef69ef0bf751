"""Bridge strategies of valves and actuators: those that are offered, and those that drive them now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hilserver.numerics.arrays import Floats
from hilserver.rig.available_strategies import cannot
from hilserver.rig.rig import Rig
from hilserver.tick.bridge.strategies import STRATEGY_NAMES, Strategy
from hilserver.tick.hybrid.displacement import DisplacementStrategy


def offered_strategies(rig: Rig, valve: str) -> tuple[str, ...]:
    """The strategies that can drive a valve."""
    return tuple(name for name in STRATEGY_NAMES if not cannot(rig.settings, rig.settings.valves[valve], name))


class Present(NamedTuple):
    """The strategies that drive valves and actuators, by their names."""

    valves: Mapping[str, str]
    actuators: Mapping[str, str]

    @classmethod
    def of(cls, rig: Rig, row: Floats) -> Present:
        """Those in a row."""
        return cls(present_strategies(rig, row), present_laws(rig, row))


def present_strategies(rig: Rig, row: Floats) -> dict[str, str]:
    """The strategy that drives each valve in this row."""
    numbers = {name: int(rig.layout.values(row, f"valve.{name}.strategy")) for name in rig.settings.valves}
    return {name: Strategy(number).name for name, number in numbers.items()}


def present_laws(rig: Rig, row: Floats) -> dict[str, str]:
    """The strategy that drives each actuator in this row."""
    numbers = {name: int(rig.layout.values(row, f"actuator.{name}.strategy")) for name in rig.settings.actuators}
    return {name: DisplacementStrategy(number).name for name, number in numbers.items()}
