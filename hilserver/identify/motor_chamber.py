r"""The oil between a valve and a hydraulic motor: the flow of the valve from speed and pressures.

.. math:: \int Q\,dt = \pm V \int n\,dt + \int C\,dp + \int c\,(p - p_{other})\,dt + \int c_e\,p\,dt

with the displacement V per revolution, the speed n in revolutions per second, the leakage c to the other port and
:math:`c_e` to the case. The oil does not change with the motion. Its hoses count as oil: the bulk modulus of
``[motors]`` contains them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.chamber import MIN_PRESSURE, Chamber, ChamberSignals
from hilserver.identify.fit import SPECTRUM
from hilserver.identify.influences import PISTON_LEAKAGE, influence
from hilserver.identify.parameters import Parameter, Values
from hilserver.numerics.arrays import Floats

CASE_LEAKAGE = "case_leakage"
"""The parameter."""


class MotorChamber(Chamber):
    """A port of a valve at a motor."""

    differs = False

    def place(self, motion: Floats) -> Floats:
        """0: a motor has no stroke."""
        return np.zeros(len(motion))

    def freed(self, motion: Floats) -> Floats:
        """The volume that it takes in, m³ per tick, with the mean speed over the tick."""
        V = self.actuator.areas()[0]
        return np.asarray((-V if self.at_B else V) * self.dt * 0.5 * (motion[1:] + motion[:-1]))

    def noise_of_freed(self, deviation: float) -> Floats:
        """The power spectral density of its noise at SPECTRUM, by the noise of the speed sensor."""
        return np.asarray((np.cos(np.pi * SPECTRUM) * self.actuator.areas()[0] * self.dt * deviation) ** 2)

    def swept(self, x: Floats) -> Floats:
        """0."""
        return np.zeros(len(x))

    def shows_flow(self, channels: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """Whether both sides are full of oil: what enters a motor from a void is less than its speed shows."""
        pressures = [channels[name] for name in (self.pressure, self.other) if name is not None]
        return np.asarray(np.min(pressures, axis=0) >= MIN_PRESSURE)

    def parameters(self) -> dict[str, Parameter]:
        """Properties of the oil, and the leakage to the case, m³/s/Pa."""
        wanted = (f"elasticity {self.port}", f"dead volume {self.port}", f"air {self.port}")
        of_oil = {name: p for name, p in super().parameters().items() if name in wanted}
        return {**of_oil, CASE_LEAKAGE: influence(PISTON_LEAKAGE)}

    def into(self, volume: Floats, now: ChamberSignals, values: Values) -> Floats:
        """The volume that flowed to the motor by these signals and properties, m³ per tick."""
        p = 0.5 * (now.p[1:] + now.p[:-1])
        return super().into(volume, now, values) + values.get(CASE_LEAKAGE, 0.0) * self.dt * p
