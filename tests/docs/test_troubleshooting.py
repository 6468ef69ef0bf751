"""The messages that the page on troubleshooting quotes are those of the program, word for word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = re.findall(r"^\| `([^`]*[a-z][^`]*)` \| .+ \| .+ \|$", PAGE, re.M)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| message", "| ---"))]


def _texts(tree: ast.AST) -> Iterator[str]:
    """All strings of a module, with … for what is inserted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def _program() -> str:
    """The strings of the program and the scripts of its pages, one a line."""
    found = list[str]()
    for folder in ("hilserver", "drivers"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            found += (text.replace("\n", " ") for text in _texts(ast.parse(file.read_text())))
        found += (file.read_text() for file in sorted((ROOT / folder).rglob("*.js")))
    return "\n".join(found)


def test_every_row_quotes_a_message() -> None:
    assert len(QUOTED) == len(ROWS) > 80
    assert len(set(QUOTED)) == len(QUOTED)


@pytest.mark.parametrize("message", QUOTED)
def test_message_is_in_the_program(message: str) -> None:
    """In one string, what stands between the … in the same order."""
    words = [re.escape(part) for part in re.split(r" ?… ?", message) if part]
    assert re.search("[^\n]*".join(words), _program()), f"no message of the program reads so (any more): {message}"
