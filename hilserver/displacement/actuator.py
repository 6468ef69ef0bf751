r"""A position-controlled servo-hydraulic actuator with a specimen, linear.

.. math::
   \ddot s + \beta_1\dot s + \beta_2 s = a_1\beta_0\,(g\,u - x), \quad
   \dot F + a_3 F = s - a_2\dot x, \quad m\ddot x + c\,\dot x + k x = F

u: command, m; x: displacement, m; F: force on the specimen, N, as a load cell measures it. If the oil also accelerates
a mass :math:`m_p` between piston and load cell, its force is :math:`F + m_p\ddot x`, and

.. math:: (1 + \rho)\,\dot F = s - a_2\dot x - a_3 (F + m_p\ddot x) + \rho\,(k\dot x + c\,\ddot x), \quad
   \rho = m_p/m, \quad m\ddot x = F - c\,\dot x - k x - L

L is a force on the specimen that is not described and does not change. The actuator has its own proportional position
loop; :math:`a_2\dot x` is the flow that the moving piston takes (the natural velocity feedback). Source: Silva, Gomez,
Maghareh, Dyke & Spencer, Mech. Syst. Signal Process. 135 (2020) 106381, sec. 4.2; Carrion & Spencer, NSEL report 6
(2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import numpy as np

from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.specimen import Specimen
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.displacement import VELOCITY_SCALE

SCALE: Floats = np.array([1e-3, VELOCITY_SCALE, 1e3, 1e5, 1e7])
"""Typical sizes of the states: displacement m, velocity m/s, force N, signal of the servo valve and its derivative."""
SEEN: Matrix = np.array([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
"""Displacement and force from the states."""


class ActuatorModel(Protocol):
    """What the design needs to know of an actuator: see `Actuator`."""

    @property
    def specimen(self) -> Specimen:
        """What it moves."""

    @property
    def delay(self) -> float:
        """From a command until it acts, s."""

    @property
    def limit(self) -> float:
        """The largest command, m."""

    def motion(self) -> LinearMotion:
        """State: x, dx/dt, F, s, ds/dt. Inputs: the command, and L, a force on the specimen."""

    def shifted(self, changes: Mapping[str, float]) -> ActuatorModel:
        """The same with these changes of its parameters."""


OF_SPECIMEN = ("stiffness", "damping")
"""Parameters that belong to the specimen."""


@dataclass(frozen=True)
class Actuator:
    """Servo valve, actuator and the specimen that it moves, in SI units; see the module for the equations.

    ``delay``: s from a command until it acts, rounded to whole ticks; ``limit``: the largest command, m;
    ``moving_mass``: m_p, kg, between piston and load cell.
    """

    a1_beta0: float
    a2: float
    a3: float
    beta1: float
    beta2: float
    gain: float
    specimen: Specimen
    delay: float = 0.0
    limit: float = inf
    moving_mass: float = 0.0

    def motion(self) -> LinearMotion:
        """State: x, dx/dt, F, s, ds/dt. Inputs: the command, and L, a force on the specimen."""
        part, A, B = self.specimen, np.zeros((5, 5)), np.zeros((5, 2))
        ratio = self.moving_mass / part.mass
        A[0, 1] = 1.0
        A[1, :3] = -part.stiffness / part.mass, -part.damping / part.mass, 1.0 / part.mass
        B[1, 1] = -1.0 / part.mass
        A[2] = 0.0, ratio * part.stiffness - self.a2, -self.a3, 1.0, 0.0
        with_acceleration = ratio * part.damping - self.a3 * self.moving_mass
        A[2], B[2] = A[2] + with_acceleration * A[1], with_acceleration * B[1]
        A[2], B[2] = A[2] / (1.0 + ratio), B[2] / (1.0 + ratio)
        A[3, 4] = 1.0
        A[4] = -self.a1_beta0, 0.0, 0.0, -self.beta2, -self.beta1
        B[4, 0] = self.a1_beta0 * self.gain
        return LinearMotion(A, B)

    def shifted(self, changes: Mapping[str, float]) -> Actuator:
        """The same with these changes of its parameters; ``stiffness`` and ``damping``: of the specimen."""
        part = {name: getattr(self.specimen, name) + changes[name] for name in OF_SPECIMEN if name in changes}
        own = {name: getattr(self, name) + change for name, change in changes.items() if name not in OF_SPECIMEN}
        return replace(self, **own, specimen=replace(self.specimen, **part))
