"""Tables in the terminal: whatever the width, nothing is cut."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from command_line import Command
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hilserver.cli.prose import say
from hilserver.cli.tables import PIPED, TerminalTable, fitted, new_console

ROOT = Path(__file__).parents[2]
LONGEST_WORD = 30
words = st.text("abcdefgß0123456789.,_/µ", min_size=1, max_size=LONGEST_WORD)
cells = st.lists(words, max_size=6).map(" ".join)


def printed(table: TerminalTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def table_of(rows: list[list[str]], boxed: bool = True) -> TerminalTable:
    table = TerminalTable(*(f"head {n}" for n in range(len(rows[0]))), title="a title")
    table.columns[0].no_wrap = True  # which would cut its cells
    if not boxed:
        table.box = None
    for row in rows:
        table.add_row(*row)
    return table


@given(
    rows=st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=4)),
    width=st.integers(60, 140),
    boxed=st.booleans(),
)
def test_every_word_is_whole_and_no_line_is_too_long(rows: list[list[str]], width: int, boxed: bool) -> None:
    text = printed(table_of(rows, boxed), width)
    shown = set(re.split(r"[\s│┃]+", text))
    assert {word for row in rows for cell in row for word in cell.split()} <= shown
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_a_table_that_is_too_wide_becomes_a_list() -> None:
    rows = [["relief", *["a_word_of_twenty_eight_letters"] * 4], ["pump", "", "short", "", ""]]
    assert printed(table_of(rows), 200).count("│") > 0
    text = printed(table_of(rows), 80)
    assert "│" not in text
    assert "head 0: relief\n" in text.replace(" \n", "\n")
    assert "  head 2: short" in text


def test_columns_share_what_is_left() -> None:
    assert fitted([4, 4, 4], [4, 100, 50], 30) == [4, 17, 9]
    assert sum(fitted([3, 7, 9, 2], [30, 70, 9, 11], 55)) == 55


def test_output_to_a_file_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert new_console().width == PIPED
    monkeypatch.setenv("COLUMNS", "90")
    assert new_console().width == 90


@pytest.mark.parametrize(
    "command",
    ["check config/rigs/lift.toml", "check config/circuits/crane.toml", "check config/mechanisms/excavator.toml"],
)
def test_a_check_at_80_columns_cuts_nothing(
    command: str, hilserver: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    said = hilserver(*command.split(), "-o", tmp_path)
    assert said.code == 0
    assert not re.search(r"\w…|…\w", said.out)
    tables = [line for line in said.out.splitlines() if line.startswith(("│", "┃"))]
    assert tables
    assert max(map(cell_len, tables)) <= 80


def said(text: str, terminal: bool) -> str:
    out = io.StringIO()
    say(text, Console(file=out, width=40, force_terminal=terminal, highlight=False, markup=False, emoji=False))
    return out.getvalue()


def test_sentences_are_broken_between_words_in_a_terminal_only() -> None:
    path = "/a/folder/whose/name/is/longer/than/a/line/of/this/terminal.html"
    text = f"The valve is too slow by a factor of 2.5: at 30 Hz it lags by 90°.\n  valve:x: 1 [bold]\nWritten: {path}"
    assert said(text, terminal=False) == f"{text}\n"
    lines = said(text, terminal=True).splitlines()
    assert " ".join(lines).split() == text.split()
    assert len(lines) == 5  # the path in one of its own
    assert all(len(line) <= 40 or line == path for line in lines)
