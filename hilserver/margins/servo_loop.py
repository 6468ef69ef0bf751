r"""The sampled loop of the flow servo: spool, flow sensor and PID controller; its margins, and its tuning.

With the command in units of full command and the flow in units of the nominal flow, the plant is

.. math:: P(s) = k\,\frac{e^{-\theta s}}{s^2/\omega^2 + 2 d s/\omega + 1}

sampled exactly: the command is held for a tick, and the dead time theta may end within one (Åström & Wittenmark,
Computer-Controlled Systems, 3rd ed. 1997, ch. 3). The load at the valve's port is left out; `load_margin` shows
whether it matters.

The controller has the highest integral gain, and with it the smallest error while the flow changes, for which the
sensitivity stays below `M_S`, the phase margin above `PHASE_MARGIN`, and the closed loop without resonance (`M_T`;
Åström & Hägglund, Advanced PID Control, 2006, ch. 7: MIGO). Its zeros stay near the poles of the spool, T_i = 2d/omega
and T_d = 1/(2d·omega), or T_i = tau with a spool of first order (Rivera, Morari & Skogestad, Ind. Eng. Chem. Process
Des. Dev. 25 (1986) 252). With the zeros on the poles an integrator with dead time remains, k_i·exp(-theta·s)/s: this is
Skogestad's rule k_i = 1/(2·theta), with a gain margin of 3.1, a phase margin of 61° and a sensitivity of 1.59 (J.
Process Control 13 (2003) 291).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import floor, inf, pi

import numpy as np

from hilserver.circuit.analysis import Complexes
from hilserver.numerics.arrays import Floats
from hilserver.rig.valves import spool_matrix

M_S = 1.6
"""Largest sensitivity for which the servo is tuned. It leaves a gain margin of at least M_S/(M_S - 1) = 2.7."""
PHASE_MARGIN = 60.0
"""Phase margin, °, for which the servo is tuned."""
M_T = 1.05
"""Largest amplitude ratio of measured to virtual flow for which the servo is tuned."""
AROUND_POLES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
"""Times of the controller that are tried, as multiples of those with which its zeros lie on the poles of the spool."""
DERIVATIVE_GAIN = 8.0
"""Derivative time divided by the time constant of its filter."""
POINTS, TUNING_POINTS, DECADES = 6000, 500, 5.0
"""Of the frequency sweep, which ends at half the tick rate."""
HALVINGS = 14
TINY = 1e-300


@dataclass(frozen=True)
class FlowPlant:
    """From command to measured flow, sampled with the period ``dt``; times in s, ``omega`` in 1/s.

    ``gain``: flow per command, in units of the nominal flow; the spool is of first order (``tau``) where ``omega`` is
    0; ``dead_time``: of valve and sensor; ``filter``: of the sensor's channel.
    """

    gain: float
    tau: float
    omega: float
    damping: float
    dead_time: float
    filter: float
    dt: float

    def response(self, z: Complexes) -> Complexes:
        """Frequency response at z = exp(i·omega·dt)."""
        ticks = floor(self.dead_time / self.dt + 1e-9)
        rest = max(self.dead_time - ticks * self.dt, 0.0)
        old, new = self._motion(rest), self._motion(self.dt - rest)  # with the command before, and after its arrival
        one = np.eye(2)
        driven = np.multiply.outer(1.0 / z, (new @ (one - old))[:, 0]) + (one - new)[:, 0]
        spool = np.linalg.solve(np.multiply.outer(z, one) - new @ old, driven[..., None])[..., 0, 0]
        share = self.dt / (self.dt + self.filter)
        filtered = share / (1.0 - (1.0 - share) / z)
        response: Complexes = self.gain * spool * z**-ticks * filtered
        return response

    def _motion(self, seconds: float) -> Floats:
        return np.array(spool_matrix(self.tau, self.omega, self.damping, seconds)).reshape(2, 2)


@dataclass(frozen=True)
class Pid:
    """The settings of the flow servo; ``gain`` in units of full command per nominal flow, times in s."""

    gain: float
    T_i: float
    T_d: float
    tau_d: float

    def of_error(self, z: Complexes, dt: float) -> Complexes:
        """Response from the flow error to the command."""
        integral = dt / self.T_i / (1.0 - 1.0 / z) if self.T_i > 0.0 else 0.0
        return np.asarray(self.gain * (1.0 + integral), dtype=np.complex128) * np.ones_like(z)

    def of_flow(self, z: Complexes, dt: float) -> Complexes:
        """Response from the measured flow to the command, negative: with the derivative."""
        derivative = self.T_d * (1.0 - 1.0 / z) / (self.tau_d + dt - self.tau_d / z)
        response: Complexes = self.of_error(z, dt) + self.gain * derivative
        return response


@dataclass(frozen=True)
class LoopMargins:
    """Margins of a loop; infinite if the loop never oscillates.

    ``gain``: factor at which it oscillates, with ``gain_at`` Hz; ``phase``, °, at the crossover frequency ``phase_at``,
    Hz; ``delay``: further dead time at which it oscillates, s; ``load``: factor up to which no passive load makes it
    oscillate; ``M_S``: largest sensitivity; ``bandwidth``: -3 dB frequency from virtual to measured flow, Hz.
    """

    gain: float
    gain_at: float
    phase: float
    phase_at: float
    delay: float
    load: float
    M_S: float
    bandwidth: float


@dataclass(frozen=True)
class ServoLoop:
    """A plant and its controller."""

    plant: FlowPlant
    pid: Pid

    def open(self, omega: Floats) -> Complexes:
        """Response of the open loop."""
        z = np.exp(1j * omega * self.plant.dt)
        return self.pid.of_flow(z, self.plant.dt) * self.plant.response(z)

    def closed(self, omega: Floats) -> Complexes:
        """Response from the virtual flow to the measured one."""
        z = np.exp(1j * omega * self.plant.dt)
        forward = self.pid.of_error(z, self.plant.dt) * self.plant.response(z)
        return np.asarray(forward / (1.0 + self.open(omega)), dtype=np.complex128)

    def margins(self) -> LoopMargins:
        """Margins of the loop."""
        omega = frequencies(self.plant.dt)
        L = self.open(omega)
        gain, gain_at = gain_margin(omega, L)
        phase, phase_at, delay = phase_margin(omega, L)
        low = np.flatnonzero(np.abs(self.closed(omega)) < np.sqrt(0.5))
        bandwidth = float(omega[low[0]]) if len(low) else inf
        turn = 2.0 * pi
        return LoopMargins(
            gain,
            gain_at / turn,
            phase,
            phase_at / turn,
            delay,
            load_margin(L),
            sensitivity(L),
            bandwidth / turn,
        )


def frequencies(dt: float, points: int = POINTS) -> Floats:
    """Angular frequencies up to half the tick rate, 1/s."""
    return np.geomspace(10.0**-DECADES * pi / dt, pi / dt, points)


def gain_margin(omega: Floats, L: Complexes) -> tuple[float, float]:
    """Smallest factor at which the loop oscillates, and the angular frequency, 1/s.

    The last frequency is half the tick rate, where the response of a sampled loop is real.
    """
    a, b = L[:-1], L[1:]
    (at,) = np.nonzero(a.imag * b.imag < 0.0)
    share = a.imag[at] / (a.imag[at] - b.imag[at])
    real = np.append((1.0 - share) * a.real[at] + share * b.real[at], L[-1].real)
    crossings = np.append((1.0 - share) * omega[at] + share * omega[at + 1], omega[-1])
    least = int(np.argmin(real))
    return (-1.0 / float(real[least]), float(crossings[least])) if real[least] < 0.0 else (inf, inf)


def phase_margin(omega: Floats, L: Complexes) -> tuple[float, float, float]:
    """Phase margin, °, crossover frequency, 1/s, and delay margin, s."""
    size, phase = np.log(np.maximum(np.abs(L), TINY)), np.unwrap(np.angle(L))
    (at,) = np.nonzero(size[:-1] * size[1:] < 0.0)
    if not len(at):
        return inf, inf, inf
    share = size[at] / (size[at] - size[at + 1])
    crossings = (1.0 - share) * omega[at] + share * omega[at + 1]
    margins = pi + (1.0 - share) * phase[at] + share * phase[at + 1]
    least = int(np.argmin(margins))
    delays = margins / crossings
    return float(np.degrees(margins[least])), float(crossings[least]), float(np.min(delays))


def load_margin(L: Complexes) -> float:
    r"""Factor up to which no passive load at the port makes the loop oscillate.

    A load of impedance Z reduces the flow by the factor F = 1/(1 + K_c·Z), with the pressure coefficient of the valve
    K_c >= 0. Passive is Re Z >= 0, hence Re(1/F) >= 1; so L·F = -1 is impossible as long as Re L > -1 (circle
    criterion: Desoer & Vidyasagar, Feedback Systems: Input-Output Properties, 1975).
    """
    least = float(np.min(L.real))
    return -1.0 / least if least < 0.0 else inf


def sensitivity(L: Complexes) -> float:
    """The largest sensitivity, M_S: the inverse of the shortest distance of the Nyquist curve from -1."""
    return float(np.max(1.0 / np.abs(1.0 + L)))


def tuned(plant: FlowPlant) -> Pid:
    """The controller with the highest integral gain that keeps `M_S`, `PHASE_MARGIN` and `M_T`."""
    second_order = plant.omega > 0.0
    T_i = 2.0 * plant.damping / plant.omega if second_order else plant.tau
    T_d = 0.5 / (plant.damping * plant.omega) if second_order else 0.0
    omega = frequencies(plant.dt, TUNING_POINTS)
    z = np.exp(1j * omega * plant.dt)
    P = plant.response(z)
    found = []
    for a, b in product(AROUND_POLES, AROUND_POLES if second_order else (1.0,)):
        unit = Pid(1.0, a * T_i, b * T_d, b * T_d / DERIVATIVE_GAIN)
        gain = highest_gain(omega, unit.of_flow(z, plant.dt) * P, unit.of_error(z, plant.dt) * P)
        found.append(replace(unit, gain=gain))
    return max(found, key=lambda pid: pid.gain / pid.T_i)


def highest_gain(omega: Floats, L: Complexes, forward: Complexes) -> float:
    """The largest gain factor of the loop ``L`` that satisfies `M_S`, `PHASE_MARGIN` and `M_T`.

    Found by bisection below the factor at which the loop oscillates.

    ``forward``: the response from the flow error to the measured flow.
    """

    def keeps(gain: float) -> bool:
        resonance = float(np.max(np.abs(gain * forward / (1.0 + gain * L))))
        robust = sensitivity(gain * L) <= M_S and phase_margin(omega, gain * L)[0] >= PHASE_MARGIN
        return robust and resonance <= M_T

    low, high = 0.0, gain_margin(omega, L)[0]
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
