"""Delay of a bridge: the time by which the real flow follows the virtual one, at a frequency."""

from __future__ import annotations

from math import atan, atan2, pi

import numpy as np

from hilserver.rig.rig import Rig
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import ValveSettings
from hilserver.rig.valves import time_constant, valve_delay
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.kinds import FLOW_SERVO, INVERSE
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.estimator import TREND_TIME


def bridge_delay(
    rig: Rig, valve: str, strategy: str, omega: float, off: float = 0.0, slow: SlowDevices | None = None
) -> float:
    """Delay of the real flow behind the virtual one, s: phase lag at ``omega`` (1/s), divided by ``omega``.

    Without what the strategy compensates. ``off``: share by which sensors and valve are slower than configured; slow
    devices then have their largest lag. A prediction knows the ages of their samples and the mean lag of their
    commands. ``slow``: the slow devices, if not as in the rig file.
    """
    settings, v, kind = rig.settings, rig.settings.valves[valve], Strategy[strategy].kind
    sensor = settings.channels[settings.ports[v.port]]
    slow = slow or rig.slow_devices
    read, write = slow.lag(sensor.device), slow.lag(v.device)
    tick = 0.5 / settings.loop.rate
    filtered = atan(omega * sensor.filter) / omega
    planned = valve_delay(v, slow)
    known = sensor.lag + read.at(off) + planned + tick + spool_lag(v, omega)
    sensed = (1.0 + off) * sensor.delay + read.at(off) + filtered
    delay = sensed + (1.0 + off) * v.delay + write.at(off) + tick + spool_lag(v, omega, 1.0 + off)
    if predicts(strategy):
        if any(v.port in (each.port_A, each.port_B) for each in settings.hydraulic_actuators().values()):
            return delay - known
        lead = planned + tick + time_constant(v)
        return delay - _lead(omega, lead, TREND_TIME)  # the pressure is extrapolated linearly
    if kind is INVERSE and includes(Strategy[strategy].compensates, Compensates.LAG):
        return delay - _lead(omega, time_constant(v) + tick, v.bridge.lead_filter)
    if kind is FLOW_SERVO:
        return sensed + servo_lag(rig, valve, omega, off, slow)
    return delay


def predicts(strategy: str) -> bool:
    """Whether a strategy predicts over the whole delay; one that only looks ahead leads the circuit's own states."""
    return includes(Strategy[strategy].compensates, Compensates.DELAY)


def _lead(omega: float, lead: float, filtered: float) -> float:
    """Phase lead of ``1 + lead·s/(1 + filtered·s)`` divided by ``omega``, s."""
    return float(np.angle(1.0 + 1j * omega * lead / (1.0 + 1j * omega * filtered))) / omega


def spool_lag(v: ValveSettings, omega: float, slower: float = 1.0) -> float:
    """Phase lag of the spool divided by ``omega``, s."""
    if v.f90 is None:
        return atan(omega * slower * time_constant(v)) / omega
    w = omega * slower / (2.0 * pi * v.f90)
    return atan2(2.0 * v.damping * w, 1.0 - w * w) / omega


def servo_lag(rig: Rig, valve: str, omega: float, off: float, slow: SlowDevices) -> float:
    """Phase lag of the flow servo's closed loop divided by ``omega``, s, at the valve's nominal drop."""
    settings, v = rig.settings, rig.settings.valves[valve]
    assert v.flow is not None
    s, slower = 1j * omega, 1.0 + off
    integral = 1.0 / (s * v.bridge.integral_time) if v.bridge.integral_time > 0.0 else 0.0
    derivative = s * v.bridge.derivative_time / (1.0 + s * v.bridge.derivative_filter)
    flow = settings.channels[v.flow]
    read, write = slow.lag(flow.device), slow.lag(v.device)
    lag = 0.5 / settings.loop.rate + write.at(off) + slower * v.delay + spool_lag(v, omega, slower)
    actuator = np.exp(-s * lag)
    sensor = np.exp(-s * (slower * flow.delay + read.at(off))) / (1.0 + s * flow.filter)
    forward = v.bridge.gain * (1.0 + integral) * actuator
    loop = v.bridge.gain * (1.0 + integral + derivative) * actuator * sensor
    return float(-np.angle(forward / (1.0 + loop))) / omega
