"""Design of the displacement bridge for a known linear structure: see :mod:`hilserver.displacement.design`."""

from __future__ import annotations

from collections.abc import Mapping

from hilserver.displacement.actuator import Actuator
from hilserver.displacement.design import USUAL, Followed, Tuning, bridge_for
from hilserver.displacement.sensors import FORCE_DELAY, Sensors
from hilserver.hybrid.checks import check_design
from hilserver.hybrid.structure import Structure
from hilserver.tick.hybrid.displacement import DelayCompensation, DisplacementBridge, DisplacementStrategy


def design_bridge(
    structure: Structure,
    actuator: Actuator,
    spread: Mapping[str, float],
    sensors: Sensors,
    dt: float,
    strategy: DisplacementStrategy,
    tuning: Tuning = USUAL,
) -> DisplacementBridge:
    """The bridge of an actuator at nominal parameters; ``spread``: their standard deviations.

    A strategy that does not track parameters gets no ``spread``. Raises ConfigurationError for values that no rig has,
    and HilserverError where there is no stable regulator, or where the force is too late for the strategy.
    """
    check_design(structure, actuator, spread, sensors, dt, strategy)
    lead = FORCE_DELAY * dt + sensors.force_delay if strategy.compensation is DelayCompensation.LEAD else 0.0
    followed = Followed(structure.motion(), strategy.compensation, lead)
    return bridge_for(followed, actuator, spread if strategy.tracks else {}, sensors, dt, tuning)
