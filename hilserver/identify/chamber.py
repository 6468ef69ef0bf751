r"""The oil between a valve and the piston of a cylinder: the flow of the valve from position and pressures.

.. math:: \int Q\,dt = \pm A\,x + \int C\,dp + \int c\,(p - p_{other})\,dt

The compliance C is the stated one, plus contributions of softer oil, of a hose (softer at low pressure), of air (much
softer), and of another dead volume; these contributions are identified. Behind a restriction between port and piston
(:math:`p_{piston} = p - R\,Q|Q|`) the oil is compressed later than the pressure at the port tells: by
:math:`2\,C R\,|Q|`. The pressures that drive leakage past the piston are those behind the restrictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.fit import Parameter, Values
from hilserver.identify.influences import (
    AIR,
    DEAD_VOLUME,
    ELASTICITY,
    HOSE,
    HOSE_MODULUS,
    PISTON_LEAKAGE,
    RESTRICTION,
    ROD_SPEED,
    SMOOTH_PRESSURE,
    influence,
    smoothed,
    uniform,
)
from hilserver.identify.model import orifice_law
from hilserver.identify.recorded import widened
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.settings import ValveSettings
from hilserver.tick.cylinder import chamber_A, chamber_B
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.records import plain

MIN_PRESSURE = 1e5
"""Pa gauge, below which a chamber contains air as well as oil."""
END_OF_STROKE = 0.005
"""Fraction of the stroke at either end that is left out: end stops and cushions."""
AROUND_ENDS = 0.02
"""s that are left out before and after the piston is there, or the pressure that low."""


@dataclass(frozen=True)
class ChamberSignals:
    """Signals of a chamber, tick by tick.

    ``law_port``, ``law_tank``: orifice law of the drops p_S - p and p - p_T; per tick, m³: ``volume`` into the chamber,
    ``compressed``, ``hose``, ``air``, ``dead``, ``line``: the smoothed part that compresses the stated oil, the wall of
    a hose instead of the dead volume, air of 100 %, the dead volume, and the stated line before the restriction;
    ``behind``: m³/Pa, the stated capacitance behind it; ``past``: Pa·s, which drives leakage past the piston.
    """

    law_port: Floats
    law_tank: Floats
    volume: Floats
    compressed: Floats
    hose: Floats
    air: Floats
    dead: Floats
    line: Floats
    behind: Floats
    past: Floats


class Chamber:
    """A port of a valve at the chamber of a cylinder. ``turn`` is -1 at the valve's other edges."""

    def __init__(self, rig: Rig, valve: ValveSettings, port: str, turn: float, number: int, dt: float) -> None:
        self.port, self.turn, self.dt = port, turn, dt
        self._rig, self._valve, self.line = rig, valve, plain(rig.plan.cylinder[number])
        self.cylinder: CylinderSettings = list(rig.settings.cylinders.values())[number]
        self._at_B = port == self.cylinder.port_B
        other = self.cylinder.port_A if self._at_B else self.cylinder.port_B
        area_A, area_B = self.cylinder.areas()
        self.pressure, self._other_port = rig.settings.ports[port], other
        self.other = rig.settings.ports[other] if other is not None else None
        self._other_share = area_A / area_B if self._at_B else area_B / area_A

    def signals(self, channels: Mapping[str, Floats], capacitance: Floats) -> ChamberSignals:
        """The signals from these channels."""
        p, x = channels[self.pressure], channels[str(self.cylinder.position)]
        p_other = channels[self.other] if self.other is not None else np.zeros(len(p))
        area_A, area_B = self.cylinder.areas()
        change = np.diff(smoothed(p, round(SMOOTH_PRESSURE / self.dt)))
        middle = np.maximum(_middle(p), MIN_PRESSURE)
        dead, line = self.dead, self.line
        V, before = capacitance / self._oil_compliance(middle), self.line_volume * self._oil_compliance(middle)
        law_port, law_tank = laws(self._valve, self.pressure, channels)
        return ChamberSignals(
            law_port=law_port,
            law_tank=law_tank,
            volume=(-area_B if self._at_B else area_A) * np.diff(x) + capacitance * np.diff(p),
            compressed=capacitance * change,
            hose=dead / (HOSE_MODULUS * np.sqrt(middle)) * change,
            air=V * free_air(middle, line) * change,
            dead=dead * self._oil_compliance(middle) * change,
            line=before * change,
            behind=capacitance - before,
            past=_middle(p - p_other) * self.dt,
        )

    def _oil_compliance(self, p: Floats) -> Floats:
        """1/B_e of the oil as it is stated, 1/Pa (:func:`hilserver.numerics.fluid.capacitance`)."""
        m = self.line
        return np.asarray(1.0 / m.B_o + m.alpha_0 * free_air(p, m), dtype=np.float64)

    def compliances(self, x: Floats, p: Floats) -> dict[str, Floats]:
        """What the parameters of the fit contribute to the compliance at positions and pressures, m³/Pa, per unit."""
        V, oil = self.dead + self.swept(x), self._oil_compliance(p)
        return {
            f"elasticity {self.port}": V * oil,
            f"air {self.port}": V * free_air(p, self.line),
            f"hose {self.port}": self.dead / (HOSE_MODULUS * np.sqrt(p)),
            f"dead volume {self.port}": self.dead * oil,
        }

    @property
    def dead(self) -> float:
        """The stated dead volume, m³."""
        return float(self.line.dead_B if self._at_B else self.line.dead_A)

    @property
    def line_volume(self) -> float:
        """The part of it that is stated to lie before the restriction, m³."""
        return float(self.line.line_B if self._at_B else self.line.line_A)

    def behind(self, x: Floats, p: Floats) -> Floats:
        """The stated capacitance behind the restriction at positions and pressures, m³/Pa."""
        return (self.dead - self.line_volume + self.swept(x)) * self._oil_compliance(p)

    def swept(self, x: Floats) -> Floats:
        """Volume between piston and end of the stroke, m³."""
        area_A, area_B = self.cylinder.areas()
        return area_B * (self.cylinder.stroke - x) if self._at_B else area_A * x

    def capacitance(self, channels: Mapping[str, Floats]) -> Floats:
        """The stated capacitance in the middle of each tick, m³/Pa."""
        of = chamber_B if self._at_B else chamber_A
        x, p = channels[str(self.cylinder.position)], channels[self.pressure]
        middle = zip(_middle(x).tolist(), _middle(p).tolist(), strict=True)
        return np.array([of(x_now, p_now, self.line) for x_now, p_now in middle])

    def used(self, channels: Mapping[str, Floats], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The ticks with the piston away from its ends, and without cavitation."""
        p, x = channels[self.pressure], channels[str(self.cylinder.position)]
        inside = np.abs(x / self.cylinder.stroke - 0.5) < 0.5 - END_OF_STROKE
        around = round(AROUND_ENDS / self.dt)
        good = known & ~widened(~inside | (p < MIN_PRESSURE), around, around)
        used: NDArray[np.bool_] = good[:-1] & good[1:]
        return used

    def parameters(self) -> dict[str, Parameter]:
        """Properties of the oil and its surroundings at this port, and the restriction at the other one."""
        ports = [port for port in (self.port, self._other_port) if port is not None]
        return {
            f"elasticity {self.port}": Parameter(1.0, 0.1, 10.0, 1.0, np.inf, uniform(ELASTICITY)),
            f"dead volume {self.port}": influence(DEAD_VOLUME),
            f"hose {self.port}": influence(HOSE),
            f"air {self.port}": influence(AIR),
            **{f"restriction {port}": influence(RESTRICTION) for port in ports},
        }

    def piston_leakage(self) -> Parameter:
        """Leakage past the piston, m³/s/Pa."""
        return influence(PISTON_LEAKAGE)

    def into(self, signals: ChamberSignals, values: Values) -> Floats:
        """The volume that flowed into the chamber by these signals and properties, m³ per tick."""
        return signals.volume - signals.compressed + self.into_oil(signals, values)

    def into_oil(self, signals: ChamberSignals, values: Values) -> Floats:
        """The smoothed part of it that did not move the piston, m³ per tick."""
        oil = values[f"elasticity {self.port}"] * signals.compressed + values["piston_leakage"] * signals.past
        oil += values.get(f"hose {self.port}", 0.0) * signals.hose
        oil += values.get(f"air {self.port}", 0.0) * signals.air
        oil += values.get(f"dead volume {self.port}", 0.0) * signals.dead
        return oil

    def behind_restriction(self, volume: Floats, signals: ChamberSignals, values: Values) -> Floats:
        """By how much the volume by the ports' pressures exceeds that of the valve, m³ per tick; ``volume``: of it.

        At the piston the pressure differs by the restriction's drop, which compresses less oil, and drives less of it
        past the piston; the other chamber's oil passes a restriction, too.
        """
        elasticity = values[f"elasticity {self.port}"]
        through = volume - values.get(f"hose {self.port}", 0.0) * (signals.hose + signals.dead)
        through -= elasticity * signals.line
        share = through / (ROD_SPEED * max(self.cylinder.areas()) * self.dt)
        square = share * np.abs(share)
        own, other = (values.get(f"restriction {port}", 0.0) for port in (self.port, self._other_port))
        compressed = elasticity * signals.behind * own * np.gradient(square)
        past = values["piston_leakage"] * self.dt * (own + other * self._other_share**2) * square
        return np.asarray(compressed + past, dtype=np.float64)


def laws(valve: ValveSettings, pressure: str, channels: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Orifice law of the drops from supply to port and from port to tank, sqrt(Pa)."""
    p, p_S, p_T = (channels[name] for name in (pressure, valve.supply, valve.tank))
    return orifice_law(p_S - p, valve.transition_pressure), orifice_law(p - p_T, valve.transition_pressure)


def free_air(p: Floats, line: CylinderRecord) -> Floats:
    """Compliance of a volume of 100 % free air (at atmospheric pressure) per volume of oil, 1/Pa."""
    absolute = p + line.p_0
    return np.asarray((line.p_0 / absolute) ** (1.0 / line.kappa) / (line.kappa * absolute), dtype=np.float64)


def _middle(values: Floats) -> Floats:
    return 0.5 * (values[1:] + values[:-1])
