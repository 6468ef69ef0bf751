r"""The mass that an actuator moves and the friction curve, from the recording that identifies its valves.

What the pressures exert on the rod accelerates it, with friction R(v), weight and springs (linear in x) against it. If
the rod moves a load through a spring of stiffness k, such as an elastic frame, its acceleration is

.. math:: a = \frac{F - R(|v|)\,\mathrm{sgn}\,v - F_0 - F_x\,x}{m} + c\,\dot F + C_S\,\ddot F, \qquad
   C_S = \Bigl(1 - \frac{m_R}{m}\Bigr)^2\,\frac{1}{k}

while friction is constant, hence away from reversals; :math:`m_R` is the part of the mass before the spring. c contains
the damping of the spring, and the delay of the pressure sensors. All terms are smoothed by the same Gaussian, and
derivatives are those of the Gaussian: nothing is differentiated. F contains by how much friction differs from R(v), on
a light rod up to as much as m·a. Least squares would take it for force that does not accelerate, and find too large a
mass. The errors of the equation are therefore orthogonal to a in place of F (instrumental variable), but for the noise
of the position in both, which is known. Standard deviations are by the jackknife over parts of the recording; that of
the mass also contains what the errors beyond this noise would change if they were correlated with the acceleration.

A motor is a rod that moves in revolutions: the displacement stands for the area, :math:`4\pi^2 J` for the mass. Its
position is the integral of the measured speed. A part of its friction is proportional to the pressure difference:
:math:`\lambda\,|F|\,\mathrm{sgn}\,v` adds to R.
Sources: Preisig & Rippin, Computers chem. Engng 17 (1993) 1 (modulating functions); Söderström & Stoica, Instrumental
Variable Methods for System Identification, 1983; Efron, The Jackknife, 1982; Wilson, Trans. ASME 68 (1946) (losses of
motors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.chamber import END_OF_STROKE, MIN_PRESSURE
from hilserver.identify.estimate import Estimate
from hilserver.identify.recorded import Recording, widened
from hilserver.numerics.arrays import Floats
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.motor_settings import MotorSettings

WIDTHS = (0.005, 0.008, 0.012)
"""s, standard deviations of the Gaussian. The values are those with the smallest uncertainty; that they depend on the
width, as far as it is certain, adds to it.
"""
REACH = 4.0
"""Half the length of its window, in standard deviations."""
SPEEDS = (5.0, 20.0, 50.0, 90.0)
"""Percentiles of the speeds between which friction is interpolated."""
SLOW, OF_NOISE = 0.05, 3.0
"""Speeds below this fraction of the 95th percentile, or this many times their noise, count as reversals."""
UNSEEN = 0.3
"""Correlation of the errors of the equation with the acceleration, standard deviation: on simulated rigs with a mass of
50 to 8000 kg, it was 0 to 0.5, more where friction is small.
"""
PARTS = 20
"""Of the recording, for the jackknife."""
MODEL_ERROR = 0.01
"""Standard deviation of a mass by gains of the sensors and errors of the model, as a fraction."""
BY_FORCE = 0.003
"""Standard deviation of the friction in proportion to the force by errors of the model, as a fraction of the force: the
speeds between which the other friction is interpolated.
"""
NOISELESS = Estimate(0.0, 0.0)
"""Noise of a sensor that shows none."""
USEFUL = 0.1
"""Largest standard deviation of a mass that is still useful, as a fraction of it."""


@dataclass(frozen=True)
class RodMotion:
    """The moved mass, kg; friction by speed (m/s), N; and the compliance of the spring before the load, C_S, m/N.

    ``by_force``: friction in proportion to the force of the pressures, as a fraction of it; 0 where there is none.
    """

    mass: Estimate
    friction: Mapping[float, Estimate]
    compliance: Estimate
    by_force: Estimate


@dataclass(frozen=True)
class Rod:
    """What a recording shows of a rod: position, noise of a sample of its sensor, force, and where they are of use.

    ``is_shaft``: a motor's, whose sensor shows the speed, with friction in proportion to the force.
    """

    x: Floats
    noise: Estimate
    force: Floats
    used: NDArray[np.bool_]
    dt: float
    is_shaft: bool = False

    @cached_property
    def v(self) -> Floats:
        """The smoothed speed at the ticks."""
        return _smoothed(self.x, WIDTHS[0], self.dt, 1)

    @cached_property
    def noise_of_v(self) -> float:
        """Standard deviation of the smoothed speed by the noise."""
        return self.noise.value * float(np.linalg.norm(_smoothed(self.by_sample(WIDTHS[0]), WIDTHS[0], self.dt, 1)))

    def by_sample(self, width: float) -> Floats:
        """What one sample that is 1 too large adds to the position, as far as a Gaussian of this width, s, reaches."""
        reach = 2 * round(REACH * width / self.dt)
        sample = np.where(np.arange(-reach, reach + 1) == 0, 1.0, 0.0)
        return np.cumsum(sample) * self.dt if self.is_shaft else sample


def rod_of(cylinder: CylinderSettings, recording: Recording, pressures: Mapping[str, Floats]) -> Rod:
    """From the pressures at the piston, by side (``"A"``, ``"B"``); none at an open side."""
    name = str(cylinder.position)
    x, noise = recording.channels[name], recording.noise.get(name, NOISELESS)
    used = recording.known & (np.abs(x / cylinder.stroke - 0.5) < 0.5 - END_OF_STROKE)
    area_A, area_B = cylinder.areas()
    force = area_A * pressures["A"] - (area_B * pressures["B"] if "B" in pressures else 0.0)
    for pressure in pressures.values():
        used = used & (pressure > MIN_PRESSURE)
    return Rod(x, noise, np.asarray(force), used, recording.dt)


def shaft_of(motor: MotorSettings, recording: Recording, pressures: Mapping[str, Floats]) -> Rod:
    """A motor's shaft in revolutions, from the pressures by side."""
    name = str(motor.speed)
    speed, noise = recording.channels[name], recording.noise.get(name, NOISELESS)
    used = recording.known
    for pressure in pressures.values():
        used = used & (pressure > MIN_PRESSURE)
    turned = np.cumsum(speed) * recording.dt
    force = motor.displacement * (pressures["A"] - pressures["B"])
    return Rod(turned, noise, np.asarray(force), used, recording.dt, is_shaft=True)


def motion_of(rod: Rod) -> RodMotion | None:
    """The motion of a rod; None where the recording does not show the mass."""
    found = [motion for width in WIDTHS if (motion := _motion(rod, width)) is not None]
    if not found:
        return None
    best = min(found, key=lambda motion: motion.mass.deviation / motion.mass.value)
    off, deviations = np.array([(motion.mass.value - best.mass.value, motion.mass.deviation) for motion in found]).T
    spread = sqrt(float(np.average(off**2, weights=deviations**-2.0)))
    mass = best.mass.with_further(spread, MODEL_ERROR * best.mass.value)
    return replace(best, mass=mass) if mass.deviation <= USEFUL * mass.value else None


def _motion(rod: Rod, width: float) -> RodMotion | None:
    """With a Gaussian of this width, s."""
    ticks = _evaluated(rod, width)
    if len(ticks) < PARTS:
        return None
    speeds = np.percentile(np.abs(rod.v[ticks]), SPEEDS)
    equation = _equation(rod, width, ticks, speeds)
    if not equation.has_all:
        return None
    everywhere, part = np.ones(len(ticks), dtype=bool), np.arange(len(ticks)) * PARTS // len(ticks)
    noise, noisier = rod.noise.value, rod.noise.value + rod.noise.deviation
    shares = equation.solved(everywhere, noise)
    values, otherwise = _properties(shares), _properties(equation.solved(everywhere, noisier))
    without = np.array([_properties(equation.solved(part != number, noise)) for number in range(PARTS)])
    if not np.all(np.isfinite([values, otherwise, *without])):
        return None
    deviations = np.hypot(sqrt(PARTS - 1.0) * np.std(without, axis=0), otherwise - values)
    mass, compliance, *others = (Estimate(*pair) for pair in zip(values.tolist(), deviations.tolist(), strict=True))
    mass = mass.with_further(UNSEEN * equation.unexplained(shares, noise) * mass.value)
    by_force = others.pop(0).with_further(BY_FORCE) if rod.is_shaft else Estimate(0.0, 0.0)
    return RodMotion(mass, dict(zip(speeds.tolist(), others, strict=False)), compliance, by_force)


def _properties(shares: Floats) -> Floats:
    """Mass, C_S, and the other shares times the mass; inf where the force does not accelerate."""
    mass = 1.0 / shares[0] if shares[0] > 0.0 else inf
    return np.array([mass, shares[-1], *(shares[1:-1] * mass)])


@dataclass(frozen=True)
class _Equation:
    """An acceleration as a sum of shares of ``columns``, with errors that are orthogonal to as many ``instruments``.

    ``shared``: what noise of variance 1 in the position adds to the products of acceleration and first instruments.
    """

    acceleration: Floats
    columns: Floats
    instruments: Floats
    shared: Floats

    @property
    def has_all(self) -> bool:
        """Whether there is something in every column."""
        return all(bool(np.all(np.any(these, axis=0))) for these in (self.columns, self.instruments))

    def solved(self, kept: NDArray[np.bool_], noise: float) -> Floats:
        """The shares, by these ticks; ``noise``: its standard deviation."""
        scale, scale_Z = np.linalg.norm(self.columns, axis=0), np.linalg.norm(self.instruments, axis=0)
        W, Z = self.columns[kept] / scale, self.instruments[kept] / scale_Z
        seen, of_noise = Z.T @ self.acceleration[kept], noise**2 * self.shared[kept].sum(axis=0)
        seen[: len(of_noise)] -= of_noise / scale_Z[: len(of_noise)]
        return np.asarray(np.linalg.lstsq(Z.T @ W, seen, rcond=None)[0] / scale)

    def unexplained(self, shares: Floats, noise: float) -> float:
        """Standard deviation of what these shares do not explain of the acceleration, as a fraction of it, less noise.

        The first instrument is the acceleration.
        """
        of_noise = noise**2 * float(self.shared[0, 0])
        rest, whole = self.acceleration - self.columns @ shares, self.acceleration
        left, moved = (max(float(np.mean(a**2)) - of_noise, 0.0) for a in (rest, whole))
        return sqrt(left / moved) if left < moved else 1.0


def _equation(rod: Rod, width: float, ticks: NDArray[np.int64], speeds: Floats) -> _Equation:
    """Of F, of a shaft's friction in proportion to it, of friction at these speeds, of the load, of F' and F''.

    The acceleration is the instrument of F and of what is in proportion to it; the others are their own.
    """

    def smoothed(signal: Floats, order: int = 0) -> Floats:
        return _smoothed(signal, width, rod.dt, order)[ticks]

    acceleration, x, of_sample = smoothed(rod.x, 2), smoothed(rod.x), _smoothed(rod.by_sample(width), width, rod.dt, 2)
    signs = [np.ones(len(rod.x)), *([-np.sign(rod.v * rod.force)] if rod.is_shaft else [])]
    friction = -np.sign(rod.v)[:, None] * _between(np.abs(rod.v), speeds)
    load = [np.ones(len(ticks)), x - x.mean()]
    rest = [*map(smoothed, friction.T), *load, smoothed(rod.force, 1), smoothed(rod.force, 2)]
    return _Equation(
        acceleration,
        columns=np.column_stack([*(smoothed(sign * rod.force) for sign in signs), *rest]),
        instruments=np.column_stack([*(sign[ticks] * acceleration for sign in signs), *rest]),
        shared=np.column_stack([sign[ticks] * (of_sample @ of_sample) for sign in signs]),
    )


def friction_by(rod: Rod, force: Floats, speeds: Sequence[float]) -> Floats:
    """What a force on the rod, N at the ticks, is taken for as friction at these speeds."""
    ticks = _evaluated(rod, WIDTHS[0])
    v, x = rod.v[ticks], rod.x[ticks]
    resisting = np.sign(v)[:, None] * _between(np.abs(v), np.array(speeds))
    columns = np.column_stack([resisting, np.ones(len(ticks)), x - x.mean()])
    return np.asarray(np.linalg.lstsq(columns, force[ticks], rcond=None)[0][: len(speeds)])


def _evaluated(rod: Rod, width: float) -> NDArray[np.int64]:
    """The ticks that are evaluated: away from reversals, from the ends of the stroke and from gaps."""
    reach = round(REACH * width / rod.dt)
    usual = float(np.percentile(np.abs(rod.v[rod.used]), 95.0)) if rod.used.any() else 0.0
    slow = np.abs(rod.v) <= max(SLOW * usual, OF_NOISE * rod.noise_of_v)
    left_out = widened(~rod.used | slow, reach, reach)
    left_out[:reach] = left_out[len(left_out) - reach :] = True
    return np.flatnonzero(~left_out)[:: max(round(0.5 * width / rod.dt), 1)]


def _between(values: Floats, nodes: Floats) -> Floats:
    """Weights of linear interpolation between nodes, float64[values, nodes]; beyond them, those of the last one."""
    return np.column_stack([np.interp(values, nodes, unit) for unit in np.eye(len(nodes))])


def _smoothed(signal: Floats, width: float, dt: float, order: int) -> Floats:
    """A signal, or its first or second derivative, smoothed by a Gaussian."""
    reach = round(REACH * width / dt)
    t = np.arange(-reach, reach + 1) * dt
    g = np.exp(-0.5 * (t / width) ** 2)
    g /= g.sum()
    if order == 1:
        g = -t * g
        g /= -(t @ g)
    elif order == 2:
        g = g * (t**2 - g @ t**2)
        g *= 2.0 / (t**2 @ g)
    return np.convolve(np.pad(signal, reach, mode="edge"), g, "valid")
