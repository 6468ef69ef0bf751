"""Python code in a log: it is run only if this user has run it before, or states that the log is trusted.

A rig's own components are in its log as text, so that a replay needs no other file. Anyone who sends a log could
therefore have any program run by its replay. The files that a rig file of this user names are run when it is loaded,
and marks of them are kept from then on, which can be made only with this user's key (compiler/seal.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hilserver.circuit.library import Library, library_of
from hilserver.circuit.own import OwnFile
from hilserver.compiler.seal import mark
from hilserver.compiler.sources import cache_root
from hilserver.errors import HilserverError

KNOWN = "known_libraries"
"""File in the cache: a line with mark and name for each Python file that was run."""


def fingerprint(file: OwnFile) -> str:
    """SHA-256 of the text, as sha256sum prints it for a file without a byte order mark."""
    return hashlib.sha256(file.text.encode()).hexdigest()


def remember(files: Iterable[OwnFile]) -> None:
    """Keep the marks of files that were run because a rig file names them."""
    known = _known()
    new = {mark(file.text): file.name for file in files}
    lines = "".join(f"{made}  {name!r}\n" for made, name in new.items() if made not in known)
    if lines:
        with suppress(OSError):  # a cache that can't be written to: --trust is needed
            cache_root().mkdir(parents=True, exist_ok=True)
            with (cache_root() / KNOWN).open("a") as store:
                store.write(lines)


def library_of_log(sources: Mapping[str, Any], log: Path, *, trust: bool = False) -> Library:
    """The library in the configuration of a log. Raises HilserverError, and runs nothing, if it is not trusted."""
    files = [OwnFile(**entry) for entry in sources.get("library", ())]
    known = _known() if files and not trust else frozenset()
    if unknown := [file for file in files if not trust and mark(file.text) not in known]:
        named = "".join(f"\n  {file.name}, SHA-256 {fingerprint(file)}" for file in unknown)
        raise HilserverError(
            f"{log}: contains Python code that was not run here before, as components of its rig:{named}\n"
            "Nothing was run. If you trust the source of this log, add --trust."
        )
    return library_of(files)


def _known() -> frozenset[str]:
    try:
        return frozenset(line.split(maxsplit=1)[0] for line in (cache_root() / KNOWN).read_text().splitlines() if line)
    except (OSError, UnicodeDecodeError):
        return frozenset()
