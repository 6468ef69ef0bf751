"""Which rungs of the bridge's ladder a rig can climb, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable

from hilserver.rig.settings import CylinderSettings, RigSettings, ValveSettings
from hilserver.tick.bridge.ladder import STRATEGY_NAMES


def cannot(settings: RigSettings, valve: ValveSettings, strategy: str) -> str:
    """Why a strategy can't drive a valve; empty where it can."""
    if strategy == "flow_servo" and valve.flow is None:
        return "needs the flow: the channel that measures it (flow)"
    if strategy in ("feedback", "adaptive") and valve.flow is None and not cylinders_at(settings, valve):
        return "needs the flow: a channel (flow), or a cylinder at this port from whose motion it is estimated"
    return ""


def gains_nothing(settings: RigSettings, valve: ValveSettings, strategy: str) -> str:
    """Why a strategy does no better with a valve than the rung before it; empty where it may."""
    at_port = cylinders_at(settings, valve)
    if strategy == "null_region" and valve.overlap == 0.0:
        return "gains nothing over second_order: no overlap is known"
    if strategy == "supply_droop" and settings.channels[valve.supply].device is None:
        return "gains nothing: the supply pressure is a fixed value"
    if strategy == "prediction" and valve.delay == 0.0 and not at_port:
        return f"gains nothing: neither a delay nor a cylinder at port {valve.port} is known"
    if strategy in ("feedback", "adaptive") and valve.flow is None and all(s.position is None for s in at_port):
        return f"gains nothing: without a position at port {valve.port} the flow can't be told from the expected one"
    return ""


def possible(settings: RigSettings, names: Iterable[str] | None = None) -> list[str]:
    """The strategies that follow the virtual flow, from the lowest rung to the highest, and can drive all valves.

    ``names``: or these valves.
    """
    valves = [settings.valves[name] for name in (settings.valves if names is None else names)]
    return [n for n in STRATEGY_NAMES if n != "manual" and not any(cannot(settings, valve, n) for valve in valves)]


def cylinders_at(settings: RigSettings, valve: ValveSettings) -> list[CylinderSettings]:
    """The cylinders at a valve's port."""
    return [s for s in settings.cylinders.values() if valve.port in (s.port_A, s.port_B)]
