"""Logs of other people: the numbers that stand there, and a report of what doesn't."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilserver.record.format import RecordError
from hilserver.record.tables import BadCells, read_table


def table(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "log.txt"
    path.write_bytes(text.encode(encoding))
    return path


def test_a_tab_separated_log_of_raw_14_bit_counts(tmp_path: Path) -> None:
    """As condition-monitoring nodes write them: counts, and columns at the end that only some lines fill."""
    counts = np.random.default_rng(0).integers(0, 2**14, size=(300, 3))
    lines = ["Time\tPG_1\tPG_2\tAngle\tF_Names\tF_Values"]
    for number, (p_1, p_2, angle) in enumerate(counts.tolist(), start=1):
        summary = "Var_Accel1\t1.545" if number < 20 else "\t"
        lines.append(f"{number}\t{p_1}\t{p_2}\t{angle}\t{summary}")
    found = read_table(table(tmp_path, "\n".join(lines) + "\n"), ["Angle", "PG_1"], sample_rate_hz=500.0)
    assert found.columns == ("Angle", "PG_1")
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, counts[:, [2, 0]])
    np.testing.assert_array_equal(found.time, np.arange(300) / 500.0)
    assert (found.report.rows, found.report.delimiter) == (300, "\t")
    assert (found.report.bad_cells, found.report.ragged_lines) == ({}, ())


@settings(max_examples=60)
@given(
    values=st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3), min_size=1, max_size=30),
    delimiter=st.sampled_from("\t;,|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    decimal=st.sampled_from(".,"),
)
def test_every_number_is_read_exactly_whatever_the_delimiter(
    values: list[tuple[float, ...]], delimiter: str, quoting: Any, line_end: str, decimal: str
) -> None:
    if delimiter == decimal:
        delimiter = ";"
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=line_end)
    writer.writerow(["a", "b", "c"])
    writer.writerows([repr(value).replace(".", decimal) for value in line] for line in values)
    with TemporaryDirectory() as folder:
        found = read_table(table(Path(folder), text.getvalue()), ["c", "a"], sample_rate_hz=1.0, decimal=decimal)
    assert found.report.delimiter == delimiter
    np.testing.assert_array_equal(found.values, np.array(values)[:, [2, 0]])


@pytest.mark.parametrize(
    ("text", "value"),
    [("+1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("-1E-3", -1e-3), (" 7 ", 7.0), ('"8"', 8.0), ("0012", 12.0)],
)
def test_ways_to_write_a_number(tmp_path: Path, text: str, value: float) -> None:
    found = read_table(table(tmp_path, f"a,b\n{text},0\n"), ["a"], sample_rate_hz=1.0)
    assert found.values.tolist() == [[value]]


@pytest.mark.parametrize("text", ["", " ", "NaN", "inf", "1e999", "1.2.3", "0x10", "1_000", "1 000", "-", "n/a", "٣"])
def test_invalid_cells_become_nan_and_are_counted(tmp_path: Path, text: str) -> None:
    found = read_table(table(tmp_path, f"a,b\n1,2\n{text},3\n4,5\n{text},6\n"), ["b", "a"], sample_rate_hz=10.0)
    np.testing.assert_array_equal(found.values, [[2, 1], [3, np.nan], [5, 4], [6, np.nan]])
    assert found.report.bad_cells.keys() == {"a"}
    bad = found.report.bad_cells["a"]
    assert (bad.count, bad.first_line) == (2, 3)


def test_the_report_locates_the_invalid_cells(tmp_path: Path) -> None:
    path = table(tmp_path, "t;p\n0;1\n1;overload\n2\n3;4;5\n4;6\n")
    found = read_table(path, ["p"], sample_rate_hz=2.0)
    np.testing.assert_array_equal(found.values[:, 0], [1, np.nan, np.nan, np.nan, 6])
    np.testing.assert_array_equal(found.time, [0, 0.5, 1, 1.5, 2])
    assert found.report.bad_cells == {"p": BadCells(1, 3, '"overload"')}
    assert found.report.ragged_lines == (4, 5)
    assert str(found.report).splitlines() == [
        f"{path}: 5 samples",
        '  p: 1 without a number, first in line 3: "overload"',
        "  2 lines with too few or too many cells, first line 4: not used",
    ]


def test_line_numbers_hold_in_long_files_with_a_preamble(tmp_path: Path) -> None:
    """Longer than the blocks in which the library reads."""
    ragged, bad = {5, 70_000, 150_001}, {6: "x", 149_999: ""}
    lines = ["Logger 7", "serial;12;34;56", "t;p"]
    for number in range(4, 160_001):
        lines.append("1" if number in ragged else f"{number};{bad.get(number, number / 8)}")
    found = read_table(table(tmp_path, "\n".join(lines)), ["p"], sample_rate_hz=1.0, header_line=3)
    expected = np.arange(4, 160_001) / 8
    expected[np.array([*ragged, *bad]) - 4] = np.nan
    np.testing.assert_array_equal(found.values[:, 0], expected)
    assert found.report.ragged_lines == tuple(sorted(ragged))
    assert found.report.bad_cells["p"] == BadCells(2, 6, '"x"')


def test_decimal_commas(tmp_path: Path) -> None:
    found = read_table(
        table(tmp_path, "t;p\n0,5;1,25\n1,5;1.000\n2,5;-3\n"), ["t", "p"], sample_rate_hz=1.0, decimal=","
    )
    np.testing.assert_array_equal(found.values, [[0.5, 1.25], [1.5, np.nan], [2.5, -3]])


def test_a_column_without_numbers_is_an_error_that_suspects_the_decimal_sign(tmp_path: Path) -> None:
    path = table(tmp_path, "t;p\n0;1,25\n1;2,5\n")
    with pytest.raises(
        RecordError, match=r'"p" contains no number; line 2 contains "1,25"\. Is the decimal sign , instead'
    ):
        read_table(path, ["p"], sample_rate_hz=1.0)


def test_time_from_a_column_in_its_unit(tmp_path: Path) -> None:
    path = table(tmp_path, "p,ms\n1,0\n2,2.5\n3,\n4\n5,2.5\n6,7\n")
    found = read_table(path, ["p", "ms", "p"], time_column="ms", time_unit_s=1e-3)
    np.testing.assert_allclose(found.time, [0, 0.0025, 0.0025, 0.007], rtol=1e-15)
    np.testing.assert_array_equal(found.values, [[1, 0, 1], [2, 2.5, 2], [5, 2.5, 5], [6, 7, 6]])
    assert found.report.rows == 4
    assert found.report.bad_cells["ms"] == BadCells(1, 4, '""')
    assert found.report.ragged_lines == (5,)


def test_time_that_runs_backwards_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "t,p\n0,1\n,2\n2,3\n1.9,4\n3,5\n")
    with pytest.raises(RecordError, match="backwards in line 5"):
        read_table(path, ["p"], time_column="t")


def test_empty_lines_at_the_end_are_no_samples(tmp_path: Path) -> None:
    found = read_table(table(tmp_path, "a;b\n1;2\n;3\n;\n\n\n"), ["a", "b"], sample_rate_hz=1.0)
    np.testing.assert_array_equal(found.values, [[1, 2], [np.nan, 3]])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_names_in_common_encodings(tmp_path: Path, encoding: str) -> None:
    path = table(tmp_path, "Öldruck;Temp °C\n1;20 °\n2;30\n", encoding)
    found = read_table(path, ["Temp °C", "Öldruck"], sample_rate_hz=1.0)
    np.testing.assert_array_equal(found.values, [[np.nan, 1], [30, 2]])


def test_a_file_with_a_single_column(tmp_path: Path) -> None:
    found = read_table(table(tmp_path, "p\n1\n2\n"), ["p"], sample_rate_hz=1.0)
    assert found.values.tolist() == [[1], [2]]


def test_names_may_hold_other_delimiters_and_spaces_around_them(tmp_path: Path) -> None:
    found = read_table(table(tmp_path, "p,A [bar]; q\n1;2\n"), ["q", "p,A [bar]"], sample_rate_hz=1.0)
    assert found.values.tolist() == [[2, 1]]
    assert read_table(table(tmp_path, "a b\n1 2\n"), ["b"], sample_rate_hz=1.0, delimiter=" ").values.tolist() == [[2]]


RATE: dict[str, Any] = {"sample_rate_hz": 1.0}


@pytest.mark.parametrize(
    ("text", "columns", "options", "reason"),
    [
        (
            "PG_1\tPG_2\n1\t2\n",
            ["PG_1", "PG2", "zz"],
            RATE,
            r'no column "PG2"\. Did you mean PG_2\? no column "zz"\. Allo',
        ),
        ("t,p\n1,2\n", ["p"], {"time_column": "T"}, r'no column "T"\. '),
        ("p,p\n1,2\n", ["p"], RATE, 'has 2 columns named "p"'),
        ("", ["p"], RATE, "no header in line 1"),
        ("p,q\n", ["p"], RATE, "no samples"),
        ("p,q\n1\n2\n", ["p"], RATE, "no line below the header has 2 cells"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "header_line": 5}, "no header in line 5"),
        ("p,q\n1,2\n", ["p"], {}, "either its sample rate or"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "time_column": "q"}, "either its sample rate or"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 0.0}, "sample rate of 0.0 Hz"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": math.nan}, "sample rate of nan Hz"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "decimal": ";"}, '";" is not a decimal sign'),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "delimiter": ", "}, "is not a delimiter"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "delimiter": ",", "decimal": ","}, "is not a delimiter"),
        ("p,q\n1,2\n", ["p"], {"sample_rate_hz": 1.0, "header_line": 0}, "line 0"),
        ("p,q\n1,2\n", [], RATE, "no columns"),
    ],
)
def test_unreadable_tables_are_refused_with_the_reason(
    tmp_path: Path, text: str, columns: list[str], options: dict[str, Any], reason: str
) -> None:
    path = table(tmp_path, text)
    with pytest.raises(RecordError, match=reason) as caught:
        read_table(path, columns, **options)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", [bytes(range(256)) * 20, b"\xff\xfe\x00", b"\x00" * 5000])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"log\.bin"):
        read_table(path, ["p"], sample_rate_hz=1.0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read_table(tmp_path / "log.txt", ["p"], sample_rate_hz=1.0)
