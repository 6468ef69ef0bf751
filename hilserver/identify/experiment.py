r"""The signals of a valve in a recording, and the model's prediction of them.

A valve's flow into a port follows from the chamber of a cylinder (continuity: swept volume and compression), or of a
motor (:mod:`hilserver.identify.motor_chamber`),

.. math:: \int Q\,dt = \pm A\,x + \int C\,dp + \int c\,(p - p_{other})\,dt

or from a flow sensor; a spool sensor measures the spool itself. The valve's model (:mod:`hilserver.identify.model`) is
fitted to all signals that are available, by :mod:`hilserver.identify.fit`. Volumes are compared as changes per tick,
with the same filter on both sides: no signal is differentiated to obtain a flow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError
from hilserver.identify.chamber import Chamber, ChamberSignals, laws
from hilserver.identify.fit import Signal
from hilserver.identify.influences import (
    ACCURACY,
    LAMINAR,
    OTHER_EDGES,
    CorrectedChannels,
    ahead,
    edge_influences,
    relative_delay,
    sensor_influences,
    shows_delay,
    uniform,
    unseen_delay,
)
from hilserver.identify.model import (
    Spool,
    SpoolMotion,
    delay_of,
    follow,
    lag_of,
    mean_openings,
    mean_shares,
    shares_now,
)
from hilserver.identify.motor_chamber import BESIDE_SPEED, MotorChamber
from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.recorded import SETTLING, Recording
from hilserver.numerics.arrays import Floats
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.valves import corner_frequency

MOTION = ("frequency", "damping", "lag", "null", "hysteresis")
VALVE = ("C_PA", "C_AT", "leakage", "gone_at", "overlap", LAMINAR, *OTHER_EDGES, *MOTION)
"""Parameters of a valve: of the motion of its spool, and of its flow."""
KEPT, PARTS_KEPT = 16, 8
"""Predictions of a signal that are kept, and what they are made of: many parameters change one signal of several."""
LAG_USEFUL = 0.7e-3
"""s: standard deviation with which a lag is still useful, beside the delay of sensors that no recording shows."""

SPOOL_LAW, DAMPING_LAW, EDGES, LEAKAGE_LAW = 0.002, 0.004, 0.002, 0.005
"""Definitional uncertainties (VIM 2.27), as fractions: with accurate sensors, the difference between the laws and the
simulation of the same laws (its steps) is already as large, and no real valve follows them as closely.
"""
EDGE_POSITION = 3e-4
"""The same of the place of an edge, and of the play of the spool, as a fraction of full stroke: edges are round by
several times as much, and friction of the spool is no play of one width.
"""


class NotIdentifiable(HilserverError):
    """Neither rig nor recording shows the flow of the valve."""


@dataclass(frozen=True)
class Sensor:
    """A flow or spool sensor of a valve: the signal at the ticks; ``delay_known``: its channel has a delay."""

    channel: str
    measured: Floats
    used: NDArray[np.bool_]
    delay_known: bool


@dataclass(frozen=True)
class MeasuredValve:
    """What a recording shows of a valve: signals of its chambers; ``flow_laws``: as there, for the flow sensor."""

    chambers: list[ChamberSignals]
    flow_laws: tuple[Floats, Floats]


class Experiment:
    """The signals of one valve in a recording, and the model's prediction of them."""

    def __init__(self, rig: Rig, recording: Recording, valve: str) -> None:
        self.rig, self.valve, self.dt = rig, valve, recording.dt
        self.settings: ValveSettings = rig.settings.valves[valve]
        self.command = recording.commands[valve]
        self.C_PA, self.curve = self.settings.nominal_flow.coefficient(), self.settings.curve()
        settled = np.arange(len(self.command)) * self.dt >= SETTLING
        self._known = recording.known & settled
        self.recording = recording
        self.chambers = [chamber for port in self._ports() if (chamber := self._chamber(*port)) is not None]
        self._capacitance = [chamber.capacitance(recording.channels) for chamber in self.chambers]
        self.flow = self._sensor(recording, self.settings.flow)
        self.spool = self._sensor(recording, self.settings.spool)
        self._influences = self._influencing()
        self._errors = [*self._influences, *(p.slope for p in self._influences.values() if p.slope)]
        self._errors_of = functools.cache(self._errors_of_now)
        self._channels = CorrectedChannels(recording, self.pressures())
        self._chamber_signals = functools.lru_cache(maxsize=PARTS_KEPT)(self._chamber_signals_now)
        self._flow_laws = functools.lru_cache(maxsize=PARTS_KEPT)(self._flow_laws_now)
        self.signals = self._signals()
        self._follow = functools.lru_cache(maxsize=PARTS_KEPT)(self._follow_now)
        self._openings = functools.lru_cache(maxsize=PARTS_KEPT)(self._openings_now)
        self._shares = functools.lru_cache(maxsize=PARTS_KEPT)(self._shares_now)
        self._predictions = [(names, _kept(prediction, names)) for names, prediction in self._predicting()]

    # --- signals -----------------------------------------------------------------------------------------------------

    def _ports(self) -> list[tuple[str, float]]:
        other = self.settings.other_port
        return [(self.settings.port, 1.0), *([(other, -1.0)] if other is not None else [])]

    def _chamber(self, port: str, turn: float) -> Chamber | None:
        """The chamber at a port; None without a cylinder or motor whose motion is measured."""
        for number, actuator in enumerate(self.rig.settings.hydraulic_actuators().values()):
            if actuator.motion is not None and port in (actuator.port_A, actuator.port_B):
                kind = Chamber if isinstance(actuator, CylinderSettings) else MotorChamber
                return kind(self.rig, self.settings, port, turn, number, self.dt)
        return None

    def _sensor(self, recording: Recording, channel: str | None) -> Sensor | None:
        if channel is None or not self.rig.settings.channels[channel].is_measured:
            return None
        delay_known = "delay" in self.rig.settings.channels[channel].model_fields_set
        return Sensor(channel, recording.channels[channel], self._known, delay_known)

    def _signals(self) -> list[Signal]:
        channels = self.recording.channels
        chambers = zip(self.chambers, self.measured({}).chambers, self._capacitance, strict=True)
        signals = [
            Signal(
                f"volume {c.port}",
                now.volume,
                c.used(channels, self._known),
                summed=c.differs,
                noise=c.noise(self.recording, capacitance),
            )
            for c, now, capacitance in chambers
        ]
        for name, sensor in (("flow", self.flow), ("spool", self.spool)):
            if sensor is not None:
                signals.append(Signal(name, sensor.measured, sensor.used, summed=False))
        if not signals:
            raise NotIdentifiable(
                f"{self.rig.file}: valves.{self.valve}: the flow of this valve is not known. Required: a cylinder "
                "with a measured position (cylinders.…) or a motor with a measured speed (motors.…) at its port, or a "
                "channel of its flow or its spool."
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
        to_tank = v.nominal_flow_AT.coefficient() / self.C_PA
        leak = v.leakage.coefficient() / self.C_PA if v.leakage else 0.0
        gone = float(self.curve.linear_opening(v.leakage.gone_at if v.leakage else 0.1))
        f45 = corner_frequency(v)
        f90 = v.f90 or f45 / (sqrt(v.damping**2 + 1.0) - v.damping)
        lag = lag_of(f90, v.damping) if second_order else lag_of(f45, 0.0)
        unseen, scale = 0.0 if self.recording.delays_known else unseen_delay(self.dt), uniform(ACCURACY)
        found: dict[str, Parameter] = {}
        if self.chambers or self.flow:
            found |= {
                "C_PA": Parameter(1.0, 0.05, 20.0, 1.0, 0.05, inseparable=scale),
                "C_AT": Parameter(to_tank, 0.05, 20.0, 1.0, 0.05, inseparable=scale),
                "leakage": Parameter(leak, 0.0, 0.3, 0.01, 0.003, definition=LEAKAGE_LAW),
                "gone_at": Parameter(gone, 0.02, 0.6, 0.1, 0.04),
                "overlap": Parameter(
                    self.curve.overlap, 0.0, 0.3, 0.02, 0.01, inseparable=EDGE_POSITION, definition=EDGES
                ),
            }
        damping = Parameter(v.damping, 0.1, 10.0, 0.5, 0.2, definition=DAMPING_LAW)
        found |= {
            "frequency": Parameter(f90 if second_order else f45, 2.0, 1000.0, 50.0, inf, definition=SPOOL_LAW),
            **({"damping": damping} if second_order else {}),
            "lag": Parameter(v.delay + lag, 0.0, 0.1, 1e-3, LAG_USEFUL + unseen, inseparable=unseen),
            "null": Parameter(0.0, -0.4, 0.4, 0.02, 0.005, inseparable=EDGE_POSITION),
            "hysteresis": Parameter(0.0, 0.0, 0.2, 0.01, 0.005, inseparable=EDGE_POSITION),
        }
        for chamber in self.chambers:
            found |= chamber.parameters() | {"piston_leakage": chamber.piston_leakage()}
        found |= self._influences
        if self.of_motor:
            found |= edge_influences(v.transition_pressure, any(c.turn < 0.0 for c in self.chambers))
        if self.flow and self.chambers:
            found |= {
                "flow_gain": Parameter(1.0, 0.3, 3.0, 1.0, 0.1),
                "flow_zero": Parameter(0.0, -q, q, 0.01 * q, 0.05 * q),
            }
            found["flow_delay"] = self._delay_of(self.flow)
        if self.spool:
            found["spool_gain"] = Parameter(1.0, 0.3, 3.0, 1.0, 0.1)
            if self.chambers or self.flow:
                found["spool_zero"] = Parameter(0.0, -0.5, 0.5, 0.02, 0.02)
                found["spool_delay"] = self._delay_of(self.spool)
        return found

    @property
    def of_motor(self) -> bool:
        """Whether the valve turns a motor: the recording then shows little of what acts like its leakage."""
        return any(isinstance(chamber, MotorChamber) for chamber in self.chambers)

    def _delay_of(self, sensor: Sensor) -> Parameter:
        """The delay of a sensor beyond the stated one: within the usual tolerance, or unknown where none is stated."""
        if sensor.delay_known:
            return relative_delay(self.dt)
        return Parameter(0.0, -5e-3, 0.05, 1e-3, 1e-3)

    def predict(self, values: Values) -> list[Floats]:
        """The model's prediction of the signals; of one that depends on the same values as before, the same array."""
        return [predict(tuple(map(values.get, names))) for names, predict in self._predictions]

    def largest_opening(self, values: Values) -> float:
        """The distance of the spool from its middle, as a fraction of its stroke, that 1 % of the used ticks exceed."""
        spool = np.abs(self.way(values).way[:-1, 0])
        used = np.any([signal.used[: len(spool)] for signal in self.signals], axis=0)
        return float(np.quantile(spool[used], 0.99))

    def spool_speed(self, values: Values) -> Floats:
        """Modelled speed of the spool after each tick, full strokes per second, not negative."""
        position = self._follow(self._motion_of(values)).way[:, 0]
        return np.abs(np.diff(position, append=position[-1])) / self.dt

    def _predicting(self) -> Iterator[tuple[tuple[str, ...], Callable[[Values], Floats]]]:
        """Of each signal the names of the values on which it depends, and its prediction from them."""
        for number, chamber in enumerate(self.chambers):
            own = (*chamber.parameters(), "piston_leakage", *self._errors_of(*self._pressures_of(chamber)))
            yield (*VALVE, *own), functools.partial(self._predict_volume, number)
        if self.flow is not None:
            own = ("flow_gain", "flow_zero", "flow_delay", *self._errors_of(*self._pressures_of_flow()))
            yield (*VALVE, *own), self._predict_flow
        if self.spool is not None:
            yield (*MOTION, "spool_gain", "spool_zero", "spool_delay"), self._predict_spool

    def _predict_volume(self, number: int, values: Values) -> Floats:
        chamber, now, volume = self.chambers[number], self._chamber_of(number, values), self._volume(number, values)
        return volume - chamber.into(volume, now, values) + self.signals[number].measured

    def _volume(self, number: int, values: Values) -> Floats:
        """The oil that the valve passes to a chamber by its model, m³ per tick."""
        coefficients = self.dt * self.coefficients(values, self.chambers[number].turn)
        volume: Floats = coefficients @ self._shares(number, *self._keys(number, values))
        return volume

    def pressures_at_pistons(self, values: Values) -> Mapping[str, Floats]:
        """By port, those behind its restriction, at the ticks."""
        return {
            chamber.port: chamber.at_piston(self._volume(number, values), self._chamber_of(number, values), values)
            for number, chamber in enumerate(self.chambers)
        }

    def _predict_flow(self, values: Values) -> Floats:
        opening = self.way(values).as_linear(self.curve).way[:, 0]
        now = self.coefficients(values, 1.0) @ shares_now(opening, *self._flow_laws_of(values), *_edges(values))
        flow = self._late(now, values.get("flow_delay", 0.0))
        return np.asarray(values.get("flow_gain", 1.0) * flow + values.get("flow_zero", 0.0), dtype=np.float64)

    def _predict_spool(self, values: Values) -> Floats:
        spool = self._late(self.way(values).way[:, 0], values.get("spool_delay", 0.0))
        return np.asarray(values["spool_gain"] * spool + values.get("spool_zero", 0.0), dtype=np.float64)

    def coefficients(self, values: Values, turn: float) -> Floats:
        """Flow coefficients of the edges to a port and to the tank, and of the leakage; ``turn``: -1 at other_port."""
        more = [1.0 + values.get(name, 0.0) if turn < 0.0 else 1.0 for name in OTHER_EDGES]
        shares = more[0] * values.get("C_PA", 1.0), more[1] * values.get("C_AT", 1.0), values.get("leakage", 0.0)
        return self.C_PA * np.array(shares)

    def _transition(self, values: Values) -> float:
        """The drop below which the flow over the edges is laminar, Pa."""
        logarithm = values.get(LAMINAR)
        return float(10.0**logarithm) if logarithm is not None else self.settings.transition_pressure

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

    def _openings_now(self, turn: float, key: tuple[float, ...], overlap: float, gone_at: float) -> Floats:
        return mean_openings(self._follow(key).as_linear(self.curve), turn, overlap, gone_at)

    def _keys(self, number: int, values: Values) -> tuple[Any, ...]:
        """On what the shares of a chamber depend: the spool's motion, the errors of its sensors, the edges."""
        return self._motion_of(values), *self._keys_of_signals(number, values), *_edges(values)

    def _keys_of_signals(self, number: int, values: Values) -> tuple[tuple[float, ...], float]:
        """On what the signals of a chamber depend: the errors of its sensors, where the edges are laminar."""
        return self._key(self._pressures_of(self.chambers[number]), values), self._transition(values)

    def _shares_now(
        self,
        number: int,
        motion: tuple[float, ...],
        errors: tuple[float, ...],
        p_tr: float,
        overlap: float,
        gone_at: float,
    ) -> Floats:
        now, turn = self._chamber_signals(number, errors, p_tr), self.chambers[number].turn
        return mean_shares(self._openings(turn, motion, overlap, gone_at), now.law_port, now.law_tank)

    # --- influences of the sensors ------------------------------------------------------------------------------------

    def pressures(self) -> list[str]:
        """The channels of pressures on which the flow of the valve depends."""
        chambers = [name for c in self.chambers for name in (c.pressure, c.other) if name is not None]
        return [*chambers, *(self._pressures_of_flow() if self.flow else self._supply())]

    def sensors_of_unknown_delay(self) -> list[str]:
        """The channels of flow and spool sensors without a stated delay."""
        return [s.channel for s in (self.flow, self.spool) if s is not None and not s.delay_known]

    def measured_channels(self) -> list[str]:
        """All measured channels on which the result depends."""
        motions = [chamber.motion for chamber in self.chambers]
        channels = self.rig.settings.channels
        return [name for name in [*self.pressures(), *motions, *self._sensors()] if channels[name].is_measured]

    def reference_channels(self) -> list[str]:
        """The channels against which the recording shows the delays of the other ones."""
        return [chamber.motion for chamber in self.chambers] or self._sensors()

    def _sensors(self) -> list[str]:
        return [sensor.channel for sensor in (self.flow, self.spool) if sensor is not None]

    def _supply(self) -> list[str]:
        return [self.settings.supply, self.settings.tank]

    def _pressures_of(self, chamber: Chamber) -> list[str]:
        return [name for name in (chamber.pressure, chamber.other) if name is not None] + self._supply()

    def _pressures_of_flow(self) -> list[str]:
        return [self.rig.settings.ports[self.settings.port], *self._supply()]

    def _influencing(self) -> dict[str, Parameter]:
        """Errors of the sensors of pressures."""
        if not self.chambers and self.flow is None:
            return {}
        found = sensor_influences(self.rig, self.recording, self.pressures())
        if not self.of_motor:
            return found
        delays = {f"delay {name}": shows_delay(self.recording, name) for name in self.pressures()}
        beside = BESIDE_SPEED * self.dt
        shown = {name: p for name, p in found.items() if delays.get(name, True)}
        return {name: replace(p, inseparable=beside) if name in delays else p for name, p in shown.items()}

    def _errors_of_now(self, *pressures: str) -> list[str]:
        """The errors of these sensors among the parameters, and what a fit adds to them."""
        return [name for name in self._errors if name.endswith(tuple(f" {pressure}" for pressure in pressures))]

    def _key(self, pressures: Iterable[str], values: Values) -> tuple[float, ...]:
        return tuple(values.get(name, 0.0) for name in self._errors_of(*pressures))

    def measured(self, values: Values) -> MeasuredValve:
        """What the recording shows, less these errors of its sensors."""
        empty = np.empty(0)
        return MeasuredValve(
            chambers=[self._chamber_of(number, values) for number in range(len(self.chambers))],
            flow_laws=self._flow_laws_of(values) if self.flow is not None else (empty, empty),
        )

    def _chamber_of(self, number: int, values: Values) -> ChamberSignals:
        return self._chamber_signals(number, *self._keys_of_signals(number, values))

    def _chamber_signals_now(self, number: int, errors: tuple[float, ...], p_tr: float) -> ChamberSignals:
        chamber = self.chambers[number]
        return chamber.signals(self._corrected(self._pressures_of(chamber), errors), self._capacitance[number], p_tr)

    def _flow_laws_of(self, values: Values) -> tuple[Floats, Floats]:
        return self._flow_laws(self._key(self._pressures_of_flow(), values), self._transition(values))

    def _flow_laws_now(self, errors: tuple[float, ...], p_tr: float) -> tuple[Floats, Floats]:
        port, *supply = self._pressures_of_flow()
        return laws(self.settings, port, self._corrected([port, *supply], errors), p_tr)

    def _corrected(self, pressures: Sequence[str], errors: tuple[float, ...]) -> Mapping[str, Floats]:
        """The channels, these pressures without errors of their sensors."""
        return self._channels.less(dict(zip(self._errors_of(*pressures), errors, strict=True)))

    def _late(self, signal: Floats, delay: float) -> Floats:
        return ahead(signal, -delay / self.dt) if delay != 0.0 else signal


def _edges(values: Values) -> tuple[float, float]:
    return values.get("overlap", 0.0), values.get("gone_at", 0.1)


def _kept(predict: Callable[[Values], Floats], names: Sequence[str]) -> Callable[[tuple[float | None, ...]], Floats]:
    """The prediction as a function of the values with these names, which keeps the last ones; None: there is none."""

    def predicted(key: tuple[float | None, ...]) -> Floats:
        return predict({name: value for name, value in zip(names, key, strict=True) if value is not None})

    return functools.lru_cache(maxsize=KEPT)(predicted)
