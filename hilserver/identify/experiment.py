r"""The signals of a valve in a recording, and the model's prediction of them.

A valve's flow into a port follows from the chamber of a cylinder (continuity: swept volume and compression)

.. math:: \int Q\,dt = \pm A\,x + \int C\,dp + \int c\,(p - p_{other})\,dt

or from a flow sensor; a spool sensor measures the spool itself. The valve's model (:mod:`hilserver.identify.model`) is
fitted to all signals that are available, by :mod:`hilserver.identify.fit`. Volumes are compared as changes per tick,
with the same filter on both sides: no signal is differentiated to obtain a flow.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from hilserver.errors import HilserverError
from hilserver.identify.fit import Parameter, Signal, Values
from hilserver.identify.model import Spool, SpoolMotion, delay_of, follow, lag_of, mean_shares, orifice_law, shares_now
from hilserver.identify.recorded import SETTLING, Recording, widened
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.valves import corner_frequency
from hilserver.tick.cylinder import chamber_A, chamber_B

LEAST_PRESSURE = 1e5
"""Pa gauge, below which a chamber contains air as well as oil."""
END_OF_STROKE = 0.005
"""Share of the stroke at either end that is left out: end stops and cushions."""
AROUND_ENDS = 0.02
"""s that are left out before and after the piston is there, or the pressure that low."""
SMOOTHING = 0.025
"""s over which a pressure is smoothed to identify the elasticity of the oil, so that its noise is not taken for it."""


class NotIdentifiable(HilserverError):
    """Neither rig nor recording shows the flow of the valve."""


@dataclass(frozen=True)
class Chamber:
    """A port of a valve at the chamber of a cylinder, tick by tick. ``turn`` is -1 at the valve's other edges.

    ``law_port``, ``law_tank``: orifice law of the drops p_S - p and p - p_T; per tick, m³: ``volume`` into the chamber,
    ``compressed``: the smoothed part that compressed the oil; ``past``: Pa·s, which drives leakage past the piston.
    """

    port: str
    turn: float
    law_port: Floats
    law_tank: Floats
    volume: Floats
    compressed: Floats
    past: Floats
    used: NDArray[np.bool_]


@dataclass(frozen=True)
class Sensor:
    """A flow or spool sensor of a valve: the signal at the ticks; ``delay_known``: its channel has a delay."""

    channel: str
    measured: Floats
    used: NDArray[np.bool_]
    delay_known: bool


class Experiment:
    """The signals of one valve in a recording, and the model's prediction of them."""

    def __init__(self, rig: Rig, recording: Recording, valve: str) -> None:
        self.rig, self.valve, self.dt = rig, valve, recording.dt
        self.settings: ValveSettings = rig.settings.valves[valve]
        self.command = recording.commands[valve]
        self.C_PA = self.settings.nominal_flow.coefficient()
        settled = np.arange(len(self.command)) * self.dt >= SETTLING
        self._known = recording.known & settled
        self.chambers = [chamber for port in self._ports() if (chamber := self._chamber(recording, *port)) is not None]
        self.flow = self._sensor(recording, self.settings.flow)
        self.spool = self._sensor(recording, self.settings.spool)
        self.flow_laws = self._laws(recording, self.settings.port) if self.flow is not None else None
        self.signals = self._signals()
        self._follow = functools.lru_cache(maxsize=2)(self._follow_now)
        self._shares = functools.lru_cache(maxsize=4)(self._shares_now)

    # --- signals -----------------------------------------------------------------------------------------------------

    def _ports(self) -> list[tuple[str, float]]:
        other = self.settings.other_port
        return [(self.settings.port, 1.0), *([(other, -1.0)] if other is not None else [])]

    def _laws(self, recording: Recording, port: str) -> tuple[Floats, Floats]:
        p, v = recording.channels[self.rig.settings.ports[port]], self.settings
        p_S, p_T = recording.channels[v.supply], recording.channels[v.tank]
        return orifice_law(p_S - p, v.transition_pressure), orifice_law(p - p_T, v.transition_pressure)

    def _chamber(self, recording: Recording, port: str, turn: float) -> Chamber | None:
        """The chamber at a port; None without a cylinder with a measured position."""
        for number, cylinder in enumerate(self.rig.settings.cylinders.values()):
            if cylinder.position is not None and port in (cylinder.port_A, cylinder.port_B):
                line, position = self.rig.plan.cylinder[number], cylinder.position
                break
        else:
            return None
        ports, at_B = self.rig.settings.ports, port == cylinder.port_B
        other = cylinder.port_A if at_B else cylinder.port_B
        p, x = recording.channels[ports[port]], recording.channels[position]
        p_other = recording.channels[ports[other]] if other is not None else np.zeros(len(p))
        area_A, area_B = cylinder.areas()
        capacitance = chamber_B if at_B else chamber_A
        middle = zip(_middle(x).tolist(), _middle(p).tolist(), strict=True)
        C = np.array([capacitance(x_now, p_now, line) for x_now, p_now in middle])
        swept = (-area_B if at_B else area_A) * np.diff(x)
        inside = np.abs(x / cylinder.stroke - 0.5) < 0.5 - END_OF_STROKE
        around = round(AROUND_ENDS / self.dt)
        good = self._known & ~widened(~inside | (p < LEAST_PRESSURE), around, around)
        return Chamber(
            port=port,
            turn=turn,
            law_port=(laws := self._laws(recording, port))[0],
            law_tank=laws[1],
            volume=swept + C * np.diff(p),
            compressed=C * np.diff(_smoothed(p, round(SMOOTHING / self.dt))),
            past=_middle(p - p_other) * self.dt,
            used=good[:-1] & good[1:],
        )

    def _sensor(self, recording: Recording, channel: str | None) -> Sensor | None:
        if channel is None or self.rig.settings.channels[channel].device is None:
            return None
        delay_known = "delay" in self.rig.settings.channels[channel].model_fields_set
        return Sensor(channel, recording.channels[channel], self._known, delay_known)

    def _signals(self) -> list[Signal]:
        signals = [Signal(f"volume {c.port}", c.volume, c.used, summed=True) for c in self.chambers]
        for name, sensor in (("flow", self.flow), ("spool", self.spool)):
            if sensor is not None:
                signals.append(Signal(name, sensor.measured, sensor.used, summed=False))
        if not signals:
            raise NotIdentifiable(
                f"{self.rig.file}: valves.{self.valve}: the flow of this valve is not known. Required: a cylinder "
                "with a measured position at its port (cylinders.…), or a channel of its flow or its spool."
            )
        for signal in signals:
            if signal.used.sum() * self.dt < 1.0:
                raise NotIdentifiable(
                    f"{self.rig.file}: valves.{self.valve}: less than a second of {signal.name} is usable: samples "
                    "are missing, the piston is at its end stop, or there is no pressure."
                )
        return signals

    # --- parameters -------------------------------------------------------------------------------------------------

    def parameters(self, second_order: bool) -> dict[str, Parameter]:
        """The valve's parameters, then those of sensors and machine that affect the signals."""
        v, q = self.settings, self.settings.nominal_flow.flow
        to_tank = (v.nominal_flow_to_tank or v.nominal_flow).coefficient() / self.C_PA
        leak = v.leakage.coefficient() / self.C_PA if v.leakage else 0.0
        gone = v.leakage.gone_at if v.leakage else 0.1
        f45 = corner_frequency(v)
        f90 = v.f90 or f45 / (sqrt(v.damping**2 + 1.0) - v.damping)
        lag = lag_of(f90, v.damping) if second_order else lag_of(f45, 0.0)
        found: dict[str, Parameter] = {}
        if self.chambers or self.flow:
            found |= {
                "C_PA": Parameter(1.0, 0.05, 20.0, 1.0, 0.05),
                "C_AT": Parameter(to_tank, 0.05, 20.0, 1.0, 0.05),
                "leakage": Parameter(leak, 0.0, 0.3, 0.01, 0.003),
                "gone_at": Parameter(gone, 0.02, 0.6, 0.1, 0.04),
                "overlap": Parameter(v.overlap, 0.0, 0.3, 0.02, 0.01),
            }
        found |= {
            "frequency": Parameter(f90 if second_order else f45, 2.0, 1000.0, 50.0, inf),
            **({"damping": Parameter(v.damping, 0.1, 10.0, 0.5, 0.2)} if second_order else {}),
            "lag": Parameter(v.delay + lag, 0.0, 0.1, 1e-3, 0.7e-3),
            "null": Parameter(0.0, -0.4, 0.4, 0.02, 0.005),
            "hysteresis": Parameter(0.0, 0.0, 0.2, 0.01, 0.005),
        }
        found |= {f"elasticity {c.port}": Parameter(1.0, 0.1, 10.0, 1.0, 0.3) for c in self.chambers}
        if self.chambers:
            found["piston_leakage"] = Parameter(0.0, 0.0, q / 1e6, 0.01 * q / 1e7, 0.002 * q / 1e7)
        if self.flow and self.chambers:
            found |= {
                "flow_gain": Parameter(1.0, 0.3, 3.0, 1.0, 0.1),
                "flow_zero": Parameter(0.0, -q, q, 0.01 * q, 0.05 * q),
            }
            found |= {} if self.flow.delay_known else {"flow_delay": Parameter(0.0, -5e-3, 0.05, 1e-3, 1e-3)}
        if self.spool:
            found["spool_gain"] = Parameter(1.0, 0.3, 3.0, 1.0, 0.1)
            if self.chambers or self.flow:
                found["spool_zero"] = Parameter(0.0, -0.5, 0.5, 0.02, 0.02)
                found |= {} if self.spool.delay_known else {"spool_delay": Parameter(0.0, -5e-3, 0.05, 1e-3, 1e-3)}
        return found

    def predict(self, values: Values) -> list[Floats]:
        """The model's prediction of the signals."""
        predicted = []
        key = self._motion_of(values)
        edges = values.get("overlap", 0.0), values.get("gone_at", 0.1)
        C = self.C_PA * np.array([values.get("C_PA", 1.0), values.get("C_AT", 1.0), values.get("leakage", 0.0)])
        for number, chamber in enumerate(self.chambers):
            volume = (C * self.dt) @ self._shares(number, key, *edges)
            volume -= (values[f"elasticity {chamber.port}"] - 1.0) * chamber.compressed
            predicted.append(volume - values["piston_leakage"] * chamber.past)
        way = np.ascontiguousarray(self._follow(key).way[:, 0])
        if self.flow is not None and self.flow_laws is not None:
            flow = self._late(C @ shares_now(way, *self.flow_laws, *edges), values.get("flow_delay", 0.0))
            predicted.append(values.get("flow_gain", 1.0) * flow + values.get("flow_zero", 0.0))
        if self.spool is not None:
            spool = self._late(way, values.get("spool_delay", 0.0))
            predicted.append(values["spool_gain"] * spool + values.get("spool_zero", 0.0))
        return predicted

    def way(self, values: Values) -> Spool:
        """The position of the spool."""
        return self._follow(self._motion_of(values))

    @staticmethod
    def _motion_of(values: Values) -> tuple[float, ...]:
        frequency, damping = values["frequency"], values.get("damping", 0.0)
        return frequency, damping, delay_of(values), values["null"], values["hysteresis"]

    def _follow_now(self, key: tuple[float, ...]) -> Spool:
        frequency, damping, delay, null, hysteresis = key
        return follow(self.command, self.dt, SpoolMotion(frequency, damping, delay), null, hysteresis)

    def _shares_now(self, number: int, key: tuple[float, ...], overlap: float, gone_at: float) -> Floats:
        c = self.chambers[number]
        return mean_shares(self._follow(key), c.turn, c.law_port, c.law_tank, overlap, gone_at)

    def _late(self, signal: Floats, delay: float) -> Floats:
        if delay == 0.0:
            return signal
        time = np.arange(len(signal)) * self.dt
        return np.asarray(CubicSpline(time, signal)(np.maximum(time - delay, 0.0)), dtype=np.float64)


def _middle(values: Floats) -> Floats:
    return 0.5 * (values[1:] + values[:-1])


def _smoothed(values: Floats, ticks: int) -> Floats:
    window = np.hanning(2 * (ticks // 2) + 3)[1:-1]
    padded = np.pad(values, len(window) // 2, mode="edge")
    return np.convolve(padded, window / window.sum(), "valid")
