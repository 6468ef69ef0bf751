"""The plan's table of the valves: each with its connections, characteristic, spool, bridge and output."""

from __future__ import annotations

from collections.abc import Sequence
from math import acos, acosh, cos, cosh, exp, pi, sin, sinh, sqrt
from typing import Any

import numpy as np

from hilserver.rig.flow_signal import FlowSignal
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.tick.bridge.catch_up import POLE
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.flow_signal import BENDS
from hilserver.tick.plan import SUBSTEPS_OF_MACHINE
from hilserver.tick.records import NONE

NO_FLOW = 0.01
"""Fraction of the nominal flow below which a flow counts as zero."""
LATEST = 24.0
"""Ticks by which commands of slow devices are predicted ahead at most."""


def valve_line(v: ValveSettings, settings: RigSettings, slow: SlowDevices, first_channel: int) -> dict[str, Any]:
    """A valve's line of the plan."""
    return {
        **_connections(v, settings, first_channel),
        **_ages(v, settings, slow),
        **_characteristic(v),
        **_spool(v, settings.loop.rate),
        **_bridge(v),
        **_output(v),
    }


def _connections(v: ValveSettings, settings: RigSettings, first_channel: int) -> dict[str, Any]:
    """Ports, columns of the channels, cylinder and side."""
    channels, ports = list(settings.channels), list(settings.ports)

    def column(channel: str | None) -> int:
        return first_channel + channels.index(channel) if channel is not None else NONE

    actuators = list(settings.hydraulic_actuators().values())
    cylinder = next((i for i, s in enumerate(actuators) if v.port in (s.port_A, s.port_B)), NONE)
    return {
        "port": ports.index(v.port),
        "other_port": ports.index(v.other_port) if v.other_port in ports else NONE,
        "column_p": column(settings.ports[v.port]),
        "column_S": column(v.supply),
        "column_T": column(v.tank),
        "column_Q": column(v.flow),
        "column_spool": column(v.spool),
        "cylinder": cylinder,
        "is_B": cylinder >= 0 and v.port == actuators[cylinder].port_B,
    }


def _ages(v: ValveSettings, settings: RigSettings, slow: SlowDevices) -> dict[str, Any]:
    """Delay of the command, lag of the spool sensor, and mean age of the measured flow, s."""
    spool, flow = (settings.channels.get(channel or "") for channel in (v.spool, v.flow))
    return {
        "delay": valve_delay(v, slow),
        "age_spool": spool.lag if spool is not None else 0.0,
        "age_Q": flow.lag + slow.lag(flow.device).mean if flow is not None else 0.0,
    }


def _characteristic(v: ValveSettings) -> dict[str, Any]:
    """Flow over the edges: of a linear valve that passes the same (:mod:`hilserver.tick.flow_signal`)."""
    leak = v.leakage.coefficient() if v.leakage else 0.0
    curve = v.curve()
    return {
        "C_PA": v.nominal_flow.coefficient(),
        "C_AT": v.nominal_flow_AT.coefficient(),
        "Q_nominal": v.nominal_flow.flow,
        "p_tr": v.transition_pressure,
        "overlap": curve.overlap,
        "leak_PA": leak,
        "leak_AT": leak,
        "leak_gone": float(curve.linear_opening(v.leakage.gone_at)) if v.leakage else 1.0,
        "null_band": curve.first_slope * v.bridge.null_band,
        **_bends(curve),
    }


def _bends(curve: FlowSignal) -> dict[str, float]:
    """The points of a flow-signal curve between its ends."""
    points = list(zip(curve.spool, curve.opening, strict=True))[1:-1]
    points += [(1.0, 1.0)] * (BENDS - len(points))
    lines = ({f"bend_{k}": spool, f"opening_{k}": opening} for k, (spool, opening) in enumerate(points, 1))
    return {name: x for line in lines for name, x in line.items()}


def _spool(v: ValveSettings, rate: float) -> dict[str, Any]:
    """Motion of the spool, and its transition over a sub-step."""
    tau, omega = time_constant(v), 2.0 * np.pi * v.f90 if v.f90 else 0.0
    matrix = spool_matrix(tau, omega, v.damping, 1.0 / (rate * SUBSTEPS_OF_MACHINE))
    steps = zip(("spool_11", "spool_12", "spool_21", "spool_22"), matrix, strict=True)
    gains = catch_up_gains(spool_matrix(tau, omega, v.damping, 1.0 / rate))
    catch_up = zip(("catch_up", "catch_up_speed"), gains, strict=True)
    return {"tau": tau, "omega": omega, "damping": v.damping, **dict(steps), **dict(catch_up)}


def _bridge(v: ValveSettings) -> dict[str, Any]:
    """Settings of the strategies."""
    return {
        "strategy_first": Strategy[v.bridge.strategy],
        "fade_time": v.bridge.fade,
        "tau_W": v.bridge.lead_filter,
        "feedback_time": v.bridge.feedback_time,
        "learns": v.bridge.learn,
        "K_p": v.bridge.gain / v.nominal_flow.flow,
        "T_i": v.bridge.integral_time,
        "T_d": v.bridge.derivative_time,
        "tau_d": v.bridge.derivative_filter,
        "jog_limit": v.bridge.jog_limit,
        "jog_time": v.bridge.jog_time,
    }


def _output(v: ValveSettings) -> dict[str, Any]:
    """From the command to the raw value."""
    return {
        "polarity": v.polarity,
        "null": v.null,
        "hysteresis": v.hysteresis,
        "dither": v.dither.amplitude,
        "dither_frequency": v.dither.frequency,
        "u_min": v.range[0],
        "u_max": v.range[1],
        "slew_rate": v.slew,
        "stop_rate": min(v.slew, 1.0 / v.stop_time),
        "safe_value": v.safe,
        "raw_gain": 0.5 * (v.raw[1] - v.raw[0]),
        "raw_offset": 0.5 * (v.raw[0] + v.raw[1]),
    }


def valve_delay(v: ValveSettings, slow: SlowDevices) -> float:
    """Time from a command to the start of the spool's motion, s, with the mean lag of a slow device."""
    return v.delay + min(slow.lag(v.device).mean, LATEST / slow.loop_rate)


def time_constant(v: ValveSettings) -> float:
    """Time constant of the valve's spool, s; of one of second order that of its lag at low frequency, 2·d/omega."""
    if v.f90 is not None:
        return 2.0 * v.damping / (2.0 * np.pi * v.f90)
    assert v.f45 is not None
    return 1.0 / (2.0 * np.pi * v.f45)


def corner_frequency(v: ValveSettings) -> float:
    """-45° frequency of the valve's spool, Hz: f45, or where the phase of second order is -45°."""
    if v.f90 is None:
        assert v.f45 is not None
        return v.f45
    return v.f90 * (sqrt(v.damping * v.damping + 1.0) - v.damping)


def spool_matrix(tau: float, omega: float, d: float, h: float) -> list[float]:
    """Exact transition of the spool's distance from a held command, and of its speed, over ``h`` seconds, line by
    line."""
    if omega == 0.0:
        return [float(np.exp(-h / tau)), 0.0, 0.0, 0.0]
    decay, square = exp(-d * omega * h), omega * omega * (1.0 - d * d)
    if abs(square) * h * h < 1e-12:
        cosine, sine = 1.0, h
    elif square > 0.0:
        cosine, sine = cos(sqrt(square) * h), sin(sqrt(square) * h) / sqrt(square)
    else:
        cosine, sine = cosh(sqrt(-square) * h), sinh(sqrt(-square) * h) / sqrt(-square)
    even, odd = decay * cosine, decay * sine
    return [even + d * omega * odd, odd, -omega * omega * odd, even - d * omega * odd]


def catch_up_gains(matrix: Sequence[float]) -> tuple[float, float]:
    r"""State feedback by which a spool catches up (`hilserver.tick.bridge.catch_up`), from its transition over a tick.

    For second order by Ackermann's formula, :math:`K = (0, 1)(\Gamma, \Phi\Gamma)^{-1}(\Phi - p I)^2`, both poles
    at p: `POLE`, or the geometric mean of the spool's own poles if they are faster.
    """
    if matrix[1] == 0.0:
        left = matrix[0]
        return max(left - POLE, 0.0) / (1.0 - left), 0.0
    transition = np.reshape(matrix, (2, 2))
    effect = np.array([1.0, 0.0]) - transition[:, 0]  # of a command that is held for the tick
    pole = min(POLE, sqrt(np.linalg.det(transition)))
    wanted = np.linalg.matrix_power(transition - pole * np.eye(2), 2)
    row = np.linalg.solve(np.column_stack([effect, transition @ effect]).T, np.array([0.0, 1.0]))
    gains = row @ wanted
    return float(gains[0]), float(gains[1])


def spool_speed(v: ValveSettings) -> float:
    r"""Highest speed of the spool between null and full command, full strokes per second.

    Peak of the impulse response: of first order 1/tau, of second order

    .. math:: \omega \exp\left(-\frac{d}{\sqrt{1 - d^2}}\arccos d\right)
    """
    if v.f90 is None:
        return 1.0 / time_constant(v)
    omega, d = 2.0 * pi * v.f90, v.damping
    if abs(d - 1.0) < 1e-6:
        return omega * exp(-1.0)
    angle = acos(d) / sqrt(1.0 - d * d) if d < 1.0 else acosh(d) / sqrt(d * d - 1.0)
    return omega * exp(-d * angle)
