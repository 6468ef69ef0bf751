r"""Displacement and force of an actuator as a model of it predicts them from the recorded command.

The model is that of :mod:`hilserver.displacement.servo`. Its command is held from tick to tick and acts later by a
delay, which divides the tick; both are exact in the coordinates in which :math:`\dot q_i = \lambda_i q_i + b_i u`:

.. math:: q_i(t+h) = e^{\lambda_i h}\,q_i(t) + \frac{e^{\lambda_i h} - 1}{\lambda_i}\,b_i u

Between ticks, displacement and force follow from their values and derivatives at both ends (cubic). The state with
which a part of the recording begins is not known: it is the one with which the prediction is closest to the first
samples, found by linear least squares for the given parameters (variable projection: Golub & Pereyra, SIAM J. Numer.
Anal. 10 (1973) 413).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from math import floor

import numpy as np
from scipy.signal import lfilter

from hilserver.displacement.actuator import SCALE
from hilserver.displacement.servo import ServoActuator
from hilserver.displacement.specimen import Specimen
from hilserver.identify.actuator_record import RecordedActuator
from hilserver.identify.parameters import Values
from hilserver.numerics.arrays import Floats, Integers

BEGINNING = 1.0
"""s at the beginning of a part from which its initial state follows."""
MOST = 1e3
"""Predictions are limited to this many times the largest sample: those of an unstable model have no limit."""
TRACE = 0.01
"""Share of the noise below which what is left of the initial state does not matter."""
LOGARITHMIC = ("velocity_gain", "f90", "damping", "oil_stiffness", "position_gain")
"""Parameters of the actuator that are positive: a fit changes the logarithm of their ratio to the stated value, as it
does for the mass of the specimen. Others may be 0.
"""
OF_SENSORS = ("displacement delay", "force delay", "displacement zero", "force zero")
"""Values on which the response to the command does not depend."""
KEPT = 32
"""Number of responses that are kept: that of the present values, while each parameter of a fit is moved."""


def actuator_with(stated: ServoActuator, values: Values) -> ServoActuator:
    """The actuator with these values of a fit: logarithms of ratios, SI; ``delay``: that of its command, s."""
    own = {name: getattr(stated, name) * float(np.exp(values[name])) for name in LOGARITHMIC}
    part = stated.specimen
    specimen = Specimen(
        part.mass * float(np.exp(values["specimen_mass"])),
        values["specimen_damping"],
        values["specimen_stiffness"],
    )
    return replace(stated, **own, force_decay=values["force_decay"], specimen=specimen, delay=values["delay"])


@dataclass(frozen=True)
class _Modes:
    """The model in its own coordinates, of a conjugate pair only one. ``eigenvalues``: 1/s; ``input``: b.

    ``seen``: x, dx/dt, F, dF/dt are the real parts of these multiples of q.
    """

    eigenvalues: Floats
    input: Floats
    seen: Floats

    @classmethod
    def of(cls, model: ServoActuator) -> _Modes:
        A, B = model.motion().scaled(SCALE)
        eigenvalues, vectors = np.linalg.eig(A)
        seen = np.array([vectors[0], (A @ vectors)[0], vectors[2], (A @ vectors)[2]]) * SCALE[[0, 0, 2, 2], None]
        of_input = np.linalg.solve(vectors, B[:, 0].astype(complex))
        kept = eigenvalues.imag >= 0.0
        seen = seen * np.where(eigenvalues.imag > 0.0, 2.0, 1.0)
        return cls(eigenvalues[kept].astype(complex), of_input[kept], seen[:, kept])

    def moved(self, seconds: float) -> Floats:
        """What an input of 1 that acts for this time adds."""
        found: Floats = np.expm1(self.eigenvalues * seconds) / self.eigenvalues * self.input
        return found


@dataclass(frozen=True)
class _Part:
    """A part of the recording with its samples: ``first``, ``last`` of each sensor, and their times after its begin."""

    begin: int
    end: int
    samples: tuple[slice, slice]
    times: tuple[Floats, Floats]


@dataclass(frozen=True)
class _Places:
    """Places in a series: the tick before each, the one after it, and how much of the tick has passed."""

    before: Integers
    after: Integers
    passed: Floats

    @classmethod
    def of(cls, place: Floats, count: int) -> _Places:
        """Those at ``place``, in ticks, of a series of ``count``."""
        at = np.clip(place, 0.0, count - 1.0)
        k = np.minimum(at.astype(np.int64), count - 2)
        return cls(k, k + 1, at - k)

    def between(self, line: Floats, dt: float) -> Floats:
        """Values at the places from values and derivatives at whole ticks, float64[2, ticks]."""
        values, slopes = line[0], line[1] * dt
        s, y0, d0, d1 = self.passed, values[self.before], slopes[self.before], slopes[self.after]
        rise = values[self.after] - y0
        found: Floats = y0 + s * (d0 + s * (3.0 * rise - 2.0 * d0 - d1 + s * (d0 + d1 - 2.0 * rise)))
        return found


class ActuatorPrediction:
    """Predicts all samples of a recording from the parameters of a fit."""

    def __init__(self, record: RecordedActuator) -> None:
        self.record = record
        self.stated = record.rig.settings.actuators[record.name].model()
        self._sensors = (record.displacement, record.force)
        self._parts = [self._part(begin, end) for begin, end in record.parts]
        self._response = functools.lru_cache(KEPT)(self._response_now)
        self._places = functools.lru_cache(KEPT * len(self._parts))(self._places_now)
        self.used = [np.zeros(len(sensor.time), dtype=np.bool_) for sensor in self._sensors]
        for part in self._parts:
            for used, chosen in zip(self.used, part.samples, strict=True):
                used[chosen] = True

    def _part(self, begin: int, end: int) -> _Part:
        dt, chosen = self.record.dt, []
        for sensor in self._sensors:
            chosen.append(slice(*np.searchsorted(sensor.time, [begin * dt - 1e-9, end * dt + 1e-9])))
        times = [s.time[part] - begin * dt for s, part in zip(self._sensors, chosen, strict=True)]
        return _Part(begin, end, (chosen[0], chosen[1]), (times[0], times[1]))

    def __call__(self, values: Values) -> list[Floats]:
        """Displacement, m, and force, N, at the times of their samples; 0 where they are not used."""
        found = [np.zeros(len(sensor.time)) for sensor in self._sensors]
        with np.errstate(over="ignore", invalid="ignore"):
            modes, responses = self._response(tuple((n, v) for n, v in values.items() if n not in OF_SENSORS))
            for number, part in enumerate(self._parts):
                predictions = self._of_part(number, modes, responses[number], values)
                for y, chosen, predicted in zip(found, part.samples, predictions, strict=True):
                    y[chosen] = predicted
        for y, sensor in zip(found, self._sensors, strict=True):
            most = MOST * float(np.abs(sensor.value).max(initial=1e-9))
            np.clip(np.nan_to_num(y, copy=False, nan=most), -most, most, out=y)
        return found

    def _response_now(self, values: tuple[tuple[str, float], ...]) -> tuple[_Modes, list[tuple[Floats, Floats]]]:
        """The modes; of each part, x with dx/dt and F with dF/dt at the ticks, float64[2, ticks], from 0 on."""
        model = dict(values)
        modes = _Modes.of(actuator_with(self.stated, model))
        moved = [self._forced(part, modes, model["delay"]) for part in self._parts]
        return modes, [((modes.seen[:2] @ q).real, (modes.seen[2:] @ q).real) for q in moved]

    def _places_now(self, number: int, k: int, late: float) -> tuple[Floats, _Places]:
        """Times at which the samples of a sensor in a part were true, s after its begin, and where that is in ticks."""
        part = self._parts[number]
        at = part.times[k] - late
        return at, _Places.of(at / self.record.dt, part.end - part.begin + 1)

    def _of_part(self, number: int, modes: _Modes, response: tuple[Floats, Floats], values: Values) -> list[Floats]:
        """Forced response, zeros of the sensors, and free response from the best initial state."""
        part, late = self._parts[number], (values["displacement delay"], values["force delay"])
        zeros = (values["displacement zero"], values["force zero"])
        forced, free, rest = [], [], []
        for k, sensor in enumerate(self._sensors):
            at, places = self._places(number, k, late[k])
            forced.append(places.between(response[k], self.record.dt) + zeros[k])
            early = slice(0, int(np.searchsorted(at, BEGINNING)))
            powers = np.exp(np.outer(np.maximum(at[early], 0.0), modes.eigenvalues)) * modes.seen[2 * k]
            free.append(np.hstack([powers.real, -powers.imag]) / sensor.size)
            rest.append((sensor.value[part.samples[k]][early] - forced[k][early]) / sensor.size)
        start = _least_squares(np.concatenate(free), np.concatenate(rest))
        for k, sensor in enumerate(self._sensors):
            forced[k][: len(free[k])] += free[k] @ start * sensor.size
            time = part.times[k][len(free[k]) :] - late[k]
            forced[k][len(free[k]) :] += self._later(time, modes, start, k, sensor.size)
        return forced

    @staticmethod
    def _later(time: Floats, modes: _Modes, start: Floats, k: int, size: float) -> Floats:
        """The free response of a sensor after the beginning of a part, while it is more than a trace of the noise."""
        n, found = len(modes.eigenvalues), np.zeros(len(time))
        amplitudes = (start[:n] + 1j * start[n:]) * modes.seen[2 * k]
        places = np.append(np.arange(0, len(time), 100), len(time) - 1) if len(time) else np.zeros(0, dtype=np.int64)
        left = np.exp(np.outer(time[places], modes.eigenvalues.real)) @ np.abs(amplitudes)
        there = np.flatnonzero(~(left < TRACE * size))
        count = min(100 * (there[-1] + 1), len(time)) if len(there) else 0
        found[:count] = np.real(np.exp(np.outer(time[:count], modes.eigenvalues)) @ amplitudes)
        return found

    def _forced(self, part: _Part, modes: _Modes, delay: float) -> Floats:
        """The response to the command from 0 on, complex128[modes, ticks]."""
        dt, count = self.record.dt, part.end - part.begin
        whole = floor(delay / dt)
        old = (delay / dt - whole) * dt
        first = part.begin - whole - 1
        command = self.record.command[max(first, 0) : max(part.end - whole, 1)]
        command = np.pad(command, (count + 1 - len(command), 0), "edge")
        by_now, by_before = modes.moved(dt - old), np.exp(modes.eigenvalues * (dt - old)) * modes.moved(old)
        q = np.zeros((len(modes.eigenvalues), count + 1), dtype=complex)
        for i, step in enumerate(np.exp(modes.eigenvalues * dt)):
            line = np.array([by_now[i], by_before[i], -step, -by_now[i] * command[0]])
            b0, b1, a1, before = line.real if step.imag == 0.0 else line
            q[i] = lfilter([b0, b1], [1.0, a1], command, zi=[before])[0]  # from 0 on
        return q


def _least_squares(matrix: Floats, rest: Floats) -> Floats:
    """By the normal equations: thousands of lines, ten columns of which only five are independent."""
    if not np.all(np.isfinite(matrix)) or not np.all(np.isfinite(rest)):
        return np.zeros(matrix.shape[1])
    length = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
    length[length == 0.0] = 1.0
    scaled = matrix / length
    found: Floats = np.linalg.lstsq(scaled.T @ scaled, scaled.T @ rest, rcond=1e-11)[0] / length
    return found
