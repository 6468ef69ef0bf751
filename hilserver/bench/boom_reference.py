"""An independent solution of the hydraulic boom: one Lagrange equation for the angle, two pressures, one spool;

SciPy's DOP853. None of hilserver's code is used, only the numbers in its files; the equations are those of theory §3
and §5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, hypot, pi, sin, sqrt, tanh

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

G = 9.81
A_A, A_B = 0.25 * pi * 0.05**2, 0.25 * pi * (0.05**2 - 0.03**2)
STROKE, DEAD, MODULUS, LOSS = 0.5, 1.0632e-4, 1.4e9, 0.1
P_S, P_T, P_TR = 150e5, 1e5, 1e5
C_V, TAU = 1.069e-7, 1.0 / (2.0 * pi * 200.0)
BASE, HEAD = (0.15, -0.9), (0.65, -0.1)  # pins, from the pivot, boom level
RETRACTED = 0.6233981

Floats = NDArray[np.float64]


def step(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The source's STEP, eq. 33."""
    s = min(max((x - x0) / (x1 - x0), 0.0), 1.0)
    return y0 + (y1 - y0) * s * s * (3.0 - 2.0 * s)


def command(t: float) -> float:
    """The source's work cycle, eq. 34, ±10 V as ±1."""
    volts = step(t, 0.3, 0, 0.7, 5) + step(t, 1, 0, 1.2, -5) + step(t, 2, 0, 2.3, -8) + step(t, 2.5, 0, 3, 8)
    return volts / 10.0


@dataclass(frozen=True)
class BoomCylinder:
    """Masses of barrel and rod: m, J about the centre, distance of the centre from its pin."""

    m_b: float = 0.0
    J_b: float = 0.0
    c_b: float = 0.0
    m_r: float = 0.0
    J_r: float = 0.0
    c_r: float = 0.0


@dataclass(frozen=True)
class Boom:
    """A boom of one degree of freedom; ``m_rod``: moving mass of the piston without weight."""

    centre: float
    cylinder: BoomCylinder
    m_rod: float = 0.001
    mass: float = 200.0
    J: float = 190.0

    def geometry(self, angle: float) -> tuple[float, float, float, float, float]:
        """Length of the cylinder, its lever arm dL/dangle, its rotation dphi/dangle, its direction."""
        hx, hy = cos(angle) * HEAD[0] - sin(angle) * HEAD[1], sin(angle) * HEAD[0] + cos(angle) * HEAD[1]
        dx, dy = hx - BASE[0], hy - BASE[1]
        length = hypot(dx, dy)
        return length, (dy * hx - dx * hy) / length, (dx * hx + dy * hy) / length**2, dx / length, dy / length

    def inertia(self, angle: float) -> float:
        """Twice the kinetic energy over the squared speed of the boom."""
        c = self.cylinder
        _, arm, turn, ux, uy = self.geometry(angle)
        hx, hy = cos(angle) * HEAD[0] - sin(angle) * HEAD[1], sin(angle) * HEAD[0] + cos(angle) * HEAD[1]
        vx, vy = -hy + c.c_r * turn * uy, hx - c.c_r * turn * ux
        return (
            self.J
            + self.mass * self.centre**2
            + (c.J_b + c.m_b * c.c_b**2 + c.J_r) * turn**2
            + c.m_r * (vx * vx + vy * vy)
            + self.m_rod * arm**2
        )

    def potential(self, angle: float) -> float:
        """Potential energy of the weights, J."""
        c = self.cylinder
        _, _, _, _, uy = self.geometry(angle)
        hy = sin(angle) * HEAD[0] + cos(angle) * HEAD[1]
        return G * (self.mass * self.centre * sin(angle) + c.m_b * c.c_b * uy + c.m_r * (hy - c.c_r * uy))

    def acceleration(self, angle: float, speed: float, force: float) -> float:
        """Of the boom, rad/s², under a force of the cylinder in N; the equation of Lagrange."""
        _, arm, _, _, _ = self.geometry(angle)
        torque = force * arm - slope(self.potential, angle) - 0.5 * slope(self.inertia, angle) * speed**2
        return torque / self.inertia(angle)

    def rates(self, t: float, y: Floats) -> list[float]:
        """Of angle, speed, p_A, p_B, spool."""
        angle, speed, p_A, p_B, U = y
        length, arm, *_ = self.geometry(angle)
        x, v = length - RETRACTED, arm * speed
        F_p = A_A * p_A - A_B * p_B
        force = F_p - friction_factor(abs(v)) * tanh(v / 0.01) * abs(F_p) * LOSS
        if U >= 0.0:
            q_A, q_B = C_V * U * root(P_S - p_A), -C_V * U * root(p_B - P_T)
        else:
            q_A, q_B = C_V * U * root(p_A - P_T), -C_V * U * root(P_S - p_B)
        return [
            speed,
            self.acceleration(angle, speed, force),
            (q_A - A_A * v) * MODULUS / (DEAD + A_A * x),
            (q_B + A_B * v) * MODULUS / (DEAD + A_B * (STROKE - x)),
            (command(t) - U) / TAU,
        ]

    def run(self, times: Floats) -> Floats:
        """Angle, speed, p_A, p_B and spool at these times; converged to about 1e-9 rad and 1 Pa."""
        start = [0.0, 0.0, 92e5, 110e5, 0.0]
        scale = np.array([1e-11, 1e-10, 1e-2, 1e-2, 1e-10])
        found = solve_ivp(self.rates, (0.0, times[-1]), start, "DOP853", times, rtol=1e-9, atol=scale, max_step=2e-3)
        assert found.success
        return np.asarray(found.y)


def slope(function: Callable[[float], float], x: float) -> float:
    """Derivative, differences of fourth order."""
    h = 1e-3
    return (8.0 * (function(x + h) - function(x - h)) - function(x + 2 * h) + function(x - 2 * h)) / (12.0 * h)


def root(dp: float) -> float:
    """Square root of a pressure drop, laminar below P_TR."""
    r = abs(dp) / P_TR
    size = sqrt(abs(dp)) if r >= 1.0 else sqrt(P_TR) * r * (3.0 - r) / 2.0
    return size if dp >= 0.0 else -size


def friction_factor(speed: float) -> float:
    """The source's factor over the speed in m/s."""
    return step(speed, 0.0, 1.0, 0.1, 0.2) if speed < 0.1 else step(speed, 0.1, 0.2, 5.0, 1.0)


LIGHT = Boom(1.306064, BoomCylinder())
HEAVY = Boom(1.2713027, BoomCylinder(22.0, 0.75, 0.30, 10.0, 0.40, 0.35))
