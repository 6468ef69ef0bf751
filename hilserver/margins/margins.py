"""Capacity, delay and servo margins of a rig's bridges together: calculated, and as warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from hilserver.circuit.program import Program
from hilserver.margins import actuators, capacity, delay, flow_servo, supply_flow
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.machine import Pause, no_pause, real_pressures
from hilserver.tick.bridge.kinds import FLOW_SERVO
from hilserver.tick.bridge.strategies import Strategy

SENSOR_ERROR = 1e5
"""Pa by which a supply that is off may seem to be below its tank."""


@dataclass(frozen=True)
class RigMargins:
    """The margins of a circuit on a rig."""

    capacity: capacity.CapacityResult
    delay: delay.DelayResult
    servos: tuple[flow_servo.ServoMargins, ...]
    swapped: tuple[str, ...]
    """Valves whose supply pressure is below that of their tank."""
    pumps: tuple[str, ...] = ()
    """Pumps of simulated drives that are too small, in words."""
    actuators: tuple[actuators.ActuatorMargin, ...] = ()

    def with_laws(self, laws: Mapping[str, str]) -> RigMargins:
        """The same with these strategies of the actuators, by their names."""
        present = (replace(each, strategy=laws.get(each.name, each.strategy)) for each in self.actuators)
        return replace(self, actuators=tuple(present))

    def warnings(self, strategies: Collection[str]) -> Iterator[str]:
        """Insufficient margins, in words; delay margins, and those of the flow servo, with these strategies."""
        for name in self.swapped:
            yield f"valves.{name}: the supply pressure is below that of the tank: are supply and tank swapped?"
        yield from capacity.warnings(self.capacity)
        yield from self.pumps
        yield from delay.warnings(self.delay, strategies)
        if any(Strategy[strategy].kind is FLOW_SERVO for strategy in strategies):
            yield from flow_servo.warnings(self.servos)
        yield from actuators.warnings(self.actuators)

    def refusals(self, rig: Rig, strategies: Collection[str]) -> Iterator[str]:
        """Why the rig must not be armed with these strategies, in words."""
        yield from delay.refusals(rig, self.delay, strategies)
        yield from actuators.refusals(self.actuators)


def margins(rig: Rig, program: Program, row: Floats | None = None, pause: Pause = no_pause) -> RigMargins:
    """Calculate the margins, which takes a second or two. ``row``: of a running rig, for its supply pressures."""
    capacities = capacity.capacity_margins(rig, program, row, pause)
    delays = delay.delay_margins(rig, program, row, pause)
    if (point := delays.fastest()) is not None and point.fastest > 0.0:
        coupled = capacity.SignificantFrequency(
            f"the virtual circuit on the machine ({point})", point.fastest, rig.settings.loop.rate / point.fastest
        )
        capacities = replace(capacities, frequencies=(*capacities.frequencies, coupled))
    supplies = {capacity.valve: capacity.supply for capacity in capacities.capacities}
    servos = flow_servo.servo_margins(rig, supplies, row, pause)
    pressures = {name: pair for name, pair in real_pressures(rig, row).items() if pair is not None}
    swapped = tuple(name for name, (p_S, p_T) in pressures.items() if p_S < p_T - SENSOR_ERROR)
    pumps = tuple(supply_flow.too_small_pumps(rig, capacities.capacities))
    return RigMargins(capacities, delays, servos, swapped, pumps, actuators.actuator_margins(rig, program))
