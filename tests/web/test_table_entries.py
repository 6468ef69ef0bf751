"""Tables of a datasheet as people write them: in rows."""

from __future__ import annotations

from typing import Any

import pytest

from hilserver.web.datasheet import as_text, as_value

OVERRIDE = [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]


@pytest.mark.parametrize(
    "text",
    [
        "5 bar, 20 l/min; 15 bar, 60 l/min",
        "5 bar at 20 l/min; 15 bar at 60 l/min",
        "5 bar at 20 l/min\n15 bar at 60 l/min\n",
        '[["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]',
    ],
)
def test_a_table_is_read_as_people_write_it(text: str) -> None:
    assert as_value(text) == OVERRIDE


def test_one_row_is_a_table_where_it_can_be_nothing_else() -> None:
    assert as_value("5 bar at 20 l/min") == as_value("5 bar, 20 l/min;") == OVERRIDE[:1]
    assert as_value("5 bar, 20 l/min") == "5 bar, 20 l/min"


@pytest.mark.parametrize(
    "text",
    [
        "5 bar, 20 l/min; 15 bar",
        "5 bar; 15 bar",
        "relief valve, 5 bar; pump",
        "0,5 bar, 20 l/min; 1,5 bar, 60 l/min",
        "open at 5 bar",
        "1, true; 2, NaN",
        ";",
    ],
)
def test_what_is_no_table_stays_a_text(text: str) -> None:
    assert as_value(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (OVERRIDE, "5 bar, 20 l/min; 15 bar, 60 l/min"),
        ([["0 s", 0], ["1 s", -0.8]], "0 s, 0; 1 s, -0.8"),
        (OVERRIDE[:1], '[["5 bar", "20 l/min"]]'),
        ([["=p", "20 l/min"], ["15 bar", "60 l/min"]], '[["=p", "20 l/min"], ["15 bar", "60 l/min"]]'),
        ([["1", "2"], ["3", "4"]], '[["1", "2"], ["3", "4"]]'),
        ([], "[]"),
        ([[], []], "[[], []]"),
        (["0 bar", "5 bar"], '["0 bar", "5 bar"]'),
        ([True, None], "[true, null]"),
    ],
)
def test_a_value_is_shown_such_that_the_same_is_read_again(value: Any, text: str) -> None:
    assert as_text(value) == text
    assert as_value(text) == value
