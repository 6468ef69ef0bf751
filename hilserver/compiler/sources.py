"""What a compiled program is made from, and where it is stored."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from pathlib import Path

from hilserver.compiler.private import flaw, require_private

PACKAGE = Path(__file__).parents[1]
COMPILED_FROM = ("numerics", "components", "mechanics", "circuit", "tick", "compiler")
"""Packages with the functions that are compiled, and with those that compile them."""
SHIPPED = PACKAGE / "compiler" / "built"
"""Folder of the program in an installed package."""


@functools.cache
def fingerprint() -> str:
    """Hash of all sources of the prebuilt program: a program is used only with the sources it was compiled from."""
    found = hashlib.sha256()
    for package in COMPILED_FROM:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            found.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def cache_root() -> Path:
    """Folder of compiled programs: $CACHE_DIRECTORY (systemd), otherwise hilserver in $XDG_CACHE_HOME or ~/.cache."""
    if folder := os.environ.get("CACHE_DIRECTORY"):
        return Path(folder.split(":")[0])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hilserver"


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache; it need not exist.

    Raises HilserverError if another user may have written into it: it will contain code that is run.
    """
    root = writable(cache_root())
    require_private(root, root / name)
    return root / name


def writable(root: Path) -> Path:
    """The root if it can be written to, otherwise a private folder of this user under the temporary folder."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"hilserver-cache-{os.getuid()}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
        if flaw(fallback, fallback) is None:
            return fallback
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="hilserver-cache-"))  # the other one is somebody else's
