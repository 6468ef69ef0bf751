r"""A position-controlled servo-hydraulic actuator with a specimen, linear.

.. math::
   \ddot s + \beta_1\dot s + \beta_2 s = a_1\beta_0\,(g\,u - x), \quad
   \dot F + a_3 F = s - a_2\dot x, \quad m\ddot x + c\,\dot x + k x = F

u: command, m; x: displacement, m; F: force on the specimen, N. The actuator has its own proportional position loop;
:math:`a_2\dot x` is the flow that the moving piston takes (the natural velocity feedback). Source: Silva, Gomez,
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
        """State: x, dx/dt, F, s, ds/dt. Input: command."""

    def shifted(self, changes: Mapping[str, float]) -> ActuatorModel:
        """The same with these changes of its parameters."""


OF_SPECIMEN = ("stiffness", "damping")
"""Parameters that belong to the specimen."""


@dataclass(frozen=True)
class Actuator:
    """Servo valve, actuator and the specimen that it moves, in SI units; see the module for the equations.

    ``delay``: s from a command until it acts, rounded to whole ticks; ``limit``: the largest command, m.
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

    def motion(self) -> LinearMotion:
        """State: x, dx/dt, F, s, ds/dt. Input: command."""
        part = self.specimen
        A = np.array(
            [
                [0.0, 1.0, 0.0, 0.0, 0.0],
                [-part.stiffness / part.mass, -part.damping / part.mass, 1.0 / part.mass, 0.0, 0.0],
                [0.0, -self.a2, -self.a3, 1.0, 0.0],
                [0.0, 0.0, 0.0, 0.0, 1.0],
                [-self.a1_beta0, 0.0, 0.0, -self.beta2, -self.beta1],
            ]
        )
        B = np.zeros((5, 1))
        B[4, 0] = self.a1_beta0 * self.gain
        return LinearMotion(A, B)

    def shifted(self, changes: Mapping[str, float]) -> Actuator:
        """The same with these changes of its parameters; ``stiffness`` and ``damping``: of the specimen."""
        part = {name: getattr(self.specimen, name) + changes[name] for name in OF_SPECIMEN if name in changes}
        own = {name: getattr(self, name) + change for name, change in changes.items() if name not in OF_SPECIMEN}
        return replace(self, **own, specimen=replace(self.specimen, **part))
