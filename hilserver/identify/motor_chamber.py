r"""The oil between a valve and a hydraulic motor: the flow of the valve from speed and pressures.

.. math:: \int Q\,dt = \pm V \int n\,dt + \int C\,dp + \int c\,(p - p_{other})\,dt + \int c_e\,p\,dt

with the displacement V per revolution, the speed n in revolutions per second, the leakage c to the other port and
:math:`c_e` to the case. The zero error of the sensor of n is a parameter, too: it acts like a leakage. The oil does not
change with the motion. Its hoses count as oil: the bulk modulus of ``[motors]`` contains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.chamber import MIN_PRESSURE, Chamber, ChamberSignals
from hilserver.identify.fit import SPECTRUM
from hilserver.identify.influences import ACCURACY, PISTON_LEAKAGE, influence
from hilserver.identify.parameters import Parameter, Values
from hilserver.numerics.arrays import Floats

CASE_LEAKAGE = "case_leakage"
"""The parameter."""
SOFT, LEFT_OUT = 10e5, 0.1
"""Pa gauge, below which 2 % of air make oil several times as soft; the largest share of a recording that this leaves
out.
"""
BESIDE_SPEED = 0.07
"""Smallest standard deviation of the delay of a pressure against the speed, ticks: the leakage between the ports acts
like it, and how the pressures change within a tick is not known.
"""
BETWEEN_PORTS, TO_CASE = 0.025, 0.01
"""Smallest standard deviation of a leakage, as a fraction: between the ports for the same reason, and hardly any is
more closely in proportion to the pressure.
"""
OIL = 0.005
"""The same of the compliance of the oil, which air makes depend on the pressure."""
USUAL_SPEEDS = 4000.0 / 60.0
"""1/s: range of a speed sensor that does not state it."""
OVER_A_TICK = np.array([-1.0, 13.0, 13.0, -1.0]) / 24.0
"""Weights of four successive values for the mean between the second and the third of a cubic curve through them."""


class MotorChamber(Chamber):
    """A port of a valve at a motor."""

    differs = False

    def place(self, motion: Floats) -> Floats:
        """0: a motor has no stroke."""
        return np.zeros(len(motion))

    def freed(self, motion: Floats) -> Floats:
        """The volume that it takes in, m³ per tick, with the mean of a cubic curve through four speeds.

        The mean of two lacks a share of the acceleration's change, which would be taken for softer oil and a delay.
        """
        V = self.actuator.areas()[0]
        mean = np.convolve(np.pad(motion, 1, mode="edge"), OVER_A_TICK, "valid")
        return np.asarray((-V if self.at_B else V) * self.dt * mean)

    def noise_of_freed(self, deviation: float) -> Floats:
        """The power spectral density of its noise at SPECTRUM, by the noise of the speed sensor."""
        passed = 2.0 * (OVER_A_TICK[1] * np.cos(np.pi * SPECTRUM) + OVER_A_TICK[0] * np.cos(3.0 * np.pi * SPECTRUM))
        return np.asarray((passed * self.actuator.areas()[0] * self.dt * deviation) ** 2)

    def swept(self, x: Floats) -> Floats:
        """0."""
        return np.zeros(len(x))

    def shows_flow(self, channels: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """Whether both sides are full of oil: what enters a motor from a void is less than its speed shows.

        And whether its own oil is not soft: the noise of a low pressure is that of a large volume if there is air.
        """
        pressures = [channels[name] for name in (self.pressure, self.other) if name is not None]
        full, own = np.min(pressures, axis=0) >= MIN_PRESSURE, channels[self.pressure]
        return np.asarray(full & (own >= min(SOFT, float(np.quantile(own, LEFT_OUT)))))

    def parameters(self) -> dict[str, Parameter]:
        """Properties of the oil, and the leakage to the case, m³/s/Pa."""
        wanted = (f"elasticity {self.port}", f"dead volume {self.port}", f"air {self.port}")
        of_oil = {name: p for name, p in super().parameters().items() if name in wanted}
        elasticity = f"elasticity {self.port}"
        of_oil[elasticity] = replace(of_oil[elasticity], definition=OIL)
        zero = influence(ACCURACY * (self._rig.settings.channels[self.motion].span() or USUAL_SPEEDS))
        return {**of_oil, CASE_LEAKAGE: replace(influence(PISTON_LEAKAGE), definition=TO_CASE), self.zero: zero}

    def piston_leakage(self) -> Parameter:
        """Leakage between the ports, m³/s/Pa."""
        return replace(influence(PISTON_LEAKAGE), definition=BETWEEN_PORTS)

    @property
    def zero(self) -> str:
        """The parameter: zero error of the sensor of the speed, 1/s."""
        return f"zero {self.motion}"

    def into(self, volume: Floats, now: ChamberSignals, values: Values) -> Floats:
        """The volume that flowed to the motor by these signals and properties, m³ per tick."""
        p = 0.5 * (now.p[1:] + now.p[:-1])
        not_turned = values.get(self.zero, 0.0) * self.actuator.areas()[0] * (-1.0 if self.at_B else 1.0)
        return super().into(volume, now, values) + self.dt * (values.get(CASE_LEAKAGE, 0.0) * p - not_turned)
