"""Recorded signals for a fit: what drives a circuit, and what is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, HilserverError, Problem, as_sentence, did_you_mean, problems_of
from hilserver.numerics.arrays import Floats
from hilserver.record.reader import LogReader
from hilserver.record.tables import read_header_line, read_table
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.toml import read_toml
from hilserver.units import Frequency, unit_of_value, value_and_unit

Read = TypeVar("Read")

FEWEST = 100
"""Samples below which nothing can be identified."""
TIME = "time"
"""Default name of the column of times, s."""


class LogColumn(Datasheet):
    """A column of a log as a quantity of the circuit."""

    column: str = Field(description="its name in the log", examples=["PG_1"])
    raw: tuple[float, float] | None = Field(default=None, description="two raw values", examples=[[0, 16383]])
    value: tuple[str | float, str | float] | None = Field(
        default=None,
        description="what they stand for; default: the column is in SI units",
        examples=[["0 bar", "250 bar"]],
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="of a measured quantity: 0.5 lets a deviation count half, as if its noise were twice as large",
    )

    @model_validator(mode="after")
    def _both(self) -> LogColumn:
        if (self.raw is None) != (self.value is None):
            raise ValueError('a scale has both: raw = [0, 16383], value = ["0 bar", "250 bar"]')
        if self.raw is not None and self.raw[0] == self.raw[1]:
            raise ValueError("raw: the two values are the same")
        return self

    def scaled(self, values: Floats, unit: str) -> Floats:
        """The column in SI. Raises ValueError for a value in another unit."""
        if self.raw is None or self.value is None:
            return values
        low, high = (_number(each, unit) for each in self.value)
        return np.asarray(low + (values - self.raw[0]) * (high - low) / (self.raw[1] - self.raw[0]))


class LogColumns(Datasheet):
    """A file that says which columns of a log are which quantities of the circuit."""

    description: str = Field(default="", description="free text")
    sample_rate: Frequency | None = Field(default=None, gt=0, description="of a log without times")
    time: str = Field(default=TIME, description="name of the column of times, s")
    columns: dict[str, str | LogColumn] = Field(
        min_length=1, description="name, or name and scale, by quantity or input of the circuit"
    )

    def by_quantity(self) -> dict[str, LogColumn]:
        """The columns, each with its scale."""
        return {name: LogColumn(column=each) if isinstance(each, str) else each for name, each in self.columns.items()}


@dataclass(frozen=True)
class MeasuredLog:
    """The samples of a log: ``time`` from 0 s on, inputs and measured quantities by name, SI.

    ``offset``: time of the first sample in the log, s; ``weights``: of the quantities, 1 where none is given.
    """

    file: Path
    time: Floats
    inputs: Mapping[str, Floats]
    quantities: Mapping[str, Floats]
    offset: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.file.stem

    def cycle(self, names: Container[str]) -> CycleSettings | None:
        """The recorded inputs of these names as a work cycle with straight lines between the samples; None without any.

        Its thousands of points are finite and ascending already: they are not validated as a file's are.
        """
        entries = {
            name: CycleInput.model_construct(
                shape="linear", points=tuple(zip(self.time.tolist(), values.tolist(), strict=True)), sweep=None
            )
            for name, values in self.inputs.items()
            if name in names
        }
        if not entries:
            return None
        return CycleSettings.model_construct(description="", repeat=False, length=None, inputs=entries)


def read_columns(file: Path) -> LogColumns:
    """A file of columns. Raises ConfigurationError."""
    raw = read_toml(file)
    try:
        return LogColumns.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, raw, file=str(file), names=LogColumns.model_fields)) from None


def read_measured(
    file: Path,
    inputs: Iterable[str],
    names: Iterable[str],
    columns: LogColumns | None = None,
    start: float = 0.0,
    end: float = np.inf,
) -> MeasuredLog:
    """The part of a log from ``start`` to ``end``, s. ``inputs``, ``names``: those of the circuit, and its quantities.

    Without ``columns``, a column is the input or quantity of its name. Raises HilserverError.
    """
    known_inputs, known = tuple(inputs), tuple(names)
    wanted = columns.by_quantity() if columns is not None else _same_names(file, (*known_inputs, *known))
    problems = [
        Problem(
            f"is neither an input nor a quantity of the circuit.{did_you_mean(name, (*known_inputs, *known))}", name
        )
        for name in wanted
        if name not in known_inputs and name not in known
    ]
    if problems:
        raise ConfigurationError(problems)
    if not wanted.keys() - known_inputs:
        raise HilserverError(f"{file}: no column is a quantity of the circuit: name them in a file, with --columns.")
    time, values = _samples(file, [each.column for each in wanted.values()], columns)
    used = np.flatnonzero((time >= start) & (time <= end) & np.isfinite(values).all(axis=1))
    if len(used) < FEWEST:
        raise HilserverError(f"{file}: {len(used)} samples with all columns are too few (at least {FEWEST}).")
    time, values = time[used], values[used]
    if np.any(np.diff(time) <= 0.0):
        raise HilserverError(
            f"{file}: times must increase, but after {time[np.argmin(np.diff(time))]:g} s they do not."
        )
    found = {}
    for k, (name, each) in enumerate(wanted.items()):
        try:
            found[name] = each.scaled(values[:, k], unit_of_value(name))
        except ValueError as error:
            raise ConfigurationError([Problem(as_sentence(error), f"columns.{name}")]) from None
    driving = {name: found[name] for name in known_inputs if name in found}
    measured = {name: line for name, line in found.items() if name not in driving}
    weights = {name: wanted[name].weight for name in measured}
    return MeasuredLog(file, time - time[0], driving, measured, float(time[0]), weights)


def _same_names(file: Path, names: tuple[str, ...]) -> dict[str, LogColumn]:
    """The columns whose names are those of the circuit."""
    if file.suffix == ".parquet":
        present = set(_parquet(file, pq.read_schema).names)
    elif file.suffix == ".arrow":
        present = set(LogReader(file).header.columns)
    else:
        _, head = read_header_line(file, 1)
        present = {cell.strip().strip('"') for mark in ",;\t|" for cell in head.split(mark)}
    return {name: LogColumn(column=name) for name in names if name in present}


def _samples(file: Path, names: list[str], columns: LogColumns | None) -> tuple[Floats, Floats]:
    """Times, s, and the columns of these names."""
    rate = columns.sample_rate if columns is not None else None
    of_time = columns.time if columns is not None else TIME
    if file.suffix not in (".arrow", ".parquet"):
        found = read_table(file, names, sample_rate_hz=rate, time_column=None if rate else of_time)
        return found.time, found.values
    if file.suffix == ".parquet":
        found = _parquet(file, pq.read_table)
        table: Mapping[str, Any] = {name: found[name].to_numpy() for name in found.column_names}
    else:
        reader = LogReader(file)
        reader.require(*names)
        table = reader.read_all().columns
    missing = [name for name in (*names, *([] if rate else [of_time])) if name not in table]
    if missing:
        raise HilserverError(f"{file}: there is no column {missing[0]}.{did_you_mean(missing[0], table)}")
    values = np.column_stack([np.asarray(table[name], dtype=float) for name in names])
    time = np.arange(len(values)) / rate if rate else np.asarray(table[of_time], dtype=float)
    return time, values


def _parquet(file: Path, read: Callable[[Path], Read]) -> Read:
    """What ``read`` finds in a Parquet file. Raises HilserverError if it is none."""
    try:
        return read(file)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise HilserverError(f"{file}: can't be read as a Parquet file: {reason}.") from error


def _number(given: str | float, unit: str) -> float:
    value, own = value_and_unit(given)
    if own != unit and unit:
        raise ValueError(f"{given} is measured in {own or 'no unit'}, the quantity in {unit}")
    return value
