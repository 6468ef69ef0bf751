"""Which strategies a rig can use, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable

from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.tick.bridge.strategies import BRIDGING, Gains, Needs, Strategy


def cannot(settings: RigSettings, valve: ValveSettings, strategy: str) -> str:
    """Why a strategy can't drive a valve; empty if it can."""
    needs = Strategy[strategy].needs
    available = {
        Needs.NOTHING: True,
        Needs.FLOW_SENSOR: valve.flow is not None,
        Needs.FLOW_OR_CYLINDER: valve.flow is not None or bool(actuators_at(settings, valve)),
    }
    return "" if available[needs] else needs.value


def gains_nothing(settings: RigSettings, valve: ValveSettings, strategy: str) -> str:
    """Why a strategy does no better with a valve than the level before it; empty if it may."""
    at_port, gains = actuators_at(settings, valve), Strategy[strategy].gains
    available = {
        Gains.ALWAYS: True,
        Gains.OVERLAP: valve.overlap != 0.0,
        Gains.SUPPLY_SENSOR: settings.channels[valve.supply].is_measured,
        Gains.DELAY_OR_CYLINDER: valve.delay != 0.0 or bool(at_port),
        Gains.FLOW_OR_POSITION: valve.flow is not None or any(s.motion is not None for s in at_port),
    }
    return "" if available[gains] else gains.value.format(port=valve.port)


def possible(settings: RigSettings, names: Iterable[str] | None = None) -> list[str]:
    """The strategies that follow the virtual flow, from the lowest level to the highest, and can drive all valves.

    ``names``: or these valves.
    """
    valves = [settings.valves[name] for name in (settings.valves if names is None else names)]
    return [n for n in BRIDGING if not any(cannot(settings, valve, n) for valve in valves)]


def actuators_at(settings: RigSettings, valve: ValveSettings) -> list[CylinderSettings | MotorSettings]:
    """The cylinders and motors at a valve's port."""
    return [s for s in settings.hydraulic_actuators().values() if valve.port in (s.port_A, s.port_B)]
