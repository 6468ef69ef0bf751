"""Third-party logs: CSV and tab-separated files as samples for replay."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from hilserver.errors import did_you_mean, shown
from hilserver.record.format import RecordError

DELIMITERS = ("\t", ";", ",", "|")
_NUMBER = r"^[+-]?([0-9]+{decimal}?[0-9]*|{decimal}[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class BadCells:
    """Cells of a column that hold no finite number: how many, line (1 is the file's first) and text of the first."""

    count: int
    first_line: int
    first_text: str


@dataclass(frozen=True)
class TableReport:
    """Properties of a table that was read: delimiter, bad cells by column, numbers of ragged lines."""

    path: Path
    rows: int
    delimiter: str
    bad_cells: dict[str, BadCells]
    ragged_lines: tuple[int, ...]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.rows} samples"]
        for name, bad in self.bad_cells.items():
            lines.append(f"  {name}: {bad.count} without a number, first in line {bad.first_line}: {bad.first_text}")
        if self.ragged_lines:
            count, first = len(self.ragged_lines), self.ragged_lines[0]
            lines.append(f"  {count} lines with too few or too many cells, first line {first}: not used")
        return "\n".join(lines)


@dataclass(frozen=True)
class SampleTable:
    """Samples of a third-party log: ``time`` float64[n] in s, ascending; ``values`` float64[n, columns], NaN if bad."""

    columns: tuple[str, ...]
    time: NDArray[np.float64]
    values: NDArray[np.float64]
    report: TableReport


def read_table(
    path: str | Path,
    columns: Sequence[str],
    *,
    sample_rate_hz: float | None = None,
    time_column: str | None = None,
    time_unit_s: float = 1.0,
    delimiter: str | None = None,
    decimal: str = ".",
    header_line: int = 1,
) -> SampleTable:
    """The named columns of a text table with one header line; other columns are ignored.

    Time follows from ``sample_rate_hz`` (the first sample is at 0 s) or from ``time_column``, counted in
    ``time_unit_s``. ``delimiter`` is found from the header (tab, ``;``, ``,`` or ``|``) unless given. ``decimal`` is
    ``"."`` or ``","``.

    A cell that is empty or isn't a finite number becomes NaN and is counted in the report; so does a line with too few
    or too many cells, which thus keeps its place among equidistant samples. Samples without a time are omitted, as are
    lines at the end that are empty in these columns.

    Raises `RecordError` for columns that are missing or contain no number at all, and for times that decrease.
    """
    path = Path(path)
    wrong = _wrong_options(columns, sample_rate_hz, time_column, delimiter, decimal, header_line)
    if wrong:
        raise RecordError(path, wrong)
    wanted = list(dict.fromkeys([*columns, time_column] if time_column is not None else columns))
    layout = _read_layout(path, wanted, delimiter, decimal, header_line)
    cells, ragged = _read_cells(path, layout)
    samples, bad = _numbers(path, layout, cells, ragged)
    values = samples[:, [wanted.index(name) for name in columns]]
    if sample_rate_hz is not None:
        time = np.arange(len(values)) / sample_rate_hz
    else:
        time, values = _in_order(path, layout, samples[:, wanted.index(str(time_column))] * time_unit_s, values)
    report = TableReport(path, len(values), layout.delimiter, bad, ragged)
    return SampleTable(tuple(columns), time, values, report)


def _wrong_options(
    columns: Sequence[str],
    sample_rate_hz: float | None,
    time_column: str | None,
    delimiter: str | None,
    decimal: str,
    header_line: int,
) -> str:
    if not columns:
        return "no columns to read were given."
    if (sample_rate_hz is None) == (time_column is None):
        return "give either its sample rate or the name of its time column."
    if sample_rate_hz is not None and not 0.0 < sample_rate_hz < np.inf:
        return f"a sample rate of {sample_rate_hz} Hz is not possible: it must be above 0."
    if decimal not in (".", ","):
        return f"{shown(decimal)} is not a decimal sign: give . or ,"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in f'{decimal}"\r\n'):
        return f"{shown(delimiter)} is not a delimiter: give one character other than the decimal sign {decimal}"
    if header_line < 1:
        return f"there is no line {header_line}: lines are counted from 1."
    return ""


@dataclass(frozen=True)
class _Layout:
    """Layout of a table: the ``positions`` of the required columns in a line of ``width`` cells."""

    positions: dict[str, int]
    width: int
    delimiter: str
    decimal: str
    header_line: int
    encoding: str


def _read_layout(path: Path, wanted: Sequence[str], delimiter: str | None, decimal: str, header_line: int) -> _Layout:
    encoding, header = read_header_line(path, header_line)
    candidates = [delimiter] if delimiter else [mark for mark in DELIMITERS if mark != decimal]
    headers = {mark: [name.strip() for name in next(csv.reader([header], delimiter=mark))] for mark in candidates}
    fitting = [mark for mark in candidates if set(wanted) <= set(headers[mark])]
    chosen = fitting[0] if fitting else max(candidates, key=lambda mark: len(headers[mark]))
    names = headers[chosen]
    missing = [name for name in wanted if name not in names]
    if missing:
        hints = " ".join(f"no column {shown(name)}.{did_you_mean(name, filter(None, names))}" for name in missing)
        raise RecordError(path, f"has {hints}")
    for name in wanted:
        if names.count(name) > 1:
            raise RecordError(path, f"has {names.count(name)} columns named {shown(name)}: make their names distinct.")
    return _Layout({name: names.index(name) for name in wanted}, len(names), chosen, decimal, header_line, encoding)


def read_header_line(path: Path, header_line: int) -> tuple[str, str]:
    """Encoding and header line. Numbers are ASCII in every encoding but UTF-16, so only names need the right one."""
    try:
        with path.open("rb") as file:
            wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if wide else "latin-1"
        with path.open(encoding=encoding) as text:
            header = next(islice(text, header_line - 1, None), "").rstrip("\n")
    except (OSError, UnicodeError) as error:
        raise RecordError(path, f"can't be read: {error}.") from error
    if not wide:
        with suppress(UnicodeDecodeError):
            header = header.encode("latin-1").decode("utf-8-sig")
    if not header.strip():
        raise RecordError(path, f"has no header in line {header_line}.")
    return encoding, header


def _read_cells(path: Path, layout: _Layout) -> tuple[pa.Table, tuple[int, ...]]:
    """The wanted cells as text, and the numbers of the lines with another number of cells."""
    ragged: list[int] = []

    def note(row: pa.csv.InvalidRow) -> str:
        ragged.append(row.number)
        return "skip"

    positions = [str(position) for position in layout.positions.values()]
    try:
        cells = pa.csv.read_csv(
            path,
            pa.csv.ReadOptions(
                use_threads=False,  # otherwise the lines are not numbered
                column_names=[str(position) for position in range(layout.width)],
                skip_rows=layout.header_line,
                encoding=layout.encoding,
            ),
            pa.csv.ParseOptions(delimiter=layout.delimiter, ignore_empty_lines=False, invalid_row_handler=note),
            pa.csv.ConvertOptions(include_columns=positions, column_types=dict.fromkeys(positions, pa.string())),
        )
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise RecordError(path, f"can't be read as a table: {error}.") from error
    return cells, tuple(ragged)


def _numbers(
    path: Path, layout: _Layout, cells: pa.Table, ragged: tuple[int, ...]
) -> tuple[NDArray[np.float64], dict[str, BadCells]]:
    """A sample per line below the header, float64[lines, wanted], and the bad cells; ragged lines are all NaN."""
    first = layout.header_line + 1
    every = np.arange(first, first + len(cells) + len(ragged))
    texts = [pa.compute.utf8_trim_whitespace(column) for column in cells.columns]
    is_ragged = np.isin(every, np.array(ragged, dtype=np.int64))
    is_filled = is_ragged.copy()
    samples = np.full((len(every), len(texts)), np.nan)
    for index, text in enumerate(texts):
        samples[~is_ragged, index] = parsed_numbers(text, layout.decimal)
        is_filled[~is_ragged] |= pa.compute.not_equal(text, "").to_numpy()
    end = int(np.flatnonzero(is_filled)[-1]) + 1 if is_filled.any() else 0
    samples, lines = samples[:end], every[:end][~is_ragged[:end]]
    if len(lines) == 0:
        raise RecordError(path, f"has no samples: no line below the header has {layout.width} cells as the header has.")
    bad = {}
    for index, name in enumerate(layout.positions):
        where = np.flatnonzero(np.isnan(samples[lines - first, index]))
        if len(where) == 0:
            continue
        line, text = int(lines[where[0]]), shown(texts[index][int(where[0])].as_py())
        if len(where) == len(lines):
            other = "," if layout.decimal == "." else "."
            hint = f" Is the decimal sign {other} instead of {layout.decimal}?" if other in text else ""
            raise RecordError(path, f"column {shown(name)} contains no number; line {line} contains {text}.{hint}")
        bad[name] = BadCells(len(where), line, text)
    return samples, bad


def parsed_numbers(text: pa.ChunkedArray, decimal: str) -> NDArray[np.float64]:
    """The numbers, NaN where the text is none or too large for one."""
    is_number = pa.compute.match_substring_regex(text, _NUMBER.format(decimal=re.escape(decimal)))
    plain = pa.compute.replace_substring(text, decimal, ".")
    values = pa.compute.if_else(is_number, plain, None).cast(pa.float64()).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


def _in_order(
    path: Path, layout: _Layout, time: NDArray[np.float64], samples: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The samples that have a time. Raises `RecordError` if it decreases."""
    known = np.flatnonzero(np.isfinite(time))
    backwards = np.flatnonzero(np.diff(time[known]) < 0.0)
    if len(backwards):
        line = layout.header_line + 1 + known[backwards[0] + 1]
        raise RecordError(path, f"time runs backwards in line {line}: samples must be in the order of their times.")
    return time[known], samples[known]
