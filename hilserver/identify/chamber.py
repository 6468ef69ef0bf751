r"""The oil between a valve and the piston of a cylinder: the flow of the valve from position and pressures.

.. math:: \int Q\,dt = \pm A\,x + \int C\,dp + \int c\,(p - p_{other})\,dt

The compliance C is the stated one, plus contributions of softer oil, of a hose (softer at low pressure), of air (much
softer), and of another dead volume; these contributions are identified. Hose and line lie before the restriction
between port and piston, the other oil behind it, where the pressure is lower by its drop, that of an orifice:
:math:`p_{piston} = p - \Delta p(Q)`. It compresses that oil, and drives leakage past the piston. Pressures may change
far within a tick where air is compressed; volumes are therefore differences of the compressed volume, not
products of a compliance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.fit import SPECTRUM
from hilserver.identify.influences import (
    AIR,
    DEAD_VOLUME,
    ELASTICITY,
    HOSE,
    LINE,
    PISTON_LEAKAGE,
    RESTRICTION,
    ROD_SPEED,
    SMOOTH_PRESSURE,
    USUAL_TRANSITION,
    influence,
    response,
    smoothed,
    transition_influence,
    uniform,
)
from hilserver.identify.kept import Kept
from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.recorded import Recording, widened
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow_of_arrays import drop_of_law, orifice_law
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.tick.cylinder import chamber_A, chamber_B
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.records import plain

MIN_PRESSURE = 1e5
"""Pa gauge, below which a chamber contains air as well as oil."""
LEAST_PRESSURE = -0.9e5
"""Pa gauge: lower pressures behind a restriction, which only wrong parameters lead to, count as this one."""
TO_TICKS = np.array([-1.0, 7.0, 7.0, -1.0]) / 12.0
"""Weights of the means over four successive ticks, for the value between the second and the third (cubic)."""
END_OF_STROKE = 0.005
"""Fraction of the stroke at either end that is left out: end stops and cushions."""
NOISE_AT = 100
"""Number of ticks over which the noise of the volume is averaged."""
AROUND_ENDS = 0.02
"""s that are left out before and after the piston is there, or the pressure that low."""


@dataclass(frozen=True)
class ChamberSignals:
    """Signals of a chamber.

    At the ticks: ``law_port``, ``law_tank``, the orifice law of the drops p_S - p and p - p_T; ``p``, the smoothed
    pressure. Per tick, m³: ``volume``, into the chamber with the oil as it is stated; ``stated``, the smoothed part of
    it that compresses oil; ``hose``, what the wall of a hose takes up instead of the dead volume; ``swept``, the oil in
    the stroke. ``past``: Pa·s, which drives leakage past the piston. ``air``: `air_compressed` at ``p``.
    """

    law_port: Floats
    law_tank: Floats
    p: Floats
    volume: Floats
    stated: Floats
    hose: Floats
    swept: Floats
    past: Floats
    air: Floats


class Chamber:
    """A port of a valve at the chamber of a cylinder. ``turn`` is -1 at the valve's other edges.

    That of a motor (:class:`hilserver.identify.motor_chamber.MotorChamber`) differs in what its motion shows.
    ``differs``: the volume per tick is a difference of measured values.
    """

    differs = True

    def __init__(self, rig: Rig, valve: ValveSettings, port: str, turn: float, number: int, dt: float) -> None:
        self.port, self.turn, self.dt = port, turn, dt
        self._rig, self._valve, self.line = rig, valve, plain(rig.plan.cylinder[number])
        self.actuator = list(rig.settings.hydraulic_actuators().values())[number]
        self.motion = str(self.actuator.motion)
        """The channel that shows the motion."""
        self.at_B = port == self.actuator.port_B
        other = self.actuator.port_A if self.at_B else self.actuator.port_B
        area_A, area_B = self.actuator.areas()
        self.pressure, self._other_port = rig.settings.ports[port], other
        self.other = rig.settings.ports[other] if other is not None else None
        self._other_share = area_A / area_B if self.at_B else area_B / area_A
        own, of_other = self.actuator.restrictions()[:: -1 if self.at_B else 1]
        self.stated_transition = own.transition_pressure if own is not None else None
        self._other_transition = of_other.transition_pressure if of_other is not None else USUAL_TRANSITION
        self._of_pressure = Kept(self._of_pressure_now)
        self._of_motion = Kept(lambda motion: self.swept(_middle(self.place(motion))))
        self._law = Kept(lambda p, p_after, p_tr: orifice_law(p - p_after, p_tr))

    def signals(self, channels: Mapping[str, Floats], capacitance: Floats, p_tr: float) -> ChamberSignals:
        """The signals from these channels; ``p_tr``: the drop below which the flow over the edges is laminar, Pa."""
        p, motion = channels[self.pressure], channels[self.motion]
        p_other = channels[self.other] if self.other is not None else np.zeros(len(p))
        smooth, hose, air = self._of_pressure(p)
        return ChamberSignals(
            law_port=self._law(channels[self._valve.supply], p, p_tr),
            law_tank=self._law(p, channels[self._valve.tank], p_tr),
            p=smooth,
            volume=self.freed(motion) + capacitance * np.diff(p),
            stated=capacitance * np.diff(smooth),
            hose=hose,
            swept=self._of_motion(motion),
            past=_middle(p - p_other) * self.dt,
            air=air,
        )

    def _of_pressure_now(self, p: Floats) -> tuple[Floats, Floats, Floats]:
        """The smoothed pressure, and the signals `ChamberSignals.hose` and ``air`` that follow from it."""
        smooth = smoothed(p, round(SMOOTH_PRESSURE / self.dt))
        hose = self.dead * np.diff(2.0 / self.wall_modulus * np.sqrt(np.maximum(smooth, MIN_PRESSURE)))
        return smooth, hose, air_compressed(smooth, self.line)

    def _compressed(self, p: Floats, compressed: Floats, values: Values) -> Floats:
        """The integral of `_softness` over the pressure: by how much 1 m³ of oil becomes smaller per tick, m³.

        ``compressed``: `air_compressed` at the pressure ``p``.
        """
        m, elasticity, air = self.line, values[f"elasticity {self.port}"], values.get(f"air {self.port}", 0.0)
        return np.diff(elasticity / m.B_o * p + (elasticity * m.alpha_0 + air) * compressed)

    def compliance(self, x: Floats, p: Floats, values: Values) -> Floats:
        """The compliance at positions and pressures, m³/Pa."""
        return self._oil(self.swept(x), values) * self._softness(p, values) + self.walls(p, self.in_hoses(values))

    def walls(self, p: Floats, in_hoses: float) -> Floats:
        """The compliance of the walls of hoses of this volume (m³) at pressures, m³/Pa."""
        return np.asarray(in_hoses / (self.wall_modulus * np.sqrt(np.maximum(p, MIN_PRESSURE))))

    def in_hoses(self, values: Values) -> float:
        """The oil in hoses, m³."""
        return self._hose(values) * self.dead

    def _hose(self, values: Values) -> float:
        """The same as a fraction of the stated dead volume."""
        return values.get(f"hose {self.port}", self.stated_hose)

    def _oil(self, swept: Floats, values: Values) -> Floats:
        """The oil, m³."""
        return (1.0 + values.get(f"dead volume {self.port}", 0.0)) * self.dead + swept

    def _softness(self, p: Floats, values: Values) -> Floats:
        """1/B_e of the oil, 1/Pa (:func:`hilserver.numerics.fluid.capacitance`)."""
        m, elasticity, air = self.line, values[f"elasticity {self.port}"], values.get(f"air {self.port}", 0.0)
        return np.asarray(elasticity / m.B_o + (elasticity * m.alpha_0 + air) * free_air(p, m), dtype=np.float64)

    @property
    def dead(self) -> float:
        """The stated dead volume, m³."""
        return float(self.line.dead_B if self.at_B else self.line.dead_A)

    @property
    def line_volume(self) -> float:
        """The part of it that is stated to lie before the restriction, m³."""
        return float(self.line.line_B if self.at_B else self.line.line_A)

    @property
    def stated_hose(self) -> float:
        """The part of it that is stated to lie in hoses, as a fraction."""
        return self.actuator.hose_volumes()[1 if self.at_B else 0] / self.dead

    def before(self, values: Values) -> float:
        """The oil before the restriction, m³: in the stated line, and in hoses and pipes that are not stated."""
        more = values.get(f"line {self.port}", 0.0) - self.stated_hose
        return self.line_volume + self.in_hoses(values) + more * self.dead

    def behind(self, x: Floats, p: Floats, values: Values) -> Floats:
        """The compliance behind the restriction at positions and pressures, m³/Pa."""
        return (self._oil(self.swept(x), values) - self.before(values)) * self._softness(p, values)

    @property
    def wall_modulus(self) -> float:
        """Bulk modulus of the walls of hoses at 1 Pa, Pa^0.5; inf: that of the oil contains them."""
        return self.actuator.hose_modulus if isinstance(self.actuator, CylinderSettings) else inf

    def place(self, motion: Floats) -> Floats:
        """The position of the piston, m, by the channel of its motion."""
        return motion

    def freed(self, motion: Floats) -> Floats:
        """The volume for which the piston makes room, m³ per tick."""
        area_A, area_B = self.actuator.areas()
        return np.asarray((-area_B if self.at_B else area_A) * np.diff(motion))

    def noise_of_freed(self, deviation: float) -> Floats:
        """The power spectral density of its noise at SPECTRUM; ``deviation``: noise of the channel of the motion."""
        area = self.actuator.areas()[1 if self.at_B else 0]
        return np.asarray(4.0 * np.sin(np.pi * SPECTRUM) ** 2 * (area * deviation) ** 2)

    def swept(self, x: Floats) -> Floats:
        """Volume between piston and end of the stroke, m³."""
        area_A, area_B = self.actuator.areas()
        return area_B * (self.line.stroke - x) if self.at_B else area_A * x

    def capacitance(self, channels: Mapping[str, Floats]) -> Floats:
        """The stated capacitance in the middle of each tick, m³/Pa."""
        of = chamber_B if self.at_B else chamber_A
        x, p = self.place(channels[self.motion]), channels[self.pressure]
        middle = zip(_middle(x).tolist(), _middle(p).tolist(), strict=True)
        return np.array([of(x_now, p_now, self.line) for x_now, p_now in middle])

    def noise(self, recording: Recording, capacitance: Floats) -> Callable[[Values], Floats] | None:
        """The power spectral density of the noise in the volume by position and pressure; None where it has none.

        The smoothed pressure compresses the values' compliance, the rest of it the stated one. An error of the gain
        acts on the smoothed pressure.
        """
        of_motion, of_p = recording.noise.get(self.motion), recording.noise.get(self.pressure)
        if of_p is None:
            return None
        change, strength = 4.0 * np.sin(np.pi * SPECTRUM) ** 2, of_p.value
        smooth = response(round(SMOOTH_PRESSURE / self.dt), SPECTRUM)
        by_motion = self.noise_of_freed(of_motion.value if of_motion is not None else 0.0)
        ticks = np.flatnonzero(self.used(recording.channels, recording.known))[:: max(len(capacitance) // NOISE_AT, 1)]
        x = self.place(recording.channels[self.motion])[ticks]
        p, stated = recording.channels[self.pressure][ticks], capacitance[ticks]

        def density(values: Values) -> Floats:
            zero, gain = (values.get(f"{word} {self.pressure}", 0.0) for word in ("zero", "gain"))
            compliance = self.compliance(x, np.maximum((1.0 - gain) * p - zero, MIN_PRESSURE), values)
            of_sensor = 1.0 - gain * smooth
            of_both = np.outer(1.0 - smooth, stated) + np.outer(smooth, compliance)
            by_pressure = change * (strength * of_sensor) ** 2 * np.mean(of_both**2, axis=1)
            return np.asarray(by_motion + by_pressure)

        return density

    def used(self, channels: Mapping[str, Floats], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The ticks with the piston away from its ends, and without cavitation."""
        around = round(AROUND_ENDS / self.dt)
        good = known & ~widened(~self.shows_flow(channels), around, around)
        used: NDArray[np.bool_] = good[:-1] & good[1:]
        return used

    def shows_flow(self, channels: Mapping[str, Floats]) -> NDArray[np.bool_]:
        """Whether the piston is away from its ends, and its chamber full of oil."""
        inside = np.abs(channels[self.motion] / self.line.stroke - 0.5) < 0.5 - END_OF_STROKE
        return np.asarray(inside & (channels[self.pressure] >= MIN_PRESSURE))

    def parameters(self) -> dict[str, Parameter]:
        """Properties of the oil and its surroundings at this port, and the restriction at the other one."""
        ports = [port for port in (self.port, self._other_port) if port is not None]
        return {
            f"elasticity {self.port}": Parameter(1.0, 0.1, 10.0, 1.0, np.inf, uniform(ELASTICITY)),
            f"dead volume {self.port}": influence(DEAD_VOLUME),
            f"hose {self.port}": replace(influence(HOSE), start=self.stated_hose),
            f"air {self.port}": influence(AIR),
            f"line {self.port}": influence(LINE),
            **{f"restriction {port}": influence(RESTRICTION) for port in ports},
            f"transition {self.port}": transition_influence(self.stated_transition or USUAL_TRANSITION),
        }

    def piston_leakage(self) -> Parameter:
        """Leakage past the piston, m³/s/Pa."""
        return influence(PISTON_LEAKAGE)

    def into(self, volume: Floats, now: ChamberSignals, values: Values) -> Floats:
        """The volume that flowed into the chamber by these signals and properties, m³ per tick.

        ``volume``: that of the valve by its model, on which the drop of the restriction depends.
        """
        own, other = (values.get(f"restriction {port}", 0.0) for port in (self.port, self._other_port))
        at_piston = at_port = self._compressed(now.p, now.air, values)
        before, share = self._through(volume, now, values, at_port)
        if own != 0.0:
            behind_it = self._less_drop(now.p, share, values)
            at_piston = self._compressed(behind_it, air_compressed(behind_it, self.line), values)
        behind = (self._oil(now.swept, values) - self.before(values)) * at_piston
        past = now.past
        if own != 0.0 or other != 0.0:
            of_other = drop_at_share(other, self._other_share * share, self._other_transition)
            past = past - self.dt * (self.drop(share, values) + of_other)
        return np.asarray(now.volume - now.stated + before + behind + values["piston_leakage"] * past)

    def at_piston(self, volume: Floats, now: ChamberSignals, values: Values) -> Floats:
        """The pressure at the piston, at the ticks."""
        _, share = self._through(volume, now, values, self._compressed(now.p, now.air, values))
        return self._less_drop(now.p, share, values)

    def transition(self, values: Values) -> float:
        """The drop below which the restriction is laminar, Pa."""
        logarithm = values.get(f"transition {self.port}")
        return float(10.0**logarithm) if logarithm is not None else self.stated_transition or USUAL_TRANSITION

    def drop(self, share: Floats, values: Values) -> Floats:
        """The drop of the restriction, Pa, at a share of the flow of ROD_SPEED."""
        return drop_at_share(values.get(f"restriction {self.port}", 0.0), share, self.transition(values))

    def _less_drop(self, p: Floats, share: Floats, values: Values) -> Floats:
        """The pressure behind the restriction, at the ticks; ``share``: mean of each tick."""
        return p - self.drop(np.convolve(share, TO_TICKS)[1:-1], values)

    def _through(self, volume: Floats, now: ChamberSignals, values: Values, at_port: Floats) -> tuple[Floats, Floats]:
        """The volume before the restriction, m³ per tick, and the flow through it as a share of that of ROD_SPEED.

        ``at_port``: by how much 1 m³ of oil becomes smaller per tick at the pressure of the port.
        """
        before = self._hose(values) * now.hose + self.before(values) * at_port
        return before, (volume - before) / (ROD_SPEED * max(self.actuator.areas()) * self.dt)


def laws(valve: ValveSettings, pressure: str, channels: Mapping[str, Floats], p_tr: float) -> tuple[Floats, Floats]:
    """Orifice law of the drops from supply to port and from port to tank, laminar below ``p_tr``, sqrt(Pa)."""
    p, p_S, p_T = (channels[name] for name in (pressure, valve.supply, valve.tank))
    return orifice_law(p_S - p, p_tr), orifice_law(p - p_T, p_tr)


def free_air(p: Floats, line: CylinderRecord) -> Floats:
    """Compliance of a volume of 100 % free air (at atmospheric pressure) per volume of oil, 1/Pa."""
    absolute = p + line.p_0
    return np.asarray((line.p_0 / absolute) ** (1.0 / line.kappa) / (line.kappa * absolute), dtype=np.float64)


def air_compressed(p: Floats, line: CylinderRecord) -> Floats:
    """The integral of `free_air` over the pressure: by how much the volume of the air is smaller, as a fraction."""
    absolute = np.maximum(p, LEAST_PRESSURE) + line.p_0
    return np.asarray(-np.exp(np.log(line.p_0 / absolute) / line.kappa), dtype=np.float64)


def drop_at_share(drop: float, share: Floats, p_tr: float) -> Floats:
    """The drop of a restriction, Pa, at a ``share`` of the flow at which it has this ``drop``.

    The law is that of the component ``orifice``.
    """
    return drop_of_law(orifice_law(np.array(drop), p_tr) * share, p_tr)


def _middle(values: Floats) -> Floats:
    return 0.5 * (values[1:] + values[:-1])
