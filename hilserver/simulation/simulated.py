"""Simulating a circuit from Python: inputs as numbers, points or functions of time; results as arrays with units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.change import with_values
from hilserver.circuit.library import Library, circuit_library, standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import run_circuit
from hilserver.toml import read_toml
from hilserver.units import unit_of_value

Input = float | Sequence[Sequence[float]] | Floats | Callable[[float], float]
"""A constant, points ``[(time in s, value), …]`` with straight lines in between, or a function of the time in s."""
SAMPLING = 1e-3
"""s between two values of a function of time, with straight lines in between."""
_KINDS = {"pressure": "Pa", "flow": "m^3/s"}


@dataclass(frozen=True)
class Simulated:
    """A simulated circuit: ``time`` in s, all values of the circuit by name in SI units, and their units."""

    time: Floats
    values: Mapping[str, Floats]
    units: Mapping[str, str]

    def __getitem__(self, name: str) -> Floats:
        """A value over time. Raises KeyError that names similar ones."""
        if name not in self.values:
            raise KeyError(f"{name} is not a value of the circuit.{did_you_mean(name, self.values)}")
        return self.values[name]

    def __len__(self) -> int:
        return len(self.time)


def simulate(
    circuit: str | Path | Mapping[str, Any],
    inputs: Mapping[str, Input] | None = None,
    until: float = 10.0,
    *,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    library: Library | None = None,
) -> Simulated:
    """Simulate a circuit alone, from its initial values.

    Args:
        circuit: a circuit file, or its contents as a table.
        inputs: the signals that no component of the circuit writes, by name.
        until: end of the simulation, s.
        changes: values that differ from the file, as in a switch: ``{"relief": {"opening_pressure": "160 bar"}}``;
            ``parameters`` are those of the circuit.
        library: component types, for a table with components of one's own; a file names them itself (``library``).

    Raises:
        ConfigurationError: the circuit, a change or an input is wrong; all problems are named.
        HilserverError: the result is no longer finite.
    """
    file = "" if isinstance(circuit, Mapping) else str(circuit)
    if library is None:
        library = circuit_library(Path(file)) if file else standard_library()
    table = circuit if isinstance(circuit, Mapping) else read_toml(Path(file))
    read = read_circuit(table, library, file)
    for component, values in (changes or {}).items():
        read = read_circuit(with_values(read.written, component, values), library, file)
    read = read_circuit(_driven(read, inputs or {}, until), library, file)
    run = run_circuit(read, library, duration=until, name=Path(file).stem or "circuit", file=file)
    return Simulated(run.time, run.series, {name: _unit(run.packed, name) for name in run.series})


def _driven(circuit: Circuit, inputs: Mapping[str, Input], until: float) -> dict[str, Any]:
    """The circuit's table with a signal component for each of its inputs. Raises ConfigurationError."""
    problems = list(_wrong_inputs(circuit, inputs, until))
    components = dict(circuit.source["components"])
    for name in circuit.inputs():
        if name in inputs:
            try:
                components[f"input.{name}"] = _signal(name, inputs[name], until)
            except (ValueError, TypeError) as error:
                text = f"is a number, [(time in s, value), …] or a function of the time in s: {error}."
                problems.append(Problem(text, f"inputs.{name}"))
    if problems:
        raise ConfigurationError(problems)
    return {**circuit.source, "components": components}


def _wrong_inputs(circuit: Circuit, inputs: Mapping[str, Input], until: float) -> Iterator[Problem]:
    wanted = circuit.inputs()
    for name in wanted:
        if name not in inputs:
            yield Problem("missing: no component of the circuit writes this signal.", f"inputs.{name}")
    for name in inputs:
        if name not in wanted:
            yield Problem("is not an input of the circuit." + did_you_mean(name, wanted), f"inputs.{name}")
    for port in circuit.rig_ports():
        text = (
            f"rig.{port} is a port of the real machine: a circuit that is simulated alone includes its cylinder "
            f"and load."
        )
        yield Problem(text, "components")
    if not 0.0 < until < np.inf:
        yield Problem(f"{until!r} is not a time in s after 0.", "until")


def _signal(name: str, given: Input, until: float) -> dict[str, Any]:
    """A component that writes an input."""
    if callable(given):
        times = np.linspace(0.0, until, round(until / SAMPLING) + 1)
        points = np.column_stack([times, [float(given(t)) for t in times.tolist()]])
    else:
        points = np.asarray(given, dtype=np.float64)
        points = np.array([[0.0, float(points)]]) if points.ndim == 0 else points
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise ValueError(f"this is an array of {points.shape}, or not finite")
    if len(points) > 1 and not (np.diff(points[:, 0]) > 0.0).all():
        raise ValueError("the times must increase")
    return {"type": "table_signal", "signal": name, "samples": points.tolist()}


def _unit(packed: PackedCircuit, name: str) -> str:
    """SI unit of a value of a circuit; empty: none, or one that its component alone knows."""
    kind = dict(zip(packed.values, packed.kinds, strict=True)).get(name, "")
    if name in packed.values[: packed.n_states]:
        return "" if kind == "1" else kind
    return "s" if name == "t" else _KINDS.get(kind, unit_of_value(name))
