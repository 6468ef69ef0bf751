"""What ``make install EXTRAS=...`` installs: locked packages, all that are needed, and none that are not."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import locked
import pytest
from own_library import OWN
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hilserver.circuit.library import library_of
from hilserver.circuit.own import OwnFile
from hilserver.compiler import check, compiled_program
from hilserver.errors import HilserverError

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements-run.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {*PROJECT["project"]["optional-dependencies"]} - {"dev", "docs"}


def installed(*extras: str) -> set[str]:
    return {*locked.entries(locked.selected(LOCK, PROJECT, extras))}


def closure(requirements: list[str]) -> set[str]:
    """The packages that these need according to the metadata of those installed here."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            needed = []
        for text in needed:
            inner = Requirement(text)
            if canonicalize_name(inner.name) not in found:
                waiting += [(inner, extra) for extra in {"", *requirement.extras}]
    return found


@pytest.mark.parametrize("extra", ["", *sorted(EXTRAS)])
def test_an_installation_is_complete(extra: str) -> None:
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]
    assert closure(wanted) <= installed(*filter(None, [extra]))


def test_only_what_runs_a_rig_is_installed_unless_more_is_chosen() -> None:
    heavy = {"numba", "llvmlite", "nicegui", "pandas", "asammdf", "nidaqmx", "pymodbus", "amqtt", "uvicorn"}
    assert not installed() & heavy
    assert installed("panel") & heavy == {"nicegui", "uvicorn"}
    assert installed("own-components") & heavy == {"numba", "llvmlite"}
    assert installed("modbus", "ni") & heavy == {"nidaqmx", "pymodbus"}


def test_all_extras_together_are_the_whole_lock_with_its_hashes() -> None:
    assert installed(*EXTRAS) == {*locked.entries(LOCK)}
    text = locked.selected(LOCK, PROJECT, EXTRAS)
    assert text.count("--hash=sha256:") == LOCK.count("--hash=sha256:")


def test_an_unknown_extra_is_refused_and_named() -> None:
    with pytest.raises(
        SystemExit, match=r"There is no extra panels\. Extras: cluster, compiled-circuits, dev, docs, embedded-broker,"
    ):
        installed("panels")


def test_own_components_without_their_compiler_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "hilserver.compiler.own", raising=False)
    library = library_of([OwnFile("my_components.py", OWN)])
    for use in (check, compiled_program):
        with pytest.raises(HilserverError, match=r"need Numba.*hilserver\[own-components\].*EXTRAS=own-components"):
            use(library)
