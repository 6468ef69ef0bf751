"""Functions and files stay short enough to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_FUNCTION, LONGEST_FILE = 60, 500
"""Lines."""


def long_functions(source: str, longest: int = LONGEST_FUNCTION) -> list[str]:
    """Functions of a source that are longer than this, signature and docstring included."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [node.name for node in functions if node.end_lineno is None or node.end_lineno - node.lineno >= longest]


@pytest.mark.parametrize("folder", ["hilserver", "drivers"])
def test_no_function_is_long(folder: str) -> None:
    files = list((ROOT / folder).rglob("*.py"))
    assert len(files) > 10
    found = {str(file.relative_to(ROOT)): long_functions(file.read_text()) for file in files}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize("folder", ["hilserver", "drivers", "tests", "docs"])
def test_no_file_is_long(folder: str) -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in (ROOT / folder).rglob("*.py")
    }
    assert {file: length for file, length in lengths.items() if length > LONGEST_FILE} == {}


def test_a_long_function_is_found() -> None:
    source = "def short():\n    pass\n\n\nclass A:\n    async def long(self):\n        a = 1\n        return a\n"
    assert long_functions(source, 2) == ["long"]
