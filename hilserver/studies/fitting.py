r"""Parameters of a circuit from recorded data: least squares on the error of its simulation.

The circuit is driven by the recorded inputs and simulated from the beginning of the log to its end; nothing measured
corrects it in between. A circuit that is connected to a machine is driven by the pressures measured at its ports, too,
held over each tick as the real-time loop does: its error is that of a replay. The weights of the quantities, and
intervals that hold for residuals that are not white, are those of :mod:`hilserver.identify.fit`. The initial values of
measured nodes are identified as well, for each log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.library import Library, circuit_library
from hilserver.circuit.model import RIG, Circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError, HilserverError, Problem, as_sentence
from hilserver.fidelity.measures import Deviation
from hilserver.identify.fit import FitResult, Signal, fit
from hilserver.identify.parameters import Parameter
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.studies.circuit_runs import CircuitRuns, CircuitSubject
from hilserver.studies.measured import LogColumns, MeasuredLog, read_measured
from hilserver.studies.one_sided import COVERAGE, open_sides
from hilserver.studies.own_calls import ending_own_calls
from hilserver.studies.quantities import changeable, find, short, toleranced_values
from hilserver.studies.subject import VariantFailedError
from hilserver.units import shown_value

HELD_OUT = 0.25
"""Share of each log, at its end, that is not fitted: on it, predicted and measured values are compared."""
WIDEST = 10.0
"""Bounds of a parameter without a tolerance, as a multiple and a fraction of its value."""
SIZE = 0.1
"""Typical error of a parameter without a tolerance, as a fraction of its value."""
INITIAL = {"p": ("pressure", "Pa", 1e5), "x": ("position", "m", 1e-3), "phi": ("angle", "rad", 1e-2)}
"""Of a measured quantity of a node: key of its initial value, unit, typical error."""
FIRST_SAMPLE = 2.0
"""Standard deviation of the prior knowledge of an initial value, the first sample, as a multiple of the noise."""
SINGULAR = 1e-6
"""Eigenvalue of the normalised J^T J, of a largest one of the order of 1, below which a combination is not known."""
ALIKE = 0.95
"""Correlation from which two parameters can hardly be distinguished."""
UNEXPLAINED = 2.0
"""Ratio of the residuals to the noise of a quantity from which the model is said to miss something."""


@dataclass(frozen=True)
class FreeParameter:
    """A parameter to be identified: short key, its value in the circuit, bounds, SI; ``size``: its typical error."""

    key: str
    unit: str
    start: float
    lower: float
    upper: float
    size: float


@dataclass(frozen=True)
class FitOfCircuit:
    """The result of a fit.

    ``free``: the parameters; ``logs`` with ``predicted`` quantities (by log and name), with the fitted values and, as
    ``before``, with those of the circuit file; ``fitted``: number of samples of each log that were fitted; ``opened``:
    see `open_sides`.
    """

    file: Path
    circuit: Circuit
    free: tuple[FreeParameter, ...]
    found: FitResult
    logs: tuple[MeasuredLog, ...]
    fitted: tuple[int, ...]
    before: tuple[Mapping[str, Floats], ...]
    predicted: tuple[Mapping[str, Floats], ...]
    opened: Mapping[str, int] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Keys of the parameters."""
        return [each.key for each in self.free]

    def value(self, key: str) -> float:
        """The value found, SI."""
        return self.found.values[key]

    def interval(self, key: str) -> float:
        """Half width of its 95 % interval, SI; infinite if it is not known, at a bound, or bounded on one side only."""
        return np.inf if key in self.opened else self._width(key)

    def limit(self, parameter: FreeParameter) -> str:
        """The end of the interval of a parameter that is bounded on one side, in words: "at least 148.9 bar"."""
        side = self.opened[parameter.key]
        end = self.value(parameter.key) - side * self._width(parameter.key)
        return f"at {'least' if side > 0 else 'most'} {shown_value(end, parameter.unit, 5)}"

    def _width(self, key: str) -> float:
        if key not in self._inner or not self.is_known(key):
            return np.inf
        place = self._inner.index(key)
        return float(COVERAGE * np.sqrt(self._covariance[place, place]))

    @cached_property
    def _inner(self) -> list[str]:
        """The parameters that are not at a bound, which holds the others there."""
        held = {each.key for each in self.free if self.at_bound(each)}
        return [key for key in self.found.values if key not in held]

    @cached_property
    def _covariance(self) -> Floats:
        """Of the parameters that are not at a bound."""
        return self.found.covariance_with(self._inner)

    def is_known(self, key: str) -> bool:
        """Whether the log determines a parameter, alone or in combination with no other."""
        return key not in self.without_influence and all(key not in keys for keys in self.inseparable)

    @cached_property
    def without_influence(self) -> tuple[str, ...]:
        """Parameters on which no measured quantity depends."""
        normal = np.diag(self.found.normal)
        return tuple(key for key, n in zip(self.found.values, normal, strict=True) if n == 0.0 and key in self.keys)

    @cached_property
    def inseparable(self) -> tuple[tuple[str, ...], ...]:
        """Groups of parameters of which only a combination is known: any of them can be held, the others follow."""
        names = [name for name, n in zip(self.found.values, np.diag(self.found.normal), strict=True) if n > 0.0]
        places = [list(self.found.values).index(name) for name in names]
        normal = self.found.normal[np.ix_(places, places)]
        norm = np.sqrt(np.diag(normal))
        eigenvalues, vectors = np.linalg.eigh(normal / np.outer(norm, norm))
        known = eigenvalues >= SINGULAR
        variance = np.square(vectors[:, known]) @ (1.0 / eigenvalues[known])
        # Those whose value hangs on the combination more than on all that is known, however little they act.
        members = variance < np.square(vectors[:, ~known]).T / SINGULAR
        groups = (tuple(n for n, one in zip(names, each, strict=True) if one and n in self.keys) for each in members)
        return tuple(dict.fromkeys(group for group in groups if len(group) > 1))

    @cached_property
    def correlations(self) -> Floats:
        """Of the parameters, in their order; NaN where one is not known, or at a bound."""
        found = np.full((len(self.keys), len(self.keys)), np.nan)
        inner = [key for key in self.keys if key in self._inner and self.is_known(key)]
        here, there = ([names.index(key) for key in inner] for names in (self.keys, self._inner))
        covariance = self._covariance[np.ix_(there, there)]
        deviation = np.sqrt(np.diag(covariance))
        found[np.ix_(here, here)] = covariance / np.outer(deviation, deviation)
        return found

    def alike(self) -> list[tuple[str, str, float]]:
        """Pairs of parameters that can hardly be distinguished, with their correlation."""
        return [
            (self.keys[i], self.keys[j], float(self.correlations[i, j]))
            for i in range(len(self.keys))
            for j in range(i)
            if abs(self.correlations[i, j]) > ALIKE
        ]

    def at_bound(self, parameter: FreeParameter) -> bool:
        """Whether a parameter is at one of its bounds: the value that fits best may be beyond it."""
        x, width = self.value(parameter.key), parameter.upper - parameter.lower
        return min(x - parameter.lower, parameter.upper - x) < 1e-3 * width

    def part(self, log: int, held_out: bool) -> slice:
        """The samples of a log that were fitted, or those that were held out."""
        return slice(self.fitted[log], None) if held_out else slice(0, self.fitted[log])

    def deviation(self, log: int, name: str, held_out: bool, before: bool = False) -> Deviation:
        """Deviation of a predicted quantity from the measured one."""
        part, predicted = self.part(log, held_out), self.before if before else self.predicted
        return Deviation.between(predicted[log][name][part], self.logs[log].quantities[name][part])

    def noise(self, log: int, name: str) -> float:
        """Standard deviation of the noise of a measured quantity, from its second differences; SI."""
        return noise_of(self.logs[log].quantities[name][self.part(log, False)])


def noise_of(values: Floats) -> float:
    """Standard deviation of white noise on a signal that is mostly smooth.

    From the median of its second differences, whose variance is six times that of the noise: edges hardly count.
    """
    second = np.diff(values, 2)
    typical = float(np.median(np.abs(second))) / 0.6745  # of a normal distribution
    return (typical or float(np.std(second))) / float(np.sqrt(6.0))


@ending_own_calls()
def fit_circuit(
    file: Path,
    logs: Sequence[Path],
    free: Sequence[str],
    columns: LogColumns | None = None,
    tick: float = 1e-3,
    held_out: float = HELD_OUT,
    start: float = 0.0,
    end: float = np.inf,
) -> FitOfCircuit:
    """Identify the parameters ``free`` of a circuit file from logs. ``tick``: of the simulation, s.

    Raises ConfigurationError or HilserverError where the files do not fit together.
    """
    library = circuit_library(file)
    circuit = read_circuit_file(file, library)
    parameters = _free(circuit, free, str(file))
    names = _quantities(circuit, library, str(file))
    driving = (*circuit.inputs(), *_pressures(circuit))
    measured = tuple(read_measured(log, driving, names, columns, start, end) for log in logs)
    _require_pressures(circuit, measured, str(file))
    models = [_Model.of(circuit, library, str(file), log, parameters, tick, k) for k, log in enumerate(measured)]
    own = {parameter.key: parameter.start for parameter in parameters}
    for model in models:
        own |= {name: each.start for name, each in model.initial.items()}
    before = [model.quantities(own) for model in models]
    fitted = tuple(round((1.0 - held_out) * len(log.time)) for log in measured)
    signals = [
        Signal(f"{log.name}: {name}", values, np.arange(len(log.time)) < n, False, log.weights.get(name, 1.0))
        for log, n in zip(measured, fitted, strict=True)
        for name, values in log.quantities.items()
    ]
    searched = {p.key: Parameter(p.start, p.lower, p.upper, p.size, 0.0) for p in parameters}
    for model in models:
        searched |= model.initial

    def predict(values: Mapping[str, float]) -> list[Floats]:
        return [quantity for model in models for quantity in model.predicted(values)]

    try:
        found = fit(searched, signals, predict, own)
    except VariantFailedError as error:
        raise HilserverError(f"{file}: with the values in the file, the simulation has {error}.") from error
    predicted = tuple(model.quantities(found.values) for model in models)
    result = FitOfCircuit(file, circuit, parameters, found, measured, fitted, tuple(before), predicted)
    bounds = {p.key: (p.lower, p.upper) for p in parameters if np.isfinite(result.interval(p.key))}
    counts = [n for log, n in zip(measured, fitted, strict=True) for _ in log.quantities]
    residuals = [result.deviation(k, name, False).rms for k, log in enumerate(measured) for name in log.quantities]
    return replace(result, opened=open_sides(found, bounds, predict, counts, residuals))


def _free(circuit: Circuit, free: Sequence[str], file: str) -> tuple[FreeParameter, ...]:
    """The parameters with their bounds. Raises ConfigurationError with all problems."""
    known, problems, found = changeable(circuit), list[Problem](), list[FreeParameter]()
    tolerances = {path: value.tolerance for path, value in toleranced_values(circuit.written)}
    for name in dict.fromkeys(free):
        try:
            each = find(known, name)
        except ValueError as error:
            problems.append(Problem(as_sentence(error), name, file))
            continue
        if (tolerance := tolerances.get(each.path)) is not None:
            size = (tolerance.upper - tolerance.lower) / 4.0
            found.append(FreeParameter(short(each.key), each.unit, each.value, tolerance.lower, tolerance.upper, size))
        elif each.value != 0.0:
            low, high = sorted((each.value / WIDEST, each.value * WIDEST))
            found.append(FreeParameter(short(each.key), each.unit, each.value, low, high, SIZE * abs(each.value)))
        else:
            text = "is 0 and has no tolerance: give it one in the file, so that its bounds are known."
            problems.append(Problem(text, each.key, file))
    if not free:
        problems.append(Problem("no parameter is free: name them with --free.", file=file))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def _pressures(circuit: Circuit) -> list[str]:
    """The measured pressures at the machine's ports to which a circuit is connected."""
    return [f"{RIG}{port}.p" for port in circuit.rig_ports()]


def _require_pressures(circuit: Circuit, logs: Sequence[MeasuredLog], file: str) -> None:
    """Raises ConfigurationError where a log lacks the pressure at a port of the machine."""
    problems = [
        Problem(
            f"is connected to the machine, and {log.file} has no {name}: say which column it is, with --columns.",
            name.removesuffix(".p"),
            file,
        )
        for log in logs
        for name in _pressures(circuit)
        if name not in log.inputs
    ]
    if problems:
        raise ConfigurationError(problems)


def _quantities(circuit: Circuit, library: Library, file: str) -> tuple[str, ...]:
    """All quantities of a run of the circuit."""
    return pack(circuit, library, file=file).names


@dataclass(frozen=True)
class _Model:
    """The circuit driven by the inputs of a log.

    ``order``: keys of the values that are changed, as the fit knows them; ``initial``: those that are of this log.
    """

    log: MeasuredLog
    runs: CircuitRuns
    order: tuple[str, ...]
    initial: dict[str, Parameter]

    @classmethod
    def of(
        cls,
        circuit: Circuit,
        library: Library,
        file: str,
        log: MeasuredLog,
        parameters: Sequence[FreeParameter],
        tick: float,
        number: int,
    ) -> _Model:
        free = {p.key for p in parameters}
        table, initial = _with_starts(circuit, log, free)
        ranges = [(p.lower, p.upper) for p in parameters]
        ranges += [(each.lower, each.upper) for each in initial.values()]
        subject = CircuitSubject(
            file, table, library.own, log.cycle(circuit.inputs()), float(log.time[-1]) + tick, tick,
            (*(p.key for p in parameters), *initial), tuple(ranges),
            measured={name: (log.time, log.inputs[name]) for name in _pressures(circuit)},
        )  # fmt: skip
        try:
            runs = subject.prepare()
        except VariantFailedError as error:
            raise HilserverError(f"{file}: driven by {log.file}, the simulation has {error}.") from error
        own = {f"{key} at the start of log {number + 1}": each for key, each in initial.items()}
        return cls(log, runs, (*(p.key for p in parameters), *own), own)

    def quantities(self, values: Mapping[str, float]) -> dict[str, Floats]:
        """The predicted quantities at the samples of the log. Raises VariantFailedError."""
        names = list(self.log.quantities)
        try:
            packed = self.runs.varied.at([values[key] for key in self.order])
        except (ValueError, ConfigurationError) as error:
            raise VariantFailedError(str(error)) from None
        rows = self.runs.series(packed, names)
        return {name: np.interp(self.log.time, self.runs.time, row) for name, row in zip(names, rows, strict=True)}

    def predicted(self, values: Mapping[str, float]) -> list[Floats]:
        """The same in order; far away from the measured values where the circuit can't have these values."""
        try:
            return list(self.quantities(values).values())
        except VariantFailedError:
            return [each + 10.0 * (np.ptp(each) + 1.0) for each in self.log.quantities.values()]


def _with_starts(circuit: Circuit, log: MeasuredLog, free: set[str]) -> tuple[dict[str, Any], dict[str, Parameter]]:
    """The circuit as written with the first measured values as initial values, which are free, too."""
    nodes: dict[str, Any] = {name: dict(start) for name, start in circuit.written.get("nodes", {}).items()}
    known = {*circuit.hydraulic_nodes(), *circuit.mechanical_nodes(), *circuit.rotational_nodes()}
    initial = {}
    for quantity, values in log.quantities.items():
        node, _, letter = quantity.rpartition(".")
        if node not in known or "." in node or letter not in INITIAL:
            continue
        key, unit, size = INITIAL[letter]
        if f"nodes.{node}.{key}" in free:
            continue
        first = float(values[0])
        nodes.setdefault(node, {})[key] = f"{first!r} {unit}"
        width = max(float(np.ptp(values)), 10.0 * size)
        lower = max(first - width, 0.0) if letter == "p" and first >= 0.0 else first - width
        initial[f"nodes.{node}.{key}"] = Parameter(
            first,
            lower,
            first + width,
            max(0.01 * width, size),
            0.0,
            prior=max(FIRST_SAMPLE * noise_of(values), 0.01 * size),
        )
    return {**circuit.written, "nodes": nodes}, initial
