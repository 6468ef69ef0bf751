"""A signal given by a table over time."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from itertools import pairwise
from math import floor
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, StrictBool, model_validator

from hilserver.components.base import Component, Fluid, Parameters, Table, kernel
from hilserver.errors import did_you_mean, shown
from hilserver.numerics.table import interpolate
from hilserver.units import Number, Time

MAX_POINTS = 10_000
"""Limit for a switch of a running circuit; replay a longer record as a log of sensors instead."""


class TableSignal(Component):
    r"""A signal defined by points over time with linear interpolation, given in the circuit or in a CSV file.

    .. math:: u = f(t - t_0), \qquad \mathrm{or\ with}\;repeat: \quad u = f((t - t_0)\;\mathrm{mod}\;T)

    The CSV file is in the folder of the circuit file or in a folder below it. Its columns are separated by comma,
    semicolon or tab: time in seconds and value in SI, by default the first two; ``columns`` names others by the file's
    heading. Decimal commas are accepted where they are not separators. The file is read with the circuit; circuit and
    log then hold its points as ``samples``. t counts from the start of the circuit.
    """

    type_name = "table_signal"
    outputs = ("signal",)

    points: tuple[tuple[Time, Number], ...] | None = Field(
        default=None, description='[time, value], increasing times, like [["0 s", 0], ["2 s", 1]]'
    )
    csv: str | None = Field(default=None, description="CSV file, relative to the circuit file")
    columns: tuple[str, str] | None = Field(default=None, description="headings of the CSV file: time, value")
    samples: tuple[tuple[Number, Number], ...] | None = Field(
        default=None, description="[seconds, value], increasing times: the contents of the CSV file"
    )
    start: Time = Field(default="0 s", description="time of the table's 0 s, t_0")
    repeat: StrictBool = Field(default=False, description="whether the table repeats after its last point, T")

    @classmethod
    def embed(cls, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """The table with the contents of its CSV file; points or a file given later replace the samples."""
        given = "csv" if "csv" in values else "points"
        kept = {key: value for key, value in values.items() if key != "samples" or given not in values}
        if given == "points" or "points" in values:
            return kept
        name, columns = kept.pop("csv"), kept.pop("columns", None)
        return {**kept, "samples": read_points(name, columns, folder)}

    @model_validator(mode="after")
    def _rising_times(self) -> TableSignal:
        if self.csv is not None or (self.points is None) == (self.samples is None):
            raise ValueError("give either points or csv")
        if self.columns is not None:
            raise ValueError("columns: they belong to a csv file")
        if not self._curve():
            raise ValueError("points: give at least one")
        for number, ((before, _), (after, _)) in enumerate(pairwise(self._curve())):
            if after <= before:
                raise ValueError(
                    f"points: times must increase, but {before:g} s is followed by {after:g} s (point {number + 2})"
                )
        if self.repeat and not (self._curve()[0][0] >= 0 and self._curve()[-1][0] > 0):
            raise ValueError("repeat: the times of a table that repeats must start at 0 s and end later")
        return self

    def _curve(self) -> tuple[tuple[float, float], ...]:
        return self.samples or self.points or ()

    def parameters(self, fluid: Fluid) -> Parameters:
        times, values = zip(*self._curve(), strict=True)
        period = times[-1] if self.repeat else math.inf
        return {"table_u": Table(times, values), "t_0": self.start, "period": period}


def read_points(name: object, columns: object, folder: Path) -> list[list[float]]:
    """Times and values of a CSV file below ``folder``. ValueError names the file and the line."""
    if not isinstance(name, str) or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"csv: {shown(name)} must be a file in the folder of the circuit file or in a folder below it")
    try:
        with (folder / name).open(encoding="utf-8-sig", newline="") as file:
            lines = [line for _, line in zip(range(MAX_POINTS + 2), file, strict=False)]
    except (OSError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise ValueError(f"csv: {shown(name)} can't be read: {reason}") from None
    delimiter = next((mark for mark in ";\t" if lines and mark in lines[0]), ",")
    rows = list(csv.reader(lines, delimiter=delimiter))
    heading = rows.pop(0) if rows and (columns is not None or not all(map(_is_number, rows[0]))) else []
    times, values = _places(columns, [word.strip() for word in heading], name)
    first, found = 2 if heading else 1, []
    for number, row in enumerate(rows, first):
        if any(cell.strip() for cell in row):
            found.append([_number(row, place, f"csv: {name} line {number}") for place in (times, values)])
    if len(found) > MAX_POINTS:
        raise ValueError(f"csv: {shown(name)} has more than {MAX_POINTS} points")
    if not found:
        raise ValueError(f"csv: {shown(name)} has no points")
    return found


def _places(columns: object, heading: list[str], name: str) -> list[int]:
    """The indices of the columns of time and value."""
    if columns is None:
        return [0, 1]
    if not isinstance(columns, list | tuple) or len(columns) != 2:
        raise ValueError(f'columns: {shown(columns)} is not two headings like ["time", "demand"]')
    for word in columns:
        if word not in heading:
            raise ValueError(f"columns: {name} has no heading {shown(word)}.{did_you_mean(str(word), heading)}")
    return [heading.index(word) for word in columns]


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell.replace(",", ".")))
    except ValueError:
        return False


def _number(row: list[str], place: int, where: str) -> float:
    cell = row[place] if place < len(row) else ""
    if not _is_number(cell):
        raise ValueError(f"{where}, column {place + 1}: {shown(cell.strip())} is not a number")
    return float(cell.replace(",", "."))


@kernel(TableSignal)
def table_signal(t, table_u, t_0, period):
    x = t - t_0
    if x > period:
        x -= floor(x / period) * period
    u_signal = interpolate(table_u, x)
    return u_signal
