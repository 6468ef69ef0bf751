"""Code of circuits that has not been used for long leaves the cache, whatever other processes are doing there."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hilserver.compiler import circuit_code
from hilserver.compiler.seal import SEAL, fill_once, is_sealed
from hilserver.compiler.sources import LOCK, only_one
from hilserver.compiler.unused import note_use, remove_unused

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
