"""The circuits beside a file that it can use as parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.toml import read_plain_toml

MOST_FILES = 300
"""Files of a folder that are looked at."""


def subcircuit_files(file: Path) -> Iterator[tuple[str, str]]:
    """The sub-circuits in the folder of a circuit file and in its folders: name relative to it, and description."""
    found = chain(file.parent.glob("*.toml"), file.parent.glob("[!.]*/*.toml"))
    for path in sorted(islice(found, MOST_FILES)):
        if path.resolve() == file.resolve():
            continue
        try:
            table = read_plain_toml(path)
        except HilserverError:
            continue
        if isinstance(table.get("ports"), list) and ("components" in table or "mechanisms" in table):
            yield path.relative_to(file.parent).as_posix(), str(table.get("description", ""))
