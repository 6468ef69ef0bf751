"""The location of the example configurations, in the source tree or installed with the package; those ready to run."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hilserver
from hilserver.errors import HilserverError, did_you_mean


@dataclass(frozen=True)
class ReadyExample:
    """An example that `hilserver demo` runs by its name: a simulated rig, or a complete circuit with its work cycle."""

    file: Path
    description: str
    cycle: Path | None = None


def component_example(name: str) -> Path | None:
    """Path of the example circuit of a component type, None if it has none."""
    places = [_source() / "docs/examples", *(place / "examples" for place in _installed())]
    return next((path for place in places if (path := place / f"{name}.toml").is_file()), None)


def example(name: str) -> Path:
    """Path of an example configuration, such as ``rigs/demo.toml``. Raises HilserverError if it is not installed."""
    places = [_source() / "config", *(place / "config" for place in _installed())]
    for place in places:
        if (place / name).is_file():
            return place / name
    raise HilserverError(f"the example configuration {name} is not in {' or '.join(map(str, places))}.")


def _source() -> Path:
    return Path(hilserver.__file__).parent.parent


def _installed() -> list[Path]:
    """Where a wheel puts its data: in the environment, in the user's folder (--user), beside the package (--target)."""
    user = sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))
    return [place / "share/hilserver" for place in dict.fromkeys((Path(sys.prefix), Path(user), _source()))]


def ready_example(name: str) -> ReadyExample:
    """The example of this name. Raises HilserverError, with a hint, if there is none that can be run."""
    known = ready_examples()
    if name not in known:
        close = did_you_mean(name, known)
        raise HilserverError(f'no example is called "{name}".{close} hilserver demo --list describes all of them.')
    return known[name]


def ready_examples() -> dict[str, ReadyExample]:
    """All examples that can be run: rigs first, `demo` at their head; then circuits whose names no rig has."""
    from hilserver.toml import read_plain_toml

    base = example("rigs/demo.toml").parents[1]
    tables = {file: read_plain_toml(file) for folder in ("rigs", "circuits") for file in _files(base / folder)}
    found: dict[str, ReadyExample] = {}
    for file, table in tables.items():
        cycle = base / "cycles" / file.name
        if "devices" in table:
            if all(device["driver"] == "simulated" for device in table["devices"].values()):
                found[file.stem] = ReadyExample(file, table["description"])
        elif cycle.is_file() and not _has_open_ports(table):
            found.setdefault(file.stem, ReadyExample(file, table["description"], cycle))
    return found


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob("*.toml"), key=lambda file: (file.stem != "demo", file.stem)))


def _has_open_ports(circuit: dict[str, Any]) -> bool:
    """Whether it is to be connected to the machine of a rig."""
    nodes = [node for part in circuit["components"].values() for node in part.get("ports", {}).values()]
    return any(str(node).startswith("rig.") for node in nodes)
