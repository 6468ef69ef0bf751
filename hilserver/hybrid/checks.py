"""What is wrong with the description of a rig from which a displacement bridge is to be designed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import isfinite, isnan

import numpy as np

from hilserver.displacement.actuator import OF_SPECIMEN, Actuator
from hilserver.displacement.sensors import FORCE_DELAY, Sensors
from hilserver.displacement.specimen import Specimen
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean
from hilserver.hybrid.critical_delay import critical_delay
from hilserver.hybrid.structure import Structure
from hilserver.tick.hybrid.displacement import DelayCompensation, DisplacementStrategy, Law

LONGEST_TICK = 0.05
"""s: 20 Hz, at which no actuator follows a structure; a larger value is probably a rate."""
LONGEST_DELAY = 0.1
"""s; a larger value is probably one in ms."""
MAY_BE_ZERO = ("a3", "delay", "damping", "stiffness", "moving_mass")
UNCERTAIN = ("a1_beta0", "a2", "a3", "beta1", "beta2", "gain", *OF_SPECIMEN)
"""Parameters that can be tracked."""
MAY_BE_NEGATIVE = ("a3", "damping")
"""Parameters that a spread may make negative: a little damping that is missing makes no other system."""
ROOM = 2.0
"""Critical delay divided by the delay of the force at a tick rate that is recommended."""


def check_design(
    structure: Structure,
    actuator: Actuator,
    spread: Mapping[str, float],
    sensors: Sensors,
    dt: float,
    strategy: DisplacementStrategy,
) -> None:
    """Raise ConfigurationError with everything that is wrong with a rig, HilserverError if its force is too late."""
    found = [*_of_tick(dt), *_of_strategy(strategy), *_of_structure(structure), *_of_actuator(actuator)]
    found += [*_of_spread(spread, actuator), *_of_sensors(sensors)]
    if found:
        raise ConfigurationError(found)
    _check_lateness(structure, actuator.specimen, sensors, dt, strategy)


def _of_tick(dt: float) -> Iterator[Problem]:
    if not 0.0 < dt <= LONGEST_TICK:
        hint = f" For a rate of {dt:g} Hz, give 1/{dt:g}." if dt > 1.0 else ""
        yield Problem(
            f"{dt:g} s is not the length of a tick: it is above 0 and at most {LONGEST_TICK:g} s.{hint}", "dt"
        )


def _of_strategy(strategy: DisplacementStrategy) -> Iterator[Problem]:
    designed = [each.name for each in DisplacementStrategy if each.law is Law.STATE_FEEDBACK]
    if not isinstance(strategy, DisplacementStrategy):
        yield Problem(
            f"{strategy!r} is not a DisplacementStrategy, such as DisplacementStrategy.prediction.", "strategy"
        )
    elif strategy.law is not Law.STATE_FEEDBACK:
        yield Problem(f"{strategy.name} needs no design; strategies with one: {', '.join(designed)}.", "strategy")


def _of_structure(structure: Structure) -> Iterator[Problem]:
    size = np.shape(structure.mass)[:1]
    sound = True
    for field in fields(Structure):
        value = getattr(structure, field.name)
        if not isinstance(value, np.ndarray) or value.shape != (*size, *size):
            rows = f"{size[0]} by {size[0]}" if size else "n by n"
            yield Problem(f"is not a NumPy array of {rows} numbers, as the mass.", f"structure.{field.name}")
            sound = False
        elif not np.isfinite(value).all():
            yield Problem("contains a value that is not finite.", f"structure.{field.name}")
            sound = False
    if sound and np.linalg.eigvalsh(0.5 * (structure.mass + structure.mass.T))[0] <= 0.0:
        hint = "Is the specimen heavier than its floor?"
        yield Problem(f"must be positive definite: some motion would have no mass. {hint}", "structure.mass")


def _of_actuator(actuator: Actuator) -> Iterator[Problem]:
    values = {field.name: getattr(actuator, field.name) for field in fields(Actuator) if field.name != "specimen"}
    values |= {f"specimen.{field.name}": getattr(actuator.specimen, field.name) for field in fields(Specimen)}
    for name, value in values.items():
        may_be_zero = name.removeprefix("specimen.") in MAY_BE_ZERO
        least = "0 or more" if may_be_zero else "above 0"
        if isnan(value) or value < 0.0 or (value == 0.0 and not may_be_zero) or (name != "limit" and value == np.inf):
            yield Problem(f"{value:g} is not possible: give a finite value, {least}, in SI units.", f"actuator.{name}")
    yield from _of_delay(actuator.delay, "actuator.delay")


def _of_spread(spread: Mapping[str, float], actuator: Actuator) -> Iterator[Problem]:
    for name, size in spread.items():
        if name not in UNCERTAIN:
            yield Problem(f"there is no such parameter.{did_you_mean(name, UNCERTAIN)}", f"spread.{name}")
            continue
        nominal = getattr(actuator.specimen if name in OF_SPECIMEN else actuator, name)
        if not (size > 0.0 and isfinite(size)):
            yield Problem(f"{size:g} is not a standard deviation; leave out what is known exactly.", f"spread.{name}")
        elif size >= nominal and name not in MAY_BE_NEGATIVE:
            yield Problem(f"{size:g} is not less than the parameter itself, {nominal:g}.", f"spread.{name}")


def _of_sensors(sensors: Sensors) -> Iterator[Problem]:
    for name in ("displacement", "force"):
        noise = getattr(sensors, name)
        if not (noise > 0.0 and isfinite(noise)):
            more = "without noise, give the resolution of its converter divided by 3.5."
            yield Problem(f"{noise:g} is not the standard deviation of a sensor: {more}", f"sensors.{name}")
        yield from _of_delay(getattr(sensors, f"{name}_delay"), f"sensors.{name}_delay")


def _of_delay(delay: float, key: str) -> Iterator[Problem]:
    if not 0.0 <= delay <= LONGEST_DELAY:
        yield Problem(f"{delay:g} s is not from 0 to {LONGEST_DELAY:g} s. Give it in seconds.", key)


def _check_lateness(
    structure: Structure, specimen: Specimen, sensors: Sensors, dt: float, strategy: DisplacementStrategy
) -> None:
    """Raise HilserverError where the late force, which the strategy accepts, makes the structure oscillate."""
    critical, frequency = critical_delay(structure, specimen)
    late = FORCE_DELAY * dt + sensors.force_delay
    if strategy.compensation is not DelayCompensation.ACCEPTED or late < critical:
        return
    room = critical / ROOM - sensors.force_delay
    rate = f", or give at least {FORCE_DELAY / room:.0f} Hz" if room > 0.0 else ""
    raise HilserverError(
        f"With the strategy {strategy.name} at {1.0 / dt:g} Hz, the force acts on the structure {1e3 * late:.2f} ms "
        f"late, and a delay of {1e3 * critical:.2f} ms makes it oscillate at {frequency:.2f} Hz: use prediction{rate}."
    )
