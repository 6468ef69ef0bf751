"""Code of circuits that has not been used for long leaves the cache, whatever other processes are doing there."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hilserver.compiler import circuit_code, seal
from hilserver.compiler.seal import SEAL, fill_once, is_sealed
from hilserver.compiler.sources import LOCK, only_one
from hilserver.compiler.unused import note_use, remove_unused
from hilserver.errors import HilserverError

DAY = 86400.0


def filled(root: Path, name: str, days: float) -> Path:
    """A sealed folder that was used last so many days ago."""
    folder = root / name
    fill_once(folder, lambda folder: (folder / circuit_code.FILE).write_bytes(b"code"))
    os.utime(folder / SEAL, (time.time() - days * DAY,) * 2)
    return folder


def test_what_is_old_and_what_is_too_much_is_removed(tmp_path: Path) -> None:
    new, older, old = (filled(tmp_path, f"circuit-{days}", days) for days in (1, 20, 40))
    other = filled(tmp_path, "own-components", 400)
    assert remove_unused(tmp_path, "circuit-") == ["circuit-40"]
    assert not old.exists()
    assert is_sealed(new)
    assert is_sealed(older)
    assert remove_unused(tmp_path, "circuit-", number=1) == ["circuit-20"]
    assert remove_unused(tmp_path, "circuit-", number=1) == []
    assert is_sealed(other)


def test_what_has_just_been_made_stays_whatever_the_clock_says(tmp_path: Path) -> None:
    """A clock that has been set back leaves times of use in the future, so that the newest folder seems the oldest."""
    made = filled(tmp_path, "circuit-new", 0)
    later = [filled(tmp_path, f"circuit-{k}", -400) for k in range(2)]
    assert remove_unused(tmp_path, "circuit-", keep=made, number=2) == []
    assert is_sealed(made)
    assert all(map(is_sealed, later))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = filled(tmp_path, "important", 400)
    (tmp_path / "circuit-1").symlink_to(elsewhere)
    assert remove_unused(tmp_path, "circuit-") == []
    assert is_sealed(elsewhere)


@pytest.mark.parametrize("when", ["before the seal is read", "before a file is read", "after the files are read"])
def test_code_that_is_removed_while_it_is_looked_for_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: str
) -> None:
    """No error, and no path of a file that is gone."""
    folder = filled(tmp_path, "circuit-1", 0)
    monkeypatch.setattr(circuit_code, "folder_of", lambda index: folder)
    read_text, read_bytes, mark_of = Path.read_text, Path.read_bytes, seal._mark_of

    def remove() -> None:
        remove_unused(tmp_path, "circuit-", days=-1.0)

    def text(path: Path, **options: Any) -> str:
        if when == "before the seal is read" and path.name == SEAL:
            remove()
        return read_text(path, **options)

    def content(path: Path) -> bytes:
        if when == "before a file is read" and path.name == circuit_code.FILE:
            remove()
        return read_bytes(path)

    def mark(of: Path) -> str:
        found = mark_of(of)
        if when == "after the files are read":
            remove()
        return found

    monkeypatch.setattr(Path, "read_text", text)
    monkeypatch.setattr(Path, "read_bytes", content)
    monkeypatch.setattr(seal, "_mark_of", mark)
    with pytest.raises(HilserverError, match="the circuit can't be compiled: gone"):
        circuit_code.file_made(None, b"gone")  # type: ignore[arg-type]
    assert not folder.exists()


def test_looking_for_code_is_its_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = filled(tmp_path, "circuit-1", 400)
    monkeypatch.setattr(circuit_code, "folder_of", lambda index: folder)
    assert circuit_code.file_made(None, b"") == folder / circuit_code.FILE  # type: ignore[arg-type]
    assert remove_unused(tmp_path, "circuit-") == []
    note_use(tmp_path / "not there")  # says nothing


def test_what_is_being_filled_stays(tmp_path: Path) -> None:
    folder = filled(tmp_path, "circuit-1", 400)
    with only_one(folder):
        assert remove_unused(tmp_path, "circuit-") == []
    assert remove_unused(tmp_path, "circuit-") == ["circuit-1"]


def test_what_was_left_by_a_killed_compiler_is_removed(tmp_path: Path) -> None:
    folder = filled(tmp_path, "circuit-1", 0)
    (folder / SEAL).unlink()
    assert remove_unused(tmp_path, "circuit-") == []
    os.utime(folder, (time.time() - 400 * DAY,) * 2)
    assert remove_unused(tmp_path, "circuit-") == ["circuit-1"]


@pytest.mark.parametrize("gone", [FileExistsError, FileNotFoundError])
def test_a_folder_that_is_removed_while_it_is_created_is_created_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gone: type[OSError]
) -> None:
    """It existed when it was to be created, and no longer when that was looked at."""
    mkdir, failures = Path.mkdir, [gone]

    def interrupted(path: Path, **options: Any) -> None:
        if failures:
            raise failures.pop()(str(path))
        mkdir(path, **options)

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with only_one(tmp_path / "circuit-1"):
        assert (tmp_path / "circuit-1" / LOCK).exists()


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError), only_one(tmp_path / name):
            pass


def test_who_waits_for_a_removed_folder_gets_a_new_one(tmp_path: Path) -> None:
    """A process that has opened the lock of a folder before it was removed would otherwise fill one that is gone."""
    folder = filled(tmp_path, "circuit-1", 400)
    entered = threading.Event()

    def fill() -> None:
        with only_one(folder):
            (folder / circuit_code.FILE).write_bytes(b"new")
        entered.set()

    with only_one(folder):
        thread = threading.Thread(target=fill)
        thread.start()
        assert not entered.wait(0.05)
        for path in (folder / SEAL, folder / circuit_code.FILE, folder / LOCK):
            path.unlink()
        folder.rmdir()
    thread.join(10.0)
    assert (folder / circuit_code.FILE).read_bytes() == b"new"
    with only_one(folder):
        assert (folder / LOCK).exists()
