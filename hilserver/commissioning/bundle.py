"""What a deployment takes to its target: the program with its libraries, and a rig with all files that it names."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any, BinaryIO

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hilserver.commissioning.on_target import RELEASE
from hilserver.compiler.loading import FINGERPRINT_FILE, all_files_in, standard_file
from hilserver.compiler.sources import SHIPPED
from hilserver.errors import HilserverError, did_you_mean
from hilserver.toml import read_toml

PACKAGES = ("hilserver", "hilserver_drivers")
BUILT = f"hilserver/{SHIPPED.parent.name}/{SHIPPED.name}"


@dataclass(frozen=True)
class Bundle:
    """Files by their path in the archive; texts that are not files; ``id``: a hash of all that."""

    files: Mapping[str, Path]
    texts: Mapping[str, bytes]

    @property
    def id(self) -> str:
        """Hash of all names and contents."""
        found = hashlib.sha256()
        for name in sorted({*self.files, *self.texts}):
            content = self.texts[name] if name in self.texts else self.files[name].read_bytes()
            found.update(f"{name}\0{len(content)}\0".encode() + content)
        return found.hexdigest()[:16]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.files.values()) + sum(map(len, self.texts.values()))

    def write(self, stream: BinaryIO) -> None:
        """Write it as a tar archive."""
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            for name, path in self.files.items():
                archive.add(path.resolve(), name, recursive=False)
            for name, content in self.texts.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))


def program(extras: Collection[str] = ()) -> Bundle:
    """This installation of hilserver: its modules, the compiled program, and the libraries that it needs.

    ``extras``: of which the libraries are needed, too. Raises HilserverError if one is unknown or not installed here.
    """
    metadata = distribution("hilserver").metadata
    known = {*(metadata.get_all("Provides-Extra") or ())} - {"dev", "docs"}
    if unknown := sorted({*extras} - known):
        raise HilserverError(f"there is no extra {unknown[0]}.{did_you_mean(unknown[0], known)}")
    files: dict[str, Path] = {}
    for name in _libraries(extras):
        found = distribution(name)
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            left_out = ".." in file.parts or file.suffix == ".pyc" or file.parts[0].startswith("__editable__")
            if not left_out and file.name != "direct_url.json" and path.is_file():
                files[str(file)] = path
    for package in PACKAGES:
        root = Path(importlib.import_module(package).__file__ or "").parent
        for path in root.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                files[f"{package}/{path.relative_to(root)}"] = path
    built = standard_file().parent
    for path in (*all_files_in(built).values(), built / FINGERPRINT_FILE):
        files[f"{BUILT}/{path.name}"] = path
    return Bundle(files, {})


def _libraries(extras: Collection[str]) -> set[str]:
    """The distributions that hilserver needs here, itself included, by what their metadata says."""
    found: dict[str, set[str]] = {}
    waiting = [("hilserver", {"", *extras})]
    while waiting:
        name, wanted = waiting.pop()
        if not wanted - found.get(name, set()):
            continue
        found.setdefault(name, set()).update(wanted)
        try:
            requires = distribution(name).requires or ()
        except PackageNotFoundError:
            needed = f" by --extra {', '.join(extras)}" if extras else ""
            raise HilserverError(f"{name} is needed{needed} and not installed here.") from None
        for requirement in map(Requirement, requires):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in wanted):
                waiting.append((canonicalize_name(requirement.name), {"", *requirement.extras}))
    return set(found)


def rig_files(file: Path) -> dict[str, Path]:
    """A rig file and all files that it names, directly or not, by their paths from the folder that has them all.

    With the other circuits in the folder of its circuit, to which an operator can switch. Raises HilserverError for a
    file with an absolute name, which the target does not have.
    """
    found: set[Path] = set()
    waiting = [file.resolve()]
    if isinstance(name := read_toml(file).get("circuit"), str):
        waiting += sorted((file.parent / name).resolve().parent.glob("*.toml"))
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".toml":
            for text in _texts(read_toml(path)):
                if (named := _named(text, path)) is not None:
                    waiting.append(named)
    base = Path(os.path.commonpath([path.parent for path in found]))
    return {str(path.relative_to(base)): path for path in sorted(found)}


def _named(text: str, by: Path) -> Path | None:
    """The file that a text in a file names, if it does."""
    if not text or len(text) > 255 or "\n" in text:
        return None
    path = (by.parent / text).resolve()
    if not path.is_file():
        return None
    if Path(text).is_absolute():
        raise HilserverError(f'{by}: "{text}" is the name of a file on this computer. Name it relative to {by.name}.')
    return path


def _texts(value: Any) -> Iterator[str]:
    """All texts in a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def release(file: Path, program_id: str) -> Bundle:
    """A rig for a target, with what it needs there."""
    files = rig_files(file)
    absolute = file.resolve()
    (name,) = (name for name, path in files.items() if path == absolute)
    about = {"file": name, "program": program_id, "version": version("hilserver")}
    return Bundle(files, {RELEASE: json.dumps(about).encode()})
