r"""A position-controlled servo-hydraulic actuator in the terms of its datasheets.

The equations are those of :mod:`hilserver.displacement.actuator`. With the velocity gain :math:`K_v` of the position
loop, the frequency :math:`\omega` and the damping ratio d of the servo valve, and the stiffness :math:`K_h` of the oil,

.. math:: a_1\beta_0 = K_v\,\omega^2 K_h, \quad a_2 = K_h, \quad \beta_1 = 2 d\,\omega, \quad \beta_2 = \omega^2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, pi

from hilserver.displacement.actuator import OF_SPECIMEN, Actuator
from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.specimen import Specimen


@dataclass(frozen=True)
class ServoActuator:
    """Actuator and specimen, SI.

    ``velocity_gain``: velocity without load per position error, 1/s; ``f90``, Hz, and ``damping`` of the servo valve;
    ``oil_stiffness``, N/m; ``force_decay``: 1/s, by leakage; ``position_gain``: displacement at rest per command.
    ``delay``, ``limit``, ``moving_mass``: see `Actuator`.
    """

    velocity_gain: float
    f90: float
    damping: float
    oil_stiffness: float
    force_decay: float
    position_gain: float
    specimen: Specimen
    delay: float = 0.0
    limit: float = inf
    moving_mass: float = 0.0

    def linear(self) -> Actuator:
        """The coefficients of its transfer functions."""
        omega = 2.0 * pi * self.f90
        return Actuator(
            a1_beta0=self.velocity_gain * omega**2 * self.oil_stiffness,
            a2=self.oil_stiffness,
            a3=self.force_decay,
            beta1=2.0 * self.damping * omega,
            beta2=omega**2,
            gain=self.position_gain,
            specimen=self.specimen,
            delay=self.delay,
            limit=self.limit,
            moving_mass=self.moving_mass,
        )

    def motion(self) -> LinearMotion:
        """State: x, dx/dt, F, s, ds/dt. Inputs: the command, and a force on the specimen."""
        return self.linear().motion()

    def shifted(self, changes: Mapping[str, float]) -> ServoActuator:
        """The same with these changes of its parameters; ``specimen_…``: of the specimen."""
        own = {name: getattr(self, name) + change for name, change in changes.items() if name not in OF_ITS_SPECIMEN}
        of_part = {name.removeprefix(SPECIMEN): x for name, x in changes.items() if name in OF_ITS_SPECIMEN}
        part = {name: getattr(self.specimen, name) + change for name, change in of_part.items()}
        return replace(self, **own, specimen=replace(self.specimen, **part))


SPECIMEN = "specimen_"
OF_ITS_SPECIMEN = tuple(SPECIMEN + name for name in OF_SPECIMEN)
"""Parameters of the specimen."""
UNCERTAIN = ("velocity_gain", "f90", "damping", "oil_stiffness", "force_decay", "position_gain", *OF_ITS_SPECIMEN)
"""Parameters that can be tracked."""
