r"""Least squares on the output error of a model, with residuals that need not be white.

The residuals of a signal have one spectrum over the whole recording. A whitening filter (a leaky sum where the signal
is a change per tick, then an autoregressive model of the residuals) is applied to measured and modelled signal, and
found again after each fit: generalised least squares. Standard deviations come from the Jacobian J and the filtered
residuals r

.. math:: \mathrm{cov} = (J^T J)^{-1} \Big(\sum_{k,l} w_{k-l}\,J_k r_k r_l J_l^T\Big) (J^T J)^{-1}

with the sum in the middle from different divisions of the data (:mod:`hilserver.identify.scatter`), whose excesses over
white residuals add up, so that they include remaining correlation, noise of varying strength, and errors of the model
as far as residuals show them. Prior knowledge of parameters enters as further residuals. Where these
are larger on average than they should be, the model and the tolerances contradict each other: the part of the
deviations that comes from the data is multiplied by this factor (Birge ratio), the part from prior knowledge is not.

What a model calculates from measured signals contains their noise, multiplied by the same parameters as the signals.
Plain least squares would reduce those parameters to get rid of it. Where the spectrum :math:`\Phi(\theta)` of this
noise is known (`Signal.noise`), the residuals are divided by

.. math:: s^2 = 1 + \int \frac{\Phi(\theta) - \Phi(\theta_0)}{P}\,df

with P the spectrum of the residuals at the values from which the fit starts: the sum of squares that noise alone would
have. So it does not change with the parameters (total least squares, with noise of the model beside that of the
signals). Far from the optimum the residuals are mostly errors of the model. There, this sum is subtracted, and the
first filters are those of the known noise: filters of these errors would hardly count them (decision 0071).

Sources: Ljung, System Identification, 2nd ed. 1999, ch. 7; Birge, Phys. Rev. 40 (1932) 207; Söderström,
Errors-in-variables methods in system identification, Automatica 43 (2007) 939.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.linalg import solve_toeplitz

from hilserver.compiler import standard_program
from hilserver.identify.linearised import STEP, LinearisedModel, Predict
from hilserver.identify.many_residuals import minimum
from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.scatter import scatters
from hilserver.numerics.arrays import Floats

NEAR_OPTIMUM = 30.0
"""Reduction of the sum of squares by a fit (its terms are 1 on average): one standard deviation is 1."""
CONVERGES = 0.25
"""Gain of a fit, as a fraction of that of the one before, with which it may also take back what that one changed."""
SLOWLY, LONGEST_STEP = 0.3, 5.0
"""Part of the change before that a fit repeats, from which changes count as a geometric series; the largest multiple of
a change that is taken at once. The noise of a sensor whose delay changes limits the changes.
"""
ORDER = 30
"""Order of the autoregressive models."""
POLES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
"""Poles of the leaky sum of a signal that is a change per tick, which whitens noise and drift of the sum."""
MODEL_ERROR = 1e-3
"""Minimum standard deviation of white residuals, as a fraction of the equally filtered signal.

No model of a hydraulic valve is more accurate; with smaller values, its errors would be taken for errors of sensors and
oil.
"""
SPECTRUM: Floats = (np.arange(128, dtype=np.float64) + 0.5) / 256.0
"""Frequencies in cycles per tick at which power spectral densities are compared."""
LEAST_SHARE = 0.1
"""Smallest s², with parameters by which nearly all noise would disappear."""
LARGEST_SHARE = 1.2
"""Largest share of the residuals, at a frequency, that known noise may be: their spectrum is an estimate."""
MOST_NOISE = 20.0
"""Noise, as a multiple of that of the residuals, up to which its sum of squares is subtracted."""
SURE_NOISE = 0.95
"""Part of a known noise that is subtracted: with more than there is, the sum would have no minimum."""
FINEST = STEP
"""Minimum standard deviation, as a fraction of a parameter's size: derivatives, interpolation between ticks."""
MAX_EVALUATIONS = 40
"""Evaluations of the residuals in a fit."""
PRELIMINARY_TOLERANCE, FINAL_TOLERANCE = 1.0, 0.05
"""Reduction of the sum of squares by a step at which a fit ends: with preliminary filters, with final ones."""


@dataclass(frozen=True)
class Signal:
    """A recorded signal: ``measured`` where ``used``. ``summed``: it is the change per tick of a noisy quantity.

    ``weight``: 1, or less where its deviations are to count less than their noise says. ``noise``: the power spectral
    density of the known noise in ``measured`` less the prediction, by the values, at SPECTRUM.
    """

    name: str
    measured: Floats
    used: NDArray[np.bool_]
    summed: bool
    weight: float = 1.0
    noise: Callable[[Values], Floats] | None = None


@dataclass(frozen=True)
class Search:
    """How a sequence of fits, each with the filters from the one before, looks for the optimum.

    ``rounds``: at most, until a fit gains less than ``done``; ``rough_rounds``: with the filters of the known noise, at
    most. ``along_valley``: of parameters that act alike, along which changes are small and the optimum is far. A fit
    then has derivatives of its own, ends at smaller gains, and successive changes are summed up; it takes several times
    as long (decision 0085).
    """

    rounds: int = 12
    done: float = 1.0
    rough_rounds: int = 1
    along_valley: bool = False


USUAL = Search()
ALONG_VALLEY = Search(rounds=24, done=0.3, rough_rounds=4, along_valley=True)

Others = Callable[[Values], Iterable[Values]]
"""Other values that may fit equally well, near another minimum: a fit continues from the best of them."""


@dataclass(frozen=True)
class Whitener:
    """A filter that makes the residuals of a signal white, with standard deviation 1.

    ``pole``: of the leaky sum, 0 for none; ``model``: autoregressive, of its output.
    """

    pole: float
    model: Floats
    deviation: float = 1.0

    def __call__(self, residual: Floats, used: NDArray[np.bool_]) -> Floats:
        """The filtered residual, 0 if it is not used."""
        filtered = np.empty(len(residual))
        standard_program().filter_record(np.where(used, residual, 0.0), self.model, self.pole, filtered)
        return np.where(used, filtered / self.deviation, 0.0)

    @functools.cached_property
    def spectrum(self) -> Floats:
        """Power spectral density of the residuals that it makes white, at SPECTRUM."""
        later = np.exp(-2j * np.pi * np.outer(SPECTRUM, np.arange(len(self.model))))
        return np.asarray(np.abs((1.0 - self.pole * later[:, 1]) * self.deviation / (later @ self.model)) ** 2)

    def for_model(self, signal: Signal) -> Whitener:
        """With residuals that are at least the error of any model of this signal, and count by its weight."""
        filtered = self(signal.measured, signal.used) * self.deviation
        least = MODEL_ERROR * float(np.sqrt(np.sum(filtered * filtered) / max(signal.used.sum(), 1)))
        return replace(self, deviation=max(self.deviation, least) / signal.weight)

    @classmethod
    def of(cls, residual: Floats, used: NDArray[np.bool_], summed: bool) -> Whitener:
        """The filter for these residuals: the one with the smallest output."""
        tried = [cls._with_pole(residual, used, pole) for pole in (POLES if summed else (0.0,))]
        return min(tried, key=lambda whitener: whitener.deviation)

    @classmethod
    def of_spectrum(cls, density: Floats) -> Whitener:
        """The filter for noise with this power spectral density at SPECTRUM, that of the change of another noise."""
        pole = POLES[-1]
        rough = density / np.abs(1.0 - pole * np.exp(-2j * np.pi * SPECTRUM)) ** 2
        covariance = np.cos(2.0 * np.pi * np.outer(np.arange(ORDER + 1), SPECTRUM)) @ rough / len(SPECTRUM)
        model = np.concatenate([[1.0], -solve_toeplitz(covariance[:-1], covariance[1:])])
        return cls(pole, model, float(np.sqrt(model @ covariance)))

    @classmethod
    def _with_pole(cls, residual: Floats, used: NDArray[np.bool_], pole: float) -> Whitener:
        """The autoregressive model by the Yule-Walker equations."""
        rough, model = cls(pole, np.ones(1))(residual, used), np.ones(1)
        if not np.any(rough):
            return cls(pole, model)
        spectrum = np.abs(np.fft.rfft(rough, length := next_fast_len(2 * len(rough)))) ** 2
        covariance = np.fft.irfft(spectrum, length)[: ORDER + 1]
        covariance[0] *= 1.0 + 1e-9
        model = np.concatenate([[1.0], -solve_toeplitz(covariance[:-1], covariance[1:])])
        white = cls(pole, model)(residual, used)
        return cls(pole, model, float(np.sqrt(np.sum(white * white) / used.sum())))


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    ``white``: the filtered residuals by signal, and ``whiteners`` that filtered them; ``deviance``: -2 times the
    log-likelihood; ``normal``, ``scatters``: J^T J and estimates of the sum in the middle of the covariance, of
    parameters divided by their size; ``known``: weights of the prior knowledge, on the diagonal of J^T J;
    ``parameters``: as they were fitted; ``conflict``: their distance from the prior knowledge, root mean square in its
    standard deviations, but at least 1.
    """

    values: dict[str, float]
    deviations: dict[str, float]
    covariance: Floats
    white: dict[str, Floats]
    whiteners: Mapping[str, Whitener]
    deviance: float
    normal: Floats
    scatters: tuple[Floats, ...]
    sizes: Floats
    known: Floats
    parameters: Mapping[str, Parameter]
    conflict: float = 1.0

    def covariance_with(self, names: Sequence[str]) -> Floats:
        """Covariance of these parameters with all others known; infinite for one without influence."""
        places = [list(self.values).index(name) for name in names]
        active = np.array([k for k, place in enumerate(places) if self.normal[place, place] > 0.0], dtype=np.int64)
        here = np.ix_(np.array(places)[active], np.array(places)[active])
        norm = np.sqrt(np.diag(self.normal[here]))
        inverse = np.linalg.pinv(self.normal[here] / np.outer(norm, norm), rcond=1e-12, hermitian=True)
        robust = [inverse @ (scatter[here] / np.outer(norm, norm)) @ inverse for scatter in self.scatters]
        white = np.diag(inverse)
        excess = sum(np.maximum(np.diag(estimate) - white, 0.0) for estimate in robust)
        known = np.square(inverse) @ (self.known[places][active] / norm**2)
        widest = known + (white - known + excess) * self.conflict**2
        sizes = self.sizes[places][active]
        variance = widest * (sizes / norm) ** 2 + (FINEST * sizes) ** 2
        wider = np.sqrt(variance / np.maximum(np.diag(robust[0]), 1e-300))
        covariance = np.diag(np.full(len(names), inf))
        covariance[np.ix_(active, active)] = robust[0] * np.outer(wider, wider)
        added = [(self.parameters[name], self.values[name]) for name in names]
        return covariance + np.diag([p.inseparable**2 + (p.definition * value) ** 2 for p, value in added])

    def of(self, names: Sequence[str]) -> FitResult:
        """The result for these parameters, regardless of the others."""
        places = [list(self.values).index(name) for name in names]
        here = np.ix_(places, places)
        return replace(
            self,
            values={name: self.values[name] for name in names},
            deviations={name: self.deviations[name] for name in names},
            covariance=self.covariance[here],
            normal=self.normal[here],
            scatters=tuple(scatter[here] for scatter in self.scatters),
            sizes=self.sizes[places],
            known=self.known[places],
        )

    def deviation_of(self, gradient: Mapping[str, float]) -> float:
        """Standard deviation of a function of the values with this gradient."""
        g = np.array([gradient.get(name, 0.0) for name in self.deviations])
        return float(np.sqrt(max(g @ self.covariance @ g, 0.0)))


def fit(
    parameters: Mapping[str, Parameter],
    signals: Sequence[Signal],
    predict: Predict,
    start: Values,
    others: Others | None = None,
    search: Search = USUAL,
    near: bool = False,
) -> FitResult:
    """Identify the parameters, starting from the values of ``start``.

    ``near``: they are the result of a fit that differs little from this one.
    """
    values, gained, model = dict(start), 0.0 if near else inf, LinearisedModel(parameters, predict)
    step, rough = np.zeros(len(parameters)), 0 if near else search.rough_rounds
    for _ in range(search.rounds):
        if search.along_valley:
            model.forget()
        noise = {s.name: s.noise(values) for s in signals if s.noise is not None}
        pairs = zip(signals, predict(values), strict=True)
        whiteners = {s.name: _filter(s, modelled, noise.get(s.name), rough > 0, search) for s, modelled in pairs}
        problem = _Problem(parameters, signals, model, whiteners, noise, gained < NEAR_OPTIMUM)
        if gained < NEAR_OPTIMUM and others is not None:
            trials = [values, *(dict(other) for other in others(values))]
            values, others = min(trials, key=problem.cost), None
        tolerance = FINAL_TOLERANCE if problem.near else PRELIMINARY_TOLERANCE
        if search.along_valley and not problem.near:
            tolerance /= 1.0 + MOST_NOISE  # the sum of squares contains that many times those of the noise
        before, (found, gained) = gained, problem.solved(values, tolerance)
        change = np.array([(found[name] - values[name]) / p.size for name, p in parameters.items()])
        if rough > 0:
            rough = rough - 1 if gained >= NEAR_OPTIMUM else 0
        elif gained < search.done and others is None and problem.near:
            values = found
            break
        change *= _relaxation(step, change, gained, before, search.along_valley)
        step = change
        values |= {
            name: float(np.clip(values[name] + p.size * c, p.lower, p.upper))
            for (name, p), c in zip(parameters.items(), change, strict=True)
        }
    return problem.fit(values)


def _relaxation(step: Floats, change: Floats, gained: float, before: float, along_valley: bool) -> float:
    """By how much a change is multiplied, after the ``step`` before it; ``gained``, ``before``: by both of them.

    Of two results, each would lead to the other for ever: the middle is taken. Along a valley, successive changes in
    one direction are the terms of a geometric series: its sum is taken (Irons & Tuck, Int. J. Num. Meth. Eng. 1 (1969)
    275).
    """
    along = float(step @ change) / max(float(step @ step), 1e-300)
    if along < 0.0 and gained > CONVERGES * before:
        return 0.5 if not along_valley or along > -2.0 else 1.0
    if along_valley and SLOWLY < along < 1.0 and gained < before < inf:
        return min(1.0 / (1.0 - along), LONGEST_STEP)
    return 1.0


def _filter(signal: Signal, modelled: Floats, noise: Floats | None, rough: bool, search: Search) -> Whitener:
    """The filter for what the model leaves of a signal; ``rough``: by its known ``noise``.

    Far from the optimum, the residuals are errors of the model, and say nothing of the noise: along a valley they would
    be filtered out for ever, and where the noise is not known, either, there is no filter but a sum.
    """
    residual = signal.measured - modelled
    if rough and noise is not None:
        return Whitener.of_spectrum(noise).for_model(signal)
    if not (rough and search.along_valley):
        return Whitener.of(residual, signal.used, signal.summed).for_model(signal)
    plain = Whitener(POLES[-1] if signal.summed else 0.0, np.ones(1))
    filtered = plain(residual, signal.used)
    deviation = float(np.sqrt(filtered @ filtered / max(signal.used.sum(), 1)))
    return replace(plain, deviation=deviation).for_model(signal)


@dataclass(frozen=True)
class _Problem:
    """Least squares on filtered residuals, of parameters divided by their size.

    ``noise``: the known one, at the start. ``near`` an optimum, the residuals are mostly noise, and are divided by s;
    before, when they are mostly errors of the model, the sum of squares that noise adds is subtracted instead: dividing
    would make these errors smaller, too.
    """

    parameters: Mapping[str, Parameter]
    signals: Sequence[Signal]
    model: LinearisedModel
    whiteners: Mapping[str, Whitener]
    noise: Mapping[str, Floats] = field(default_factory=dict)
    near: bool = True

    def residuals(self, values: Values, predicted: Sequence[Floats]) -> list[Floats]:
        """The filtered residuals, by signal."""
        pairs = zip(self.signals, predicted, strict=True)
        return [self.whiteners[s.name](s.measured - y, s.used) * self._share(s, values) for s, y in pairs]

    def residual(self, values: Values) -> Floats:
        return np.concatenate(self.residuals(values, self.model.predict(values)))

    def _share(self, signal: Signal, values: Values) -> float:
        """1/s: the residuals with the noise at the start, as a share of those with the noise by these values."""
        return 1.0 / sqrt(max(1.0 + self._more_noise(signal, values), LEAST_SHARE)) if self.near else 1.0

    def _more_noise(self, signal: Signal, values: Values) -> float:
        """The mean square that known noise adds to a filtered residual, less that at the start.

        Noise that the residuals do not show is none: pulsation that the model explains looks like it.
        """
        if signal.noise is None or signal.name not in self.noise:
            return 0.0
        before, residual = self.noise[signal.name], self.whiteners[signal.name].spectrum
        share = np.minimum(before / residual, LARGEST_SHARE)
        return float(np.mean((signal.noise(values) / before - 1.0) * share))

    def _less_noise(self, values: Values) -> Floats:
        """By signal, a residual whose square, but for a constant, is minus the sum of squares that noise adds."""
        if self.near:
            return np.empty(0)
        rest = [(s.used.sum(), MOST_NOISE - SURE_NOISE * self._more_noise(s, values)) for s in self.signals]
        return np.array([sqrt(number * max(share, 0.0)) for number, share in rest])

    def cost(self, values: Values) -> float:
        """Sum of squares, prior knowledge included."""
        r = self.penalised(values)
        return float(r @ r)

    @property
    def known_before(self) -> dict[str, Parameter]:
        """The parameters with prior knowledge."""
        return {name: p for name, p in self.parameters.items() if isfinite(p.prior)}

    def penalised(self, values: Values) -> Floats:
        """The residuals, then the distances from prior knowledge in standard deviations."""
        prior = [(p.start - p.value_in(values, name)) / p.prior for name, p in self.known_before.items()]
        return np.concatenate([self.residual(values), prior, self._less_noise(values)])

    def conflict(self, values: Values) -> float:
        """Birge ratio of the prior knowledge, at least 1."""
        off = [
            (p.start - p.value_in(values, name)) / p.prior for name, p in self.known_before.items() if p.useful > 0.0
        ]
        return max(1.0, float(np.sqrt(np.mean(np.square(off))))) if off else 1.0

    def penalised_jacobian(self, values: Values) -> Floats:
        """float64[samples + prior + noise, parameters]"""
        names = list(self.parameters)
        rows = np.zeros((len(self.known_before), len(names)))
        for row, (name, p) in zip(rows, self.known_before.items(), strict=True):
            row[names.index(name)] = -p.size / p.prior
        noise = np.zeros((len(before := self._less_noise(values)), len(names)))
        for column, name in zip(noise.T, names, strict=True):
            there, h = self.model.moved(values, name)
            column[:] = (self._less_noise(there) - before) / h
        return np.concatenate([self.jacobian(values).T, rows.T, noise.T], axis=1).T  # stored by parameter

    def jacobian(self, values: Values) -> Floats:
        """float64[samples, parameters]"""
        white = self.residuals(values, self.model.predict(values))
        before = [self._share(s, values) for s in self.signals]
        columns = []
        for name, slopes in zip(self.parameters, self.model.slopes(values), strict=True):
            (there, h), parts = self.model.moved(values, name), []
            for s, slope, r, share in zip(self.signals, slopes, white, before, strict=True):
                if slope is None:
                    parts.append(np.zeros(len(r)))
                    continue
                by_share = r * ((self._share(s, there) / share - 1.0) / h)
                parts.append(by_share - self.whiteners[s.name](slope, s.used) * share)
            columns.append(np.concatenate(parts))
        return np.array(columns).T

    def solved(self, values: Values, tolerance: float) -> tuple[dict[str, float], float]:
        """The parameters with the least sum of squares, within their bounds, and the reduction of this sum.

        Other values stay as they are. The function and its derivatives must agree, or the iteration stops anywhere:
        a parameter with a ``slope`` is therefore changed by its slope in both (decision 0026).
        """
        sizes = np.array([p.size for p in self.parameters.values()])
        low, high = np.array([[p.lower, p.upper] for p in self.parameters.values()]).T / sizes

        def at(scaled: Floats) -> dict[str, float]:
            now = dict(zip(self.parameters, (scaled * sizes).tolist(), strict=True))
            slopes = {p.slope: now.pop(name) - values[name] for name, p in self.parameters.items() if p.slope}
            return {**values, **now, **slopes}

        start = np.clip([values[name] for name in self.parameters] / sizes, low, high)
        before = self.cost(at(start))
        found, cost = minimum(
            lambda scaled: self.penalised(at(scaled)),
            lambda scaled: self.penalised_jacobian(at(scaled)),
            start,
            (low, high),
            tolerance / sum(int(s.used.sum()) for s in self.signals),
            MAX_EVALUATIONS,
        )
        end = dict(zip(self.parameters, (found * sizes).tolist(), strict=True))
        return {**values, **end}, before - cost

    def fit(self, values: Values) -> FitResult:
        """The result at these values, with standard deviations."""
        r, J = self.residual(values), self.jacobian(values)
        lengths = [len(s.measured) for s in self.signals]
        white = zip([s.name for s in self.signals], np.split(r, np.cumsum(lengths)[:-1]), strict=True)
        known = np.array([(p.size / p.prior) ** 2 for p in self.parameters.values()])
        found = FitResult(
            values={name: values[name] for name in self.parameters},
            deviations={},
            covariance=np.empty((0, 0)),
            white=dict(white),
            whiteners=self.whiteners,
            deviance=sum(2.0 * s.used.sum() * log(self.whiteners[s.name].deviation) for s in self.signals)
            + float(r @ r),
            normal=J.T @ J + np.diag(known),
            scatters=scatters(J, r, lengths, known),
            sizes=np.array([p.size for p in self.parameters.values()]),
            known=known,
            parameters=self.parameters,
            conflict=self.conflict(values),
        )
        covariance = found.covariance_with(list(self.parameters))
        deviations = {n: float(np.sqrt(covariance[i, i])) for i, n in enumerate(self.parameters)}
        return replace(found, deviations=deviations, covariance=covariance)
