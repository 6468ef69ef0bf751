"""Dry friction: Stribeck curve, its smooth form, and the LuGre bristle model."""

from __future__ import annotations

from math import exp

from hilserver.numerics.compilable import compilable
from hilserver.numerics.motion import friction_factor, smooth_sign
from hilserver.numerics.shape import clip, step

EFFICIENCY, STRIBECK, LUGRE = 0.0, 1.0, 2.0
"""The laws of friction, as kernel parameters."""
FASTEST = 1e4
"""1/s; maximum rate at which bristles settle. It has no effect on a slide that lasts for milliseconds."""


@compilable
def stribeck(v: float, F_S: float, F_C: float, v_s: float) -> float:
    """Magnitude of the friction at a steady speed, without its viscous part: F_S at rest, falling to F_C beyond v_s.

    Units: m/s, N. Source: theory §3; [Linjama].

    >>> stribeck(0.0, 3.0, 2.0, 0.01), round(stribeck(-0.01, 3.0, 2.0, 0.01), 4), stribeck(1.0, 3.0, 2.0, 0.01)
    (3.0, 2.3679, 2.0)
    """
    r = v / v_s
    return F_C + (F_S - F_C) * exp(-r * r)


@compilable
def lugre(v: float, z: float, g: float, F_S: float, b: float, sigma0: float, sigma1: float) -> tuple[float, float]:
    r"""Friction force and dz/dt at the bristle deflection z; g > 0: steady force at this speed, F_S >= g: its limit.

    .. math:: \dot z = v - \frac{\sigma_0 |v|}{g} z, \qquad F = \sigma_0 z + \min(\sigma_1, 4g/|v|)\,\dot z + b\,v

    Three bounds keep the model passive and its force finite for any values, speeds and steps, and leave steady states:

    - The bristles' damping is at most 4·g/abs(v). With that F·v - d/dt(sigma0·z²/2) is a quadratic form of z and v that
      is never negative: the bristles return no more energy than they store. (With a constant sigma1 this holds only for
      b >= sigma1·(F_S/F_C - 1): Barabanov & Ortega, Necessary and sufficient conditions for passivity of the LuGre
      friction model, IEEE TAC 45 (2000).)
    - Bristles deflected in the direction of motion settle at most at the rate FASTEST: fast sliding is not stiff.
    - The force is that of a deflection of at most F_S/sigma0, even in the stages of too long a step.

    Units: m/s, m, N, N, N·s/m, N/m, N·s/m. Source: theory §3; Canudas de Wit, Olsson, Åström & Lischinsky, A new model
    for control of systems with friction, IEEE TAC 40 (1995).

    >>> lugre(0.0, 0.5, 1.5, 1.5, 0.4, 2.0, 300.0)  # at rest: a spring
    (1.0, 0.0)
    >>> F, dz = lugre(0.5, 1e-5, 1.0, 1.5, 0.4, 1e5, 300.0); round(F, 12), round(dz, 12)  # sliding: g + b·v
    (1.2, 0.0)
    """
    speed = abs(v)
    bend = clip(z, -F_S / sigma0, F_S / sigma0)
    rate = sigma0 * speed / g
    dz = v - rate * bend
    if rate > FASTEST and v * bend > 0.0:
        dz *= FASTEST / rate
    damping = sigma1 if sigma1 * speed <= 4.0 * g else 4.0 * g / speed
    return sigma0 * bend + damping * dz + b * v, dz


@compilable
def dry_friction(
    law: float,
    v: float,
    z: float,
    psi: float,
    F_S: float,
    F_C: float,
    v_s: float,
    b: float,
    v_0: float,
    sigma0: float,
    sigma1: float,
) -> tuple[float, float]:
    """Friction force against increasing position, N, and dz/dt, by the law STRIBECK or LUGRE; psi scales F_S and F_C.

    Stribeck: tanh(v/v_0)·g(v) + b·v; z is not used and does not change. Source: theory §3; [Linjama].

    >>> dry_friction(STRIBECK, 0.1, 0.0, 2.0, 3.0, 2.0, 0.01, 10.0, 0.001, 0.0, 0.0)
    (5.0, 0.0)
    """
    g = psi * stribeck(v, F_S, F_C, v_s)
    if law == LUGRE:
        return lugre(v, z, g, psi * F_S, b, sigma0, sigma1)
    return smooth_sign(v, v_0) * g + b * v, 0.0


@compilable
def pressure_factor(p_A: float, p_B: float, p_ref: float) -> float:
    """Ratio of the seals' friction with and without pressure, Psi = 1 + (p_A/3 + 2·p_B/3)/p_ref; never below 1.

    Source: theory §3; [Linjama].

    >>> pressure_factor(3e6, 6e6, 1e7), pressure_factor(-1e5, 0.0, 1e7)
    (1.5, 1.0)
    """
    return 1.0 + max(p_A + 2.0 * p_B, 0.0) / (3.0 * p_ref)


@compilable
def seal_friction(
    p_A: float,
    p_B: float,
    v: float,
    z: float,
    F_p: float,
    law: float,
    loss: float,
    polynomial: float,
    v_0: float,
    F_S: float,
    F_C: float,
    v_s: float,
    b: float,
    sigma0: float,
    sigma1: float,
    p_ref: float,
) -> tuple[float, float]:
    """Friction force of a cylinder's seals, N, against increasing position, and dz/dt.

    With the law EFFICIENCY: xi(v)·tanh(v/v_0)·abs(F_p)·loss with the hydraulic force F_p ([Virtual hydraulics]
    eqs. 3.48, 4.7); otherwise dry friction under the pressures of the chambers ([Linjama]).
    Source: theory §3.

    >>> F, _ = seal_friction(0, 0, 5.0, 0, -2e4, EFFICIENCY, 0.1, 1.0, 0.01, 0, 0, 1, 0, 0, 0, 1e7); round(F, 9)
    2000.0
    """
    if law == EFFICIENCY:
        xi = friction_factor(abs(v)) if polynomial > 0.0 else 1.0
        return xi * smooth_sign(v, v_0) * abs(F_p) * loss, 0.0
    psi = pressure_factor(p_A, p_B, p_ref)
    return dry_friction(law, v, z, psi, F_S, F_C, v_s, b, v_0, sigma0, sigma1)


@compilable
def seal_slope(
    p_A: float,
    p_B: float,
    F_p: float,
    law: float,
    loss: float,
    v_0: float,
    F_S: float,
    b: float,
    sigma1: float,
    p_ref: float,
) -> float:
    """Slope of ``seal_friction`` over the speed at rest, N·s/m: what damps a piston that stands still.

    >>> seal_slope(0, 0, -2e4, EFFICIENCY, 0.1, 0.01, 0, 0, 0, 1e7), seal_slope(0, 0, 0, LUGRE, 0, 1, 0, 2.0, 3.0, 1e7)
    (200000.0, 5.0)
    """
    if law == EFFICIENCY:
        return abs(F_p) * loss / v_0
    return b + (sigma1 if law == LUGRE else pressure_factor(p_A, p_B, p_ref) * F_S / v_0)


@compilable
def cushion_force(depth: float, speed: float, k: float, closing: float) -> float:
    """Force of an end cushion on a piston at ``depth`` within it that moves deeper at ``speed``; never pulls.

    k·v², k = A³/C_v²: the oil in front of the piston's area A leaves through an orifice that closes over ``closing``.
    Units: m, m/s, N·s²/m², m; result N, >= 0.

    >>> cushion_force(0.02, 0.5, 1e6, 0.01), cushion_force(0.005, 0.5, 1e6, 0.01), cushion_force(0.02, -0.5, 1e6, 0.01)
    (250000.0, 62500.0, 0.0)
    """
    if depth <= 0.0 or speed <= 0.0:
        return 0.0
    closed = step(depth, 0.0, 0.0, closing, 1.0)
    return k * speed * speed * closed * closed
