"""The command line in the test's own process; its fixture ``hilserver`` is in conftest.py."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hilserver.cli import main


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; ``answers`` is its standard input."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path, answers: io.StringIO | None = None) -> Said:
        monkeypatch.setattr(sys, "argv", ["hilserver", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", answers or io.StringIO())
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return run
