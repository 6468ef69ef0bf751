"""A public class name means one thing in hilserver and its drivers: the name in a trace is enough to find it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def doubles(sources: dict[str, str]) -> dict[str, list[str]]:
    """Public classes at the top level of modules (source by path) whose name occurs more than once: their modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_public_class_name_means_two_things() -> None:
    files = [*(ROOT / "hilserver").rglob("*.py"), *(ROOT / "drivers").rglob("*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    assert len(sources) > 100
    assert any("hilserver_drivers" in path for path in sources)
    assert doubles(sources) == {}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("class A: pass", "class A: pass", {"A": ["one", "other"]}),
        ("class _A: pass", "class _A: pass", {}),
        ("class A: pass", "class B:\n    class A: pass", {}),
    ],
)
def test_the_search_finds_public_classes_of_one_name(one: str, other: str, expected: dict[str, list[str]]) -> None:
    assert doubles({"one": one, "other": other}) == expected
