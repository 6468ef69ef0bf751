"""The location of the example configurations: in the source tree, or installed with the package."""

from __future__ import annotations

import sys
from pathlib import Path

import hilserver
from hilserver.errors import HilserverError


def component_example(name: str) -> Path | None:
    """Path of the example circuit of a component type, None if it has none."""
    places = [Path(hilserver.__file__).parent.parent / "docs/examples", Path(sys.prefix) / "share/hilserver/examples"]
    return next((path for place in places if (path := place / f"{name}.toml").is_file()), None)


def example(name: str) -> Path:
    """Path of an example configuration, such as ``rigs/demo.toml``. Raises HilserverError if it is not installed."""
    places = [Path(hilserver.__file__).parent.parent / "config", Path(sys.prefix) / "share" / "hilserver" / "config"]
    for place in places:
        if (place / name).is_file():
            return place / name
    raise HilserverError(f"the example configuration {name} is not in {' or '.join(map(str, places))}.")
