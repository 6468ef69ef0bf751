"""Friction and contact."""

from __future__ import annotations

from math import tanh

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import step


@compilable
def smooth_sign(v: float, v_0: float) -> float:
    """sign(v) for fixed steps: tanh(v/v_0), 76 % at v_0. Source: theory §3.

    >>> smooth_sign(0.0, 0.01), round(smooth_sign(-0.01, 0.01), 3)
    (0.0, -0.762)
    """
    return tanh(v / v_0)


@compilable
def friction_factor(speed: float) -> float:
    """The seal friction's dependence on speed, xi: 1 at rest, 0.2 at 0.1 m/s, 1 again from 5 m/s; speed >= 0 in m/s.

    The source prints two cubics, 1600v³ - 240v² + 1 and -0.0136v³ + 0.1040v² - 0.0204v + 0.2010. They are the STEPs
    between these three points, with rounded coefficients; the STEPs themselves are used: they join without a jump.
    Source: theory §3; [Virtual hydraulics] eq. 3.48, ch. 4.2.4.

    >>> friction_factor(0.0), round(friction_factor(0.1), 12), friction_factor(5.0), friction_factor(9.0)
    (1.0, 0.2, 1.0, 1.0)
    >>> v = 0.05; abs(friction_factor(v) - (1600*v**3 - 240*v**2 + 1)) < 1e-12
    True
    """
    if speed < 0.1:
        return step(speed, 0.0, 1.0, 0.1, 0.2)
    return step(speed, 0.1, 0.2, 5.0, 1.0)


@compilable
def stop_force(depth: float, speed: float, K: float, D: float, zone: float) -> float:
    """Force of an end stop on a part at ``depth`` within it that moves deeper at ``speed``; never pulls.

    Spring and damper, both faded in by a STEP over the first ``zone``: no force spike at contact, at any speed.
    Units: m, m/s, N/m, N·s/m, m; result N, >= 0. Source: theory §3.

    >>> stop_force(0.0, 9.0, 1e8, 2e5, 1e-4), stop_force(1e-3, 0.0, 1e8, 2e5, 1e-4)
    (0.0, 100000.0)
    >>> stop_force(1e-3, -1.0, 1e8, 2e5, 1e-4)
    0.0
    """
    if depth <= 0.0:
        return 0.0
    return step(depth, 0.0, 0.0, zone, 1.0) * max(K * depth + D * speed, 0.0)


@compilable
def stop_mass(depth: float, K: float, D: float, zone: float, h: float) -> float:
    """Minimum mass, kg, that explicit steps of ``h`` s can stop: h·D/2 + h²·K, faded in like the stop's force.

    A mass m that moves against spring and damper has the rates D/m and sqrt(K/m); with at least this mass, times h they
    are at most 2 and 1 (sqrt(3) while the force is faded in, where its slope is up to 3·K). Within the stability region
    of RK4 (2.78 real, 2.83 imaginary: Hairer & Wanner II, IV.2). ``h`` = 0, an L-stable method, requires none.

    >>> stop_mass(1e-3, 1e8, 2e5, 1e-4, 1e-4), stop_mass(1e-3, 1e8, 2e5, 1e-4, 0.0), stop_mass(0.0, 1e8, 2e5, 1e-4, 1.0)
    (11.0, 0.0, 0.0)
    """
    if depth <= 0.0:
        return 0.0
    return step(depth, 0.0, 0.0, zone, 1.0) * h * (0.5 * D + h * K)
