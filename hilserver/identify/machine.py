r"""Actuators and sensors, as the same recording shows them: values for ``[cylinders]``, ``[motors]``, ``[channels]``.

The bridge's model of a chamber has the compliance

.. math:: C = (V_0 + A\,x)\left(\frac{1}{B} + \alpha\,a(p)\right) + \frac{V_h}{B_{hc}\sqrt{p}}

with the oil's bulk modulus B, its share of free air :math:`\alpha` (:math:`a(p)`: compliance of air), which both
chambers have in common, the dead volume :math:`V_0` and its part in hoses :math:`V_h`. The fit distinguishes softer
oil, air, hoses and another dead volume; their combined effect on the compliance is known far better than each of them.
So B, :math:`\alpha` and :math:`V_0` are those with which the model comes closest to the identified compliance over the
positions and pressures of the recording, beside the hoses where the recording shows any. Where there is a restriction,
the same holds for the oil behind it: the rest is the line before it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import hypot, inf, pi

import numpy as np
from scipy.optimize import least_squares

from hilserver.components.orifice import OF_A_POINT
from hilserver.identify.chamber import MIN_PRESSURE, Chamber, free_air
from hilserver.identify.estimate import Estimate, most_certain
from hilserver.identify.findings import IdentifiedValue, own_delay, sensor_lateness
from hilserver.identify.identification import Identified
from hilserver.identify.influences import ELASTICITY, ROD_SPEED, uniform, zero_tolerance
from hilserver.identify.motion import Rod, friction_by, motion_of, rod_of, shaft_of
from hilserver.identify.motor_chamber import CASE_LEAKAGE
from hilserver.identify.parameters import Values
from hilserver.identify.recorded import Recording
from hilserver.numerics.arrays import Floats
from hilserver.rig.cylinder_settings import CylinderSettings, PortRestriction
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.rig import Rig
from hilserver.units import BAR, L_MIN, shown_unit

INFORMED = 0.5
"""A value is identified where its deviation is at most this fraction of the one that was assumed beforehand."""
MODEL_ERROR = 0.05
"""Standard deviation of friction and of the spring between rod and load by errors of their model, as a fraction."""
LEVELS = (10.0, 50.0, 90.0)
"""Percentiles of the positions and pressures of a recording at which compliances are compared."""
MIN_AIR = 1e-5
"""Smallest deviation that is stated of the share of air."""
ROUNDING = 0.05
"""Largest error by rounding a value, as a fraction of its standard deviation."""
MIN_ZERO = 0.08
"""Smallest correction of a sensor's zero, as a fraction of its tolerance."""


PER_REVOLUTION = 1.0 / (2.0 * pi)
"""Torque by the work per revolution: a motor's motion is in revolutions (:mod:`hilserver.tick.cylinder`)."""


@dataclass(frozen=True)
class Restriction(IdentifiedValue):
    """The pressure drop of a restriction at a ``flow``, m³/s; ``transition``: below this drop it is laminar, Pa."""

    flow: float = 0.0
    transition: float = OF_A_POINT


Findings = Mapping[str, Sequence[IdentifiedValue]]
"""By the table of the rig file to which they belong, such as ``cylinders.lift``."""


def machine_findings(results: Sequence[Identified], recording: Recording) -> Findings:
    """Identified properties of the actuators and channels at these valves."""
    found: dict[str, list[IdentifiedValue]] = {}
    if results:
        settings = results[0].experiment.rig.settings
        for name, cylinder in settings.cylinders.items():
            found[f"cylinders.{name}"] = list(cylinder_findings(results, recording, cylinder))
        for name, motor in settings.motors.items():
            found[f"motors.{name}"] = list(motor_findings(results, recording, motor))
    for name in _channels(results):
        found[f"channels.{name}"] = list(channel_findings(results, recording, name))
    return {table: values for table, values in found.items() if values}


# --- cylinders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IdentifiedChamber:
    """A chamber, and the fit of a valve that shows it; ``x``, ``p``: where its compliance is of interest, m and Pa."""

    chamber: Chamber
    found: Identified
    x: Floats
    p: Floats

    @classmethod
    def of(cls, chamber: Chamber, found: Identified) -> IdentifiedChamber:
        """At the positions and pressures of this fit's recording."""
        channels = found.experiment.recording.channels
        x = np.percentile(chamber.place(channels[chamber.motion]), LEVELS)
        p = np.percentile(channels[chamber.pressure], LEVELS)
        grid_x, grid_p = np.meshgrid(x, np.maximum(p, MIN_PRESSURE))
        return cls(chamber, found, grid_x.ravel(), grid_p.ravel())

    def compliance(self, values: Values) -> Floats:
        """The identified compliance, m³/Pa, with these values of the parameters."""
        return self.chamber.compliance(self.x, self.p, values)

    @property
    def in_hoses(self) -> Estimate:
        """The oil in hoses, m³."""
        return self.found.estimate(f"hose {self.chamber.port}").scaled(self.chamber.dead)

    @property
    def has_hose(self) -> bool:
        """Whether hoses are stated, or more likely than not.

        Were they left out until they are significant, the oil, its air and the dead volume would be adjusted to their
        compliance, with deviations that say nothing of it.
        """
        return self.chamber.stated_hose > 0.0 or self.in_hoses.value > self.in_hoses.deviation

    def pressure_at_piston(self) -> Floats:
        """The pressure behind the restriction, at the ticks of the recording."""
        return self._pressure_with({})

    def changes_of_pressure(self) -> dict[str, Floats]:
        """By how much the pressure at the piston changes with a standard deviation of what it depends on, at the ticks.

        Those are the restriction, its transition, and the gain of the sensor. The sensor's zero acts on the load, its
        delay hardly on friction.
        """
        found, now = self.found, self.pressure_at_piston()
        port = self.chamber.port
        names = (f"restriction {port}", f"transition {port}", f"gain {self.chamber.pressure}")
        steps = {name: step for name in names if 0.0 < (step := found.fit.deviations.get(name, 0.0)) < inf}
        return {name: self._pressure_with({name: found.values[name] + step}) - now for name, step in steps.items()}

    def force_by(self, pressure: Floats) -> Floats:
        """The force of this pressure on the rod, N, positive with increasing position; of a motor, J per revolution."""
        area_A, area_B = self.chamber.actuator.areas()
        return -area_B * pressure if self.chamber.at_B else area_A * pressure

    def _pressure_with(self, changed: Values) -> Floats:
        return self.found.experiment.pressures_at_pistons({**self.found.values, **changed})[self.chamber.port]

    @property
    def known(self) -> list[str]:
        """The parameters of the chamber that were identified."""
        return [name for name in self.chamber.parameters() if name in self.found.fit.deviations]

    @cached_property
    def uncertainty(self) -> float:
        """Standard deviation of the compliance in the middle of the recording, as a fraction of it."""
        fit, values, middle = self.found.fit, self.found.values, len(self.x) // 2
        now = float(self.compliance(values)[middle])
        steps = {name: fit.deviations[name] for name in self.known}
        more = {n: float(self.compliance({**values, n: values[n] + step})[middle]) for n, step in steps.items()}
        return fit.deviation_of({name: (more[name] - now) / steps[name] for name in steps}) / now


@dataclass(frozen=True)
class Oil:
    """The model of a cylinder's oil: ``compliance``, 1/B in 1/Pa, ``air``, and by port, m³, dead volumes.

    Parts of them: ``lines``, before the restriction; ``hoses``, in hoses, where there are any.
    """

    compliance: float
    air: float
    dead_volumes: Mapping[str, float]
    hoses: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, float] = field(default_factory=dict)


def oil_of(chambers: Sequence[IdentifiedChamber], values: Sequence[Values], stated: Oil | None = None) -> Oil:
    """The model that comes closest to the compliances with these ``values``, by chamber.

    ``stated``: the oil, if only the dead volumes are wanted. Hoses are those of the values, but not larger than the
    dead volume: what softer ones lack is counted as oil.
    """
    hoses = {c.chamber.port: c.chamber.in_hoses(v) for c, v in zip(chambers, values, strict=True) if c.has_hose}
    oil = _oil_beside(hoses, chambers, values, stated)
    if any(volume > oil.dead_volumes[port] for port, volume in hoses.items()):
        hoses = {port: min(volume, oil.dead_volumes[port]) for port, volume in hoses.items()}
        oil = _oil_beside(hoses, chambers, values, stated)
    return replace(oil, lines={c.chamber.port: _line_volume(c, v, oil) for c, v in zip(chambers, values, strict=True)})


def _oil_beside(
    hoses: Mapping[str, float], chambers: Sequence[IdentifiedChamber], values: Sequence[Values], stated: Oil | None
) -> Oil:
    """The model that comes closest to the compliances, less those of the walls of these hoses.

    The oil of a motor does not change with its motion: only the products of volume, compliance and air are known, so
    that its bulk modulus is that of the rig file.
    """
    first, ports = chambers[0].chamber, [c.chamber.port for c in chambers]
    swept = [c.chamber.swept(c.x) for c in chambers]
    air = [free_air(c.p, c.chamber.line) for c in chambers]
    walls = [c.chamber.walls(c.p, hoses.get(c.chamber.port, 0.0)) for c in chambers]
    wanted = [c.compliance(v) for c, v in zip(chambers, values, strict=True)]

    is_free = isinstance(first.actuator, CylinderSettings)

    def unscaled(z: Floats) -> Oil:
        if stated is not None:
            return replace(stated, dead_volumes=dict(zip(ports, first.dead * z, strict=True)))
        if not is_free:
            return Oil(1.0 / first.line.B_o, 1e-2 * z[0], dict(zip(ports, first.dead * z[1:], strict=True)))
        return Oil(z[0] / first.line.B_o, 1e-2 * z[1], dict(zip(ports, first.dead * z[2:], strict=True)))

    def errors(z: Floats) -> Floats:
        oil = unscaled(z)
        lines = zip(ports, swept, air, walls, wanted, strict=True)
        return np.concatenate(
            [
                ((oil.dead_volumes[port] + V) * (oil.compliance + oil.air * a) + wall) / C - 1.0
                for port, V, a, wall, C in lines
            ]
        )

    free = [] if stated is not None else [1.0, 0.1] if is_free else [0.1]
    start = np.array([*free, *np.ones(len(ports))])
    low, high = np.full(len(start), 1e-3), np.full(len(start), 1e3)
    if free:
        low[len(free) - 1], high[len(free) - 1] = 0.0, 10.0
    return replace(unscaled(least_squares(errors, start, bounds=(low, high)).x), hoses=hoses)


def _line_volume(c: IdentifiedChamber, values: Values, oil: Oil) -> float:
    """The part of the dead volume without which the model comes closest to the compliance behind the restriction."""
    compliance = oil.compliance + oil.air * free_air(c.p, c.chamber.line)
    behind = c.chamber.behind(c.x, c.p, values)
    share, whole = compliance / behind, (oil.dead_volumes[c.chamber.port] + c.chamber.swept(c.x)) * compliance / behind
    return float(share @ (whole - 1.0) / (share @ share))


def cylinder_findings(
    results: Sequence[Identified], recording: Recording, settings: CylinderSettings
) -> Iterator[IdentifiedValue]:
    """Leakage past the piston, restrictions at the ports, oil and dead volumes of a cylinder, and what it moves."""
    fits, chambers = _of_actuator(results, settings)
    if not fits:
        return
    if settings.port_B is not None:
        yield from _leakage(fits, "piston_leakage", "leakage past the piston", "leakage", settings.leakage)
    restrictions = {
        side: restriction
        for side, port in (("A", settings.port_A), ("B", settings.port_B))
        if port in chambers and (restriction := _restriction(chambers[port], settings, side)) is not None
    }
    yield from _oil(list(chambers.values()), settings, restrictions)
    yield from restrictions.values()
    yield from _motion(chambers, settings, recording)


def motor_findings(
    results: Sequence[Identified], recording: Recording, settings: MotorSettings
) -> Iterator[IdentifiedValue]:
    """Leakages, oil and volumes of a motor, its inertia with that of its load, and its friction."""
    fits, chambers = _of_actuator(results, settings)
    if not fits:
        return
    yield from _leakage(fits, "piston_leakage", "leakage between A and B", "leakage", settings.leakage)
    yield from _leakage(fits, CASE_LEAKAGE, "leakage to the case", "case_leakage", settings.case_leakage)
    yield from _oil(list(chambers.values()), settings, ())
    shaft = shaft_of(settings, recording, _pressures(chambers, settings, recording))
    motion = motion_of(shaft)
    if motion is None:
        return
    yield IdentifiedValue("inertia", "inertia", motion.mass.scaled(PER_REVOLUTION**2), settings.inertia, "kg*m^2")
    by_pressures = _friction_by_pressures(list(chambers.values()), shaft, list(motion.friction))
    for (speed, work), by_pressure in zip(motion.friction.items(), by_pressures, strict=True):
        torque = work.with_further(MODEL_ERROR * work.value, by_pressure).scaled(PER_REVOLUTION)
        yield IdentifiedValue(f"friction torque at {60.0 * speed:.0f} rpm", "", torque, None, "N*m")
    yield IdentifiedValue("friction by the pressure, of the torque", "", motion.by_force, None)


def _of_actuator(
    results: Sequence[Identified], settings: CylinderSettings | MotorSettings
) -> tuple[list[Identified], dict[str, IdentifiedChamber]]:
    """The fits that show a cylinder or motor, and by port the chamber of the one that knows it best."""
    fits = [found for found in results if any(c.actuator is settings for c in found.experiment.chambers)]
    chambers: dict[str, IdentifiedChamber] = {}
    for found in fits:
        for c in (IdentifiedChamber.of(c, found) for c in found.experiment.chambers if c.actuator is settings):
            best = chambers.setdefault(c.chamber.port, c)
            chambers[c.chamber.port] = min(best, c, key=lambda chamber: chamber.uncertainty)
    return fits, chambers


def _pressures(
    chambers: Mapping[str, IdentifiedChamber], settings: CylinderSettings | MotorSettings, recording: Recording
) -> dict[str, Floats]:
    """Those that move the actuator, by side. At a port whose valve was not identified: that of the port."""
    pressures = {}
    for side, port in (("A", settings.port_A), ("B", settings.port_B)):
        chamber = chambers.get(port or "")
        if chamber is not None:
            pressures[side] = chamber.pressure_at_piston()
        elif port is not None:
            channel = next(iter(chambers.values())).found.experiment.rig.settings.ports[port]
            pressures[side] = recording.channels[channel]
    return pressures


def _motion(
    chambers: Mapping[str, IdentifiedChamber], settings: CylinderSettings, recording: Recording
) -> Iterator[IdentifiedValue]:
    """The moving mass, and what the rig file has no key for: friction, and a spring between rod and load.

    At a port whose valve was not identified, the drop of a restriction counts as friction.
    """
    rod = rod_of(settings, recording, _pressures(chambers, settings, recording))
    motion = motion_of(rod)
    if motion is None:
        return
    mass, softness, of_rod = motion.mass, motion.compliance, settings.mass_of_rod()
    yield IdentifiedValue("moving mass", "mass", mass, settings.mass, "kg")
    by_pressures = _friction_by_pressures(list(chambers.values()), rod, list(motion.friction))
    for (speed, force), by_pressure in zip(motion.friction.items(), by_pressures, strict=True):
        friction = force.with_further(MODEL_ERROR * force.value, by_pressure)
        yield IdentifiedValue(f"friction at {speed:.2g} m/s", "", friction, None, "N")
    if softness.is_positive and of_rod < mass.value:
        k = (1.0 - of_rod / mass.value) ** 2 / softness.value
        spring = Estimate(k, k * hypot(softness.deviation / softness.value, MODEL_ERROR))
        yield IdentifiedValue("spring between rod and load", "", spring, None, "N/m")


def _friction_by_pressures(chambers: Sequence[IdentifiedChamber], rod: Rod, speeds: Sequence[float]) -> Floats:
    """Standard deviation of the friction at these speeds by the pressures at the piston, N."""
    variance = np.zeros(len(speeds))
    for fit in {id(c.found): c.found.fit for c in chambers}.values():
        gradients: dict[str, Floats] = {}
        for chamber in (c for c in chambers if c.found.fit is fit):
            for name, change in chamber.changes_of_pressure().items():
                friction = friction_by(rod, chamber.force_by(change), speeds)
                gradients[name] = friction / fit.deviations[name]
        for number in range(len(speeds)):
            variance[number] += fit.deviation_of({name: g[number] for name, g in gradients.items()}) ** 2
    return np.sqrt(variance)


def _oil(
    chambers: Sequence[IdentifiedChamber], settings: CylinderSettings | MotorSettings, restricted: Container[str]
) -> Iterator[IdentifiedValue]:
    """Bulk modulus and air, if the recording shows them; dead volumes; lines where ``restricted`` or stated.

    Volumes that are hardly known are stated, too: they belong to the oil and the hoses with which they were found.
    """
    oil, deviation = _with_deviation(chambers)
    air = Estimate(oil.air, max(deviation.air, MIN_AIR))
    if isinstance(settings, MotorSettings):
        yield IdentifiedValue("air in the oil", "air_fraction", air, settings.air_fraction)
    elif deviation.compliance <= INFORMED * uniform(ELASTICITY) * oil.compliance:
        B = 1.0 / oil.compliance
        modulus = Estimate(B, deviation.compliance * B**2)
        yield IdentifiedValue("bulk modulus", "bulk_modulus", modulus, settings.bulk_modulus, "MPa", 1e-6)
        yield IdentifiedValue("air in the oil", "air_fraction", air, settings.air_fraction)
    else:
        line = chambers[0].chamber.line
        oil, deviation = _with_deviation(chambers, Oil(1.0 / line.B_o, line.alpha_0, {}))
    for side, port in (("A", settings.port_A), ("B", settings.port_B)):
        if port is None or port not in oil.dead_volumes:
            continue
        dead = Estimate(oil.dead_volumes[port], deviation.dead_volumes[port])
        if isinstance(settings, MotorSettings):
            key = f"volume_{side}"
            yield IdentifiedValue(f"volume {side}", key, dead, getattr(settings, key), *shown_unit("m^3"))
            continue
        key = f"dead_volume_{side}"
        yield IdentifiedValue(f"dead volume {side}", key, dead, getattr(settings, key), *shown_unit("m^3"))
        if port in oil.hoses:
            spread, key = deviation.hoses[port], f"hose_volume_{side}"
            inside = min(oil.hoses[port], dead.value - ROUNDING * (dead.deviation + spread))  # as both are shown
            hoses = Estimate(max(inside, 0.0), spread)
            yield IdentifiedValue(f"hoses {side}", key, hoses, getattr(settings, key), *shown_unit("m^3"))
        key = f"line_volume_{side}"
        if side in restricted or getattr(settings, key) > 0.0:
            spread, name = deviation.lines[port], f"line before the restriction {side}"
            most = dead.value - dead.deviation - ROUNDING * spread  # less than the dead volume as it is shown
            before = Estimate(max(min(oil.lines[port], most), 0.0), spread)
            yield IdentifiedValue(name, key, before, getattr(settings, key), *shown_unit("m^3"))


def _with_deviation(chambers: Sequence[IdentifiedChamber], stated: Oil | None = None) -> tuple[Oil, Oil]:
    """The model of the oil and its standard deviations, by its changes with each parameter of each fit."""
    values = [c.found.values for c in chambers]
    oil = oil_of(chambers, values, stated)
    variance = np.zeros(2 + 2 * len(chambers))
    for fit in {id(c.found): c.found.fit for c in chambers}.values():
        names = list(dict.fromkeys(n for c in chambers if c.found.fit is fit for n in c.known))
        gradient = []
        for name in names:
            step = fit.deviations[name]
            changed = [
                {**v, name: v[name] + step} if c.found.fit is fit else v for c, v in zip(chambers, values, strict=True)
            ]
            gradient.append((_numbers(oil_of(chambers, changed, stated)) - _numbers(oil)) / step)
        places = [list(fit.deviations).index(name) for name in names]
        covariance = fit.covariance[np.ix_(places, places)]
        variance += np.einsum("ik,ij,jk->k", np.array(gradient), covariance, np.array(gradient))
    compliance, air, *volumes = np.sqrt(np.maximum(variance, 0.0)).tolist()
    dead = dict(zip(oil.dead_volumes, volumes[: len(chambers)], strict=True))
    hoses = {c.chamber.port: c.in_hoses.deviation for c in chambers if c.has_hose}
    return oil, Oil(compliance, air, dead, hoses, dict(zip(oil.lines, volumes[len(chambers) :], strict=True)))


def _numbers(oil: Oil) -> Floats:
    return np.array([oil.compliance, oil.air, *oil.dead_volumes.values(), *oil.lines.values()])


def _restriction(chamber: IdentifiedChamber, cylinder: CylinderSettings, side: str) -> Restriction | None:
    """The restriction between port and piston: the drop at a rod speed of ROD_SPEED. None if it is not significant."""
    drop = chamber.found.estimate(f"restriction {chamber.chamber.port}")
    if not drop.is_positive:
        return None
    name, key, flow = f"restriction {side}", f"restriction_{side}", ROD_SPEED * max(cylinder.areas())
    stated: PortRestriction | None = getattr(cylinder, key)
    configured = stated.drop_at(flow) if stated is not None else None
    transition = chamber.chamber.transition(chamber.found.values)
    return Restriction(name, key, drop, configured, *shown_unit("Pa"), flow, transition)


def _leakage(
    fits: Sequence[Identified], parameter: str, name: str, key: str, configured: float
) -> Iterator[IdentifiedValue]:
    """From the fit that knows it best."""
    best = most_certain(found.estimate(parameter) for found in fits)
    prior = fits[0].experiment.parameters(True)[parameter].prior
    if best.deviation <= INFORMED * prior:
        leakage, unit = replace(best, value=max(best.value, 0.0)), ("l/min/bar", BAR / L_MIN)
        yield IdentifiedValue(name, key, leakage, configured, *unit)


# --- channels ---------------------------------------------------------------------------------------------------------


def _channels(results: Sequence[Identified]) -> list[str]:
    """Those on which the results depend, and which are measured."""
    return list(dict.fromkeys(name for found in results for name in found.experiment.measured_channels()))


def channel_findings(results: Sequence[Identified], recording: Recording, name: str) -> Iterator[IdentifiedValue]:
    """Noise of a channel, its zero error, and its delay where it differs from the stated one (relative to the sensor of
    the flow).

    A zero error is the tare of the rig file, unless a calibration file has replaced that.
    """
    rig: Rig = results[0].experiment.rig
    settings, noise = rig.settings.channels[name], recording.noise.get(name)
    unit = shown_unit(settings.unit)
    if noise is not None:
        stated = settings.noise.value if settings.noise is not None else None
        yield IdentifiedValue("noise", "noise", noise, stated, *unit)
    if name in recording.zeros and name not in rig.calibrations:
        zero, tared = recording.zeros[name], settings.tare.value if settings.tare is not None else 0.0
        if abs(zero.value) > MIN_ZERO * zero_tolerance(rig, name):
            yield IdentifiedValue("zero", "tare", zero.shifted(tared), tared, *unit)
    more, lateness = own_delay(results, name), results[0].lateness
    if lateness is not None and not any(name in found.experiment.sensors_of_unknown_delay() for found in results):
        more = sensor_lateness(results[0], lateness).shifted(more.value)
    if more.value != 0.0:
        delay = replace(more, value=max(settings.delay + more.value, 0.0))
        yield IdentifiedValue("delay", "delay", delay, settings.delay, "ms", 1e3)
