r"""The mass that an actuator moves and the friction curve, from the recording that identifies its valves.

What the pressures exert on the rod accelerates it, with friction R(v), weight and springs (linear in x) against it. If
the rod moves a load through a spring of stiffness k, such as an elastic frame, its acceleration is

.. math:: a = \frac{F - R(|v|)\,\mathrm{sgn}\,v - F_0 - F_x\,x}{m} + c\,\dot F + C_S\,\ddot F, \qquad
   C_S = \Bigl(1 - \frac{m_R}{m}\Bigr)^2\,\frac{1}{k}

while friction is constant, hence away from reversals; :math:`m_R` is the part of the mass before the spring. c contains
the damping of the spring, and the delay of the pressure sensors. All terms are smoothed by the same Gaussian, and
derivatives are those of the Gaussian: nothing is differentiated. The acceleration, which has the noise of the position,
is what is explained; the force is known far better, so that its noise hardly biases 1/m. Standard deviations are by the
jackknife over parts of the recording.

A motor is a rod that moves in revolutions: the displacement stands for the area, :math:`4\pi^2 J` for the mass. Its
position is the integral of the measured speed. A part of its friction is proportional to the pressure difference:
:math:`\lambda\,|F|\,\mathrm{sgn}\,v` adds to R.
Sources: Preisig & Rippin, Computers chem. Engng 17 (1993) 1 (modulating functions); Efron, The Jackknife, 1982; Wilson,
Trans. ASME 68 (1946) (losses of motors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, pi, sqrt

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
width adds to it.
"""
REACH = 4.0
"""Half the length of its window, in standard deviations."""
SPEEDS = (5.0, 20.0, 50.0, 90.0)
"""Percentiles of the speeds between which friction is interpolated."""
SLOW, OF_NOISE = 0.05, 3.0
"""Speeds below this fraction of the 95th percentile, or this many times their noise, count as reversals."""
PARTS = 20
"""Of the recording, for the jackknife."""
MODEL_ERROR = 0.01
"""Standard deviation of a mass by gains of the sensors and errors of the model, as a fraction."""
BY_FORCE = 0.003
"""Standard deviation of the friction in proportion to the force by errors of the model, as a fraction of the force: the
speeds between which the other friction is interpolated.
"""
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
    """What a recording shows of a rod: position, speed with the noise of it, force, and where they are of use.

    ``is_shaft``: a motor's, with friction in proportion to the force.
    """

    x: Floats
    v: Floats
    noise: float
    force: Floats
    used: NDArray[np.bool_]
    dt: float
    is_shaft: bool = False


def rod_of(cylinder: CylinderSettings, recording: Recording, pressures: Mapping[str, Floats]) -> Rod:
    """From the pressures at the piston, by side (``"A"``, ``"B"``); none at an open side."""
    name, dt, width = str(cylinder.position), recording.dt, WIDTHS[0]
    x, sensor = recording.channels[name], recording.noise.get(name)
    noise = sensor.value * sqrt(dt / (4.0 * sqrt(pi) * width**3)) if sensor is not None else 0.0
    used = recording.known & (np.abs(x / cylinder.stroke - 0.5) < 0.5 - END_OF_STROKE)
    area_A, area_B = cylinder.areas()
    force = area_A * pressures["A"] - (area_B * pressures["B"] if "B" in pressures else 0.0)
    for pressure in pressures.values():
        used = used & (pressure > MIN_PRESSURE)
    return Rod(x, _smoothed(x, width, dt, 1), noise, np.asarray(force), used, dt)


def shaft_of(motor: MotorSettings, recording: Recording, pressures: Mapping[str, Floats]) -> Rod:
    """A motor's shaft in revolutions, from the pressures by side."""
    name, dt, width = str(motor.speed), recording.dt, WIDTHS[0]
    speed, sensor = recording.channels[name], recording.noise.get(name)
    noise = sensor.value * sqrt(dt / (2.0 * sqrt(pi) * width)) if sensor is not None else 0.0
    used = recording.known
    for pressure in pressures.values():
        used = used & (pressure > MIN_PRESSURE)
    turned = np.cumsum(speed) * dt
    force = motor.displacement * (pressures["A"] - pressures["B"])
    return Rod(turned, _smoothed(turned, width, dt, 1), noise, np.asarray(force), used, dt, is_shaft=True)


def motion_of(rod: Rod) -> RodMotion | None:
    """The motion of a rod; None where the recording does not show the mass."""
    found = [motion for width in WIDTHS if (motion := _motion(rod, width)) is not None]
    if not found:
        return None
    best = min(found, key=lambda motion: motion.mass.deviation / motion.mass.value)
    spread = float(np.std([motion.mass.value for motion in found]))
    mass = best.mass.with_further(spread, MODEL_ERROR * best.mass.value)
    return replace(best, mass=mass) if mass.deviation <= USEFUL * mass.value else None


def _motion(rod: Rod, width: float) -> RodMotion | None:
    """With a Gaussian of this width, s."""
    dt, ticks = rod.dt, _evaluated(rod, width)
    if len(ticks) < PARTS:
        return None
    x, acceleration = (_smoothed(rod.x, width, dt, order)[ticks] for order in (0, 2))
    speeds = np.percentile(np.abs(rod.v[ticks]), SPEEDS)
    resisting = [*(np.sign(rod.v)[:, None] * _between(np.abs(rod.v), speeds)).T]
    if rod.is_shaft:
        resisting.append(np.sign(rod.v) * np.abs(rod.force))
    columns = np.column_stack(
        [
            *(_smoothed(rod.force, width, dt, order)[ticks] for order in (0, 2, 1)),
            *(-_smoothed(share, width, dt, 0)[ticks] for share in resisting),
            np.ones(len(ticks)),
            x - x.mean(),
        ]
    )
    scale = np.linalg.norm(columns, axis=0)
    if not np.all(scale > 0.0):
        return None

    def solved(kept: NDArray[np.bool_]) -> Floats:
        """Mass, 1/k, friction at the speeds and by the force; inf where the force does not accelerate."""
        shares = np.linalg.lstsq(columns[kept] / scale, acceleration[kept], rcond=None)[0] / scale
        mass = 1.0 / shares[0] if shares[0] > 0.0 else inf
        return np.array([mass, shares[1], *(shares[3 : 3 + len(resisting)] * mass)])

    part = np.arange(len(ticks)) * PARTS // len(ticks)
    values = solved(np.ones(len(ticks), dtype=bool))
    without = np.array([solved(part != number) for number in range(PARTS)])
    if not (np.all(np.isfinite(without)) and np.all(np.isfinite(values))):
        return None
    deviations = sqrt(PARTS - 1.0) * np.std(without, axis=0)
    mass, compliance, *friction = (Estimate(*pair) for pair in zip(values.tolist(), deviations.tolist(), strict=True))
    by_force = friction.pop().with_further(BY_FORCE) if rod.is_shaft else Estimate(0.0, 0.0)
    return RodMotion(mass, dict(zip(speeds.tolist(), friction, strict=True)), compliance, by_force)


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
    slow = np.abs(rod.v) <= max(SLOW * usual, OF_NOISE * rod.noise)
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
