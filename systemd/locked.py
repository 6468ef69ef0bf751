"""The part of requirements-run.lock that an installation with some extras needs: ``python locked.py modbus panel``.

The lock names, for each package, which others need it ("via"). Written to standard output with the same versions and
hashes, for ``pip install --require-hashes``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
HERE = "hilserver (pyproject.toml)"


def name_of(requirement: str) -> str:
    """The normalised name at the start of a requirement."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def entries(lock: str) -> dict[str, str]:
    """The entry of each package in a lock, by its name."""
    found = re.findall(r"^\S+==.*\n(?:[ \t]+.*\n)*", lock, re.M)
    return {name_of(entry): entry for entry in found}


def needed_by(entry: str) -> set[str]:
    """Names of the packages that need this one; ``HERE`` if hilserver itself does."""
    via = entry.partition("# via")[2]
    lines = [line.strip(" #\t") for line in via.splitlines()]
    return {line if line == HERE else name_of(line) for line in lines if line and not line.startswith("-c ")}


def selected(lock: str, project: dict[str, object], extras: Iterable[str]) -> str:
    """The entries for the program with these extras. Raises SystemExit where there is no such extra."""
    table = project["project"]
    assert isinstance(table, dict)
    optional = table["optional-dependencies"]
    if unknown := set(extras) - optional.keys():
        sys.exit(f"There is no extra {', '.join(sorted(unknown))}. Extras: {', '.join(sorted(optional))}")
    wanted = [*table["dependencies"], *(item for extra in extras for item in optional[extra])]
    chosen, found = {name_of(item) for item in wanted}, entries(lock)
    while more := {name for name, entry in found.items() if name not in chosen and needed_by(entry) & chosen}:
        chosen |= more
    if missing := chosen - found.keys():
        sys.exit(f"Not in requirements-run.lock: {', '.join(sorted(missing))}")
    return "".join(entry for name, entry in found.items() if name in chosen)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sys.stdout.write(selected((ROOT / "requirements-run.lock").read_text(), project, sys.argv[1:]))
