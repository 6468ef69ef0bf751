"""Machine code that hilserver has not written itself is not run, even if it came with the user's own rights."""

from __future__ import annotations

import lzma
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from own_library import OWN, rig_file

from hilserver.circuit.own import OwnFile
from hilserver.commissioning.doctor import check_cache
from hilserver.compiler import loading, seal
from hilserver.compiler.seal import KEY, SEAL, broken, broken_in, fill_once, require_seal, sealed
from hilserver.compiler.sources import SHIPPED
from hilserver.errors import HilserverError
from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter
from hilserver.rig.trust import KNOWN, library_of_log, remember

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a folder for a new key."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


@pytest.fixture
def stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in this cache, taken from the usual one."""
    with monkeypatch.context() as usual:
        for variable in ("CACHE_DIRECTORY", "STATE_DIRECTORY"):
            usual.delenv(variable)
        file = loading.standard_file()
    folder = loading.folder_in_cache()
    shutil.copytree(file.parent, folder)
    assert broken(folder) is not None or file.parent == SHIPPED, "the key of this cache is another one"
    seal.seal(folder)
    return folder / file.name


@pytest.fixture
def folder(cache: Path) -> Path:
    """A program as hilserver stores it."""
    folder = cache / "own-0123456789abcdef"
    with sealed(folder):
        (folder / "generated.py").write_text("a = 1\n")
        (folder / "index").mkdir()
        (folder / "index" / "entry.nbi").write_bytes(b"an index")
    return folder


def test_what_was_sealed_may_be_used_and_is_still_there(folder: Path) -> None:
    for _ in range(2):
        require_seal(folder)
        with sealed(folder):
            assert (folder / "index" / "entry.nbi").read_bytes() == b"an index"
    assert broken_in(folder.parent) is None


def change(folder: Path) -> None:
    (folder / "index" / "entry.nbi").write_bytes(b"An index")


def add(folder: Path) -> None:
    (folder / "index" / "another.nbi").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "generated.py").unlink()


def rename(folder: Path) -> None:
    (folder / "index" / "entry.nbi").rename(folder / "entry.nbi")


def take_the_seal_of_another_key(folder: Path) -> None:
    """As in a cache of somebody else that was unpacked here."""
    (folder / SEAL).write_text("0" * 64)


def take_the_program_of_another_component(folder: Path) -> None:
    """One that was sealed with this key, in the place of this."""
    other = folder.with_name("own-fedcba9876543210")
    with sealed(other):
        (other / "generated.py").write_text("a = 2\n")
    shutil.rmtree(folder)
    other.rename(folder)


@pytest.mark.parametrize(
    "happens",
    [change, add, remove, rename, take_the_seal_of_another_key, take_the_program_of_another_component],
)
def test_files_that_are_not_those_that_were_sealed_are_refused(happens: Callable[[Path], None], folder: Path) -> None:
    happens(folder)
    with pytest.raises(HilserverError, match=rf"{folder}: contains machine code that hilserver has not written here"):
        require_seal(folder)
    with pytest.raises(HilserverError, match=rf"Nothing in it is used. Remove {folder}"), sealed(folder):
        pytest.fail("it was used")
    assert check_cache(None).state == "error"
    assert str(folder) in check_cache(None).found


def test_what_a_killed_process_has_left_is_removed_and_not_used(folder: Path) -> None:
    (folder / SEAL).unlink()
    with sealed(folder):
        assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_failure_leaves_it_unsealed(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), sealed(folder):
        raise ZeroDivisionError
    assert broken(folder) is None
    assert not (folder / SEAL).exists()


def test_a_folder_is_filled_once_and_stays_usable_for_others(folder: Path) -> None:
    """As by two processes that compile the same circuit: the second neither fills it again nor takes its seal off."""

    def never(_: Path) -> None:
        pytest.fail("it was filled again")

    fill_once(folder, never)
    assert broken(folder) is None
    (folder / SEAL).unlink()  # of a process that was killed
    with pytest.raises(ZeroDivisionError):
        fill_once(folder, lambda _: 1 // 0)
    assert not (folder / SEAL).exists()
    fill_once(folder, lambda empty: (empty / "made").write_text(" ".join(path.name for path in empty.iterdir())))
    assert (folder / "made").read_text() == "lock"
    require_seal(folder)
    (folder / "made").write_text("other")
    with pytest.raises(HilserverError, match="Nothing in it is used"):
        fill_once(folder, never)


def test_the_key_is_private_and_kept_outside_of_the_cache(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "state" / KEY
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    key.chmod(0o640)
    with pytest.raises(HilserverError, match=rf"{key}: is not private \(-rw-r-----\)"):
        require_seal(folder)
    key.chmod(0o600)
    key.unlink()
    with pytest.raises(HilserverError, match="has not written here"):
        require_seal(folder)


@pytest.mark.skipif((SHIPPED / loading.FINGERPRINT_FILE).exists(), reason="the program is part of this package")
def test_a_program_in_which_one_byte_has_changed_is_not_loaded(stored: Path) -> None:
    assert (stored.parent / SEAL).exists()
    found = loading.found_file()
    assert found is not None
    code = bytearray(found.read_bytes())
    code[len(code) // 2] ^= 1
    found.write_bytes(code)
    with pytest.raises(HilserverError, match="has changed since"):
        loading.found_file()


def test_a_list_of_known_python_files_of_somebody_else_is_worth_nothing(cache: Path, tmp_path: Path) -> None:
    file = OwnFile("theirs.py", OWN)
    remember([file])
    log = {"library": [{"name": file.name, "text": file.text}]}
    library_of_log(log, Path("run.arrow"))
    known = (cache / KNOWN).read_text()
    (tmp_path / "state" / KEY).unlink()  # the list comes from where the key is another one
    assert (cache / KNOWN).read_text() == known
    with pytest.raises(HilserverError, match="was not run here before"):
        library_of_log(log, Path("run.arrow"))


def log_with(text: str, folder: Path) -> Path:
    """A log of a rig with components of this text."""
    golden, path = folder / "golden.arrow", folder / "run.arrow"
    golden.write_bytes(lzma.decompress((ROOT / "tests/golden/boom.arrow.xz").read_bytes()))
    reader = LogReader(golden)
    configuration = {**reader.header.configuration, "library": [{"name": "my_components.py", "text": text}]}
    with LogWriter(path, reader.header.model_copy(update={"configuration": configuration})) as writer:
        writer.append(next(reader.batches()).rows()[:1])
    return path


class Poison:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return exec, (f"open({str(self.mark)!r}, 'w').close()",)


HilserverIn = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HilserverIn]:
    """A folder with a rig whose own component has been compiled into a cache in it, and what runs a command there."""
    place = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patch:
        file = loading.standard_file()
        patch.setenv("CACHE_DIRECTORY", str(place / "cache"))
        patch.setenv("STATE_DIRECTORY", str(place / "state"))
        (place / "cache").mkdir(mode=0o700)
        program = loading.folder_in_cache()
        shutil.copytree(file.parent, program)
        seal.seal(program)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(place), "COLUMNS": "400"}
    rig = rig_file(place)
    main = (sys.executable, "-c", "from hilserver.cli import main; main()")

    def hilserver(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run((*main, *words), env=environment, cwd=place, capture_output=True, text=True, timeout=300)

    first = hilserver("check", str(rig))
    assert first.returncode == 0, first.stderr
    return place, hilserver


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "run", "replay", "doctor"])
def test_a_poisoned_index_of_own_components_is_not_unpickled(
    command: str, checked: tuple[Path, HilserverIn], tmp_path: Path
) -> None:
    """With the user's own rights, which root's always are."""
    place, hilserver = checked
    mark = tmp_path / "mark"
    log = log_with(OWN, tmp_path) if command == "replay" else rig_file(place)
    (index,) = (place / "cache").glob("own-*/**/*.nbi")
    index.write_bytes(pickle.dumps(Poison(mark)))
    done = hilserver(command, str(log))
    assert not mark.exists(), "the index has been run"
    assert done.returncode == 2, done.stdout + done.stderr
    assert "contains machine code that hilserver has not written here" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
