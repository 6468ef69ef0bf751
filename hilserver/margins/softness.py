r"""How much softer than stated the chambers may be before the correction of the volume makes the loop oscillate.

The bridge knows the volume that the real valve has passed from the motion of the piston and the pressure, with the
chamber's stated capacitance C (:mod:`hilserver.tick.volumes`). Where a hose that the rig file does not state makes the
chamber softer by dC, the oil dC·p seems to be missing, and the correction supplies it with the time constant T, after
the valve's delay and lag tau. For deviations of the pressures p and the flows q into the ports,

.. math::
   (Z^{-1} + s\,dC)\,p = q, \qquad q = Y\Bigl(1 + \frac{dC}{C}\,a\Bigr)\,p + \frac{s\,dC}{1 + x}\,p, \qquad
   x = s T e^{s\tau},

   a = \frac{1 + s T}{1 + s T + T/T_a}\Bigl(\frac{x}{1 + x} - \frac{s T}{1 + s T}\Bigr)

Z is the impedance of the machine as stated, and Y the admittance of the virtual circuit. Of the missing oil, the filter
of the machine finds what lasts; a is the rest, which the circuit sees as if it had arrived, and forgets with the time
T_a. With the circuit connected directly to the machine, H = (Z^-1 - Y)^-1,

.. math:: \det\Bigl(1 + \frac{dC}{C}\,H\,\Bigl(\frac{s C x}{1 + x} - Y a\Bigr)\Bigr) = 0

Far below the frequency 1/T the chamber acts as soft as stated, far above it as soft as it is. In between, the
correction acts like a negative damping, and drives the oscillation of a machine that the virtual circuit hardly damps.
Whether a root grows follows from the turns of the determinant about 0 along a ray (argument principle: Nyquist, Bell
System Tech. J. 11 (1932) 126).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, pi

import numpy as np

from hilserver.circuit.analysis import Complexes, LinearModel
from hilserver.margins.loop import around_resonances
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.rig.valves import time_constant, valve_delay
from hilserver.tick.cylinder import chamber_A, chamber_B
from hilserver.tick.volumes import time_ahead

GROWTH = 0.02
"""Negative damping ratio that friction of seals and guides, which is not in the loop, is assumed to outweigh."""
MIN_SHARE = 0.15
"""Share of the chambers' capacitance that may be missing in the rig file without a warning."""
LARGEST = 2.0
"""The largest share that is tried: the chamber is three times as soft as stated."""
SHARES, HALVINGS = 24, 12
"""Shares that are tried, in equal ratios from a hundredth of the largest, and halvings between two of them."""
LOWEST, HIGHEST = 0.5, 3e3
"""Range of the frequency sweep, 1/s: beyond it the correction has no effect."""
GRID, AROUND, NEAR = 150, 24, 1.5
"""Points of the sweep, more around each resonance, and as many again within this factor of a crossing."""


@dataclass(frozen=True)
class Softness:
    """The ``share`` by which softer chambers than stated make the loop oscillate, and the frequency, Hz."""

    share: float
    frequency: float


ANY = Softness(inf, 0.0)
"""Where nothing grows up to `LARGEST`."""


@dataclass(frozen=True)
class Correction:
    """The correction of the volume at the ports of a loop.

    Of each port: ``capacitance`` of the stated chamber, m³/Pa, 0 without correction; ``time``, the feedback time, and
    ``lag``, by which the valve is late, s.
    """

    capacitance: Floats
    time: Floats
    lag: Floats

    @property
    def ahead(self) -> Floats:
        """The time for which the circuit takes missing oil for passed, s."""
        return np.array([time_ahead(lag, 0.0, 0.0) for lag in self.lag])


def correction_of(rig: Rig, ports: Sequence[str], pressures: Mapping[str, float], stroke: float) -> Correction | None:
    """The correction at these ports, with the pistons at this share of their strokes; None if there is none.

    There is one at a valve's port at a cylinder whose position is measured. (Where it is not, the volume is that of the
    valve's model, which the chamber does not enter.)
    """
    C, time, lag = np.zeros(len(ports)), np.ones(len(ports)), np.zeros(len(ports))
    for name, line in zip(rig.settings.valves, rig.plan.valve, strict=True):
        v, m = rig.settings.valves[name], rig.plan.cylinder[line.cylinder] if line.cylinder >= 0 else None
        if m is None or m.sensor_x < 0 or v.port not in ports:
            continue
        at, chamber = ports.index(v.port), chamber_B if line.is_B else chamber_A
        C[at] = chamber(stroke * m.stroke, pressures[v.port], m)
        time[at] = v.bridge.feedback_time
        lag[at] = valve_delay(v, rig.slow_devices) + 0.5 / rig.settings.loop.rate + time_constant(v)
    return Correction(C, time, lag) if C.any() else None


def softness_of(closed: LinearModel, Y: LinearModel, correction: Correction) -> Softness:
    """How much softer than stated the chambers may be.

    ``closed``: the virtual circuit on the machine, from flows into the ports to their pressures; ``Y``: the circuit,
    from pressures to flows. `ANY` also where the circuit is unstable on the machine in any case.
    """
    poles = closed.poles()
    if np.any(poles.real > np.maximum(GROWTH * np.abs(poles.imag), LOWEST)):
        return ANY
    grid = np.geomspace(LOWEST, HIGHEST, GRID)
    omega = around_resonances(poles, grid, GROWTH, np.geomspace(0.01, 1e2, AROUND))
    effects = _effects(closed, Y, correction, omega)
    below = 0.0
    for share in map(float, np.geomspace(0.01, 1.0, SHARES) * LARGEST):
        if grows(effects, share):
            near = _nearest(effects, omega, share) * np.geomspace(1.0 / NEAR, NEAR, GRID)
            finer = np.sort(np.concatenate([omega, near]))
            return _crossing(_effects(closed, Y, correction, finer), finer, below, share)
        below = share
    return ANY


def grows(effects: Complexes, share: float) -> bool:
    """Whether the determinant turns about 0 along the ray."""
    turned = np.unwrap(np.angle(np.prod(1.0 + share * effects, axis=1)))
    return bool(abs(turned[-1] - turned[0]) > pi)


def _crossing(effects: Complexes, omega: Floats, stable: float, growing: float) -> Softness:
    """The share between these two from which on something grows."""
    for _ in range(HALVINGS):
        middle = 0.5 * (stable + growing)
        stable, growing = (stable, middle) if grows(effects, middle) else (middle, growing)
    return Softness(growing, _nearest(effects, omega, growing) / (2.0 * pi))


def _nearest(effects: Complexes, omega: Floats, share: float) -> float:
    """The frequency at which the determinant comes nearest to 0, 1/s."""
    return float(omega[np.argmin(np.abs(np.prod(1.0 + share * effects, axis=1)))])


def _effects(closed: LinearModel, Y: LinearModel, correction: Correction, omega: Floats) -> Complexes:
    """Eigenvalues of H·(s·C·x/(1 + x) - Y·a) on the ray of growing oscillations: complex[len(omega), ports]."""
    along = (omega * (1.0 - GROWTH * 1j)).astype(complex)
    s, corrected = 1j * along[:, None], correction.capacitance > 0.0
    at_once = s * correction.time
    x = at_once * np.exp(s * correction.lag)
    missing = np.where(corrected, x / (1.0 + x), 0.0)
    late = missing - np.where(corrected, at_once / (1.0 + at_once), 0.0)
    ahead = late * (1.0 + at_once) / (1.0 + at_once + correction.time / correction.ahead)
    stored = (s * missing)[..., None] * np.diag(correction.capacitance)
    seen = stored - Y.response(along) * ahead[:, None, :]
    return np.linalg.eigvals(closed.response(along) @ seen).astype(complex)
