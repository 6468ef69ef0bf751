"""Machine code that somebody else may have written is not run: who owns the cache, and who may write to it."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer

from hilserver.cli.safe import safe
from hilserver.compiler import loading
from hilserver.compiler.private import flaw
from hilserver.compiler.sources import cache_folder, writable

ROOT = Path(__file__).parents[2]
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a program in it, as hilserver makes it."""
    root = writable(tmp_path / "cache" / "hilserver")
    folder = root / "0123456789abcdef"
    folder.mkdir()
    (folder / "x86-64-v3.so").write_bytes(b"machine code")
    return root


def test_a_new_cache_is_for_its_user_only_and_has_no_flaw(cache: Path) -> None:
    assert cache.stat().st_mode & 0o777 == 0o700
    assert flaw(cache, cache) is None
    assert flaw(cache, cache / "does not exist yet") is None


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722, 0o1777])
def test_a_cache_to_which_others_can_write_is_refused(mode: int, cache: Path) -> None:
    cache.chmod(mode)
    found = flaw(cache, cache / "0123456789abcdef")
    assert found is not None
    assert found.startswith(f"{cache}: other users can write to it (d")


@pytest.mark.parametrize("what", ["0123456789abcdef", "0123456789abcdef/x86-64-v3.so"])
def test_files_in_the_cache_must_not_be_writable_by_others(what: str, cache: Path) -> None:
    (cache / what).chmod(0o775)  # as with umask 0002, which some systems set for everybody
    assert flaw(cache, cache) is None, "nobody else gets into the cache"
    cache.chmod(0o755)
    assert (
        flaw(cache, cache)
        == f"{cache / what}: other users can write to it ({'d' if what[-1] == 'f' else '-'}rwxrwxr-x)"
    )


@as_root
@pytest.mark.parametrize("what", [".", "0123456789abcdef", "0123456789abcdef/x86-64-v3.so"])
def test_a_foreign_file_in_it_is_refused(what: str, cache: Path) -> None:
    os.chown(cache / what, NOBODY, -1)
    assert flaw(cache, cache) == f"{cache / what}: belongs to another user (number {NOBODY})"


@as_root
def test_a_cache_owned_by_root_is_accepted() -> None:
    """Root can do everything anyway."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # where everybody gets to
    (place / "program.so").write_text("")
    place.chmod(0o755)
    child = f"""
import os
from pathlib import Path
from hilserver.compiler.private import flaw
os.setuid({NOBODY})
print(flaw(Path("{place}"), Path("{place}")))
"""
    found = subprocess.run((sys.executable, "-c", child), capture_output=True, text=True, check=True, cwd=ROOT)
    shutil.rmtree(place)
    assert found.stdout == "None\n"


def test_a_link_out_of_the_cache_is_refused(cache: Path, tmp_path: Path) -> None:
    (cache / "own-1").symlink_to(tmp_path)
    assert flaw(cache, cache / "own-1") == f"{cache / 'own-1'}: is a link"


def test_a_folder_above_that_everybody_may_change_is_refused(cache: Path) -> None:
    cache.parent.chmod(0o777)
    found = flaw(cache, cache)
    assert found is not None
    assert found.startswith(f"{cache}: everybody can replace this folder, because {cache.parent} is drwxrwxrwx")
    cache.parent.chmod(0o1777)  # in a sticky folder, like /tmp, only its owner can
    assert flaw(cache, cache) is None


@as_root
def test_the_folder_for_want_of_a_cache_is_not_another_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    squatted = tmp_path / f"hilserver-cache-{os.getuid()}"
    squatted.mkdir()
    os.chown(squatted, NOBODY, -1)
    found = writable(tmp_path / "file" / "cache")
    assert found.parent == tmp_path
    assert found != squatted
    assert flaw(found, found) is None


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "replay", "doctor"])
def test_run_replay_and_doctor_refuse_a_cache_to_which_others_can_write(command: str, tmp_path: Path) -> None:
    """With a whole program in it, which would run otherwise."""
    root = writable(tmp_path / "hilserver")
    shutil.copytree(loading.standard_file().parent, root / loading.standard_file().parent.name)
    root.chmod(0o777)
    rig, log = ROOT / "config/rigs/demo.toml", tmp_path / "lift.arrow"
    log.write_bytes(lzma.decompress((ROOT / "tests/golden/lift.arrow.xz").read_bytes()))
    main = (sys.executable, "-c", "from hilserver.cli import main; main()", command)
    done = subprocess.run(
        (*main, str(log if command == "replay" else rig)),
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "COLUMNS": "400"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert f"{root}: other users can write to it (drwxrwxrwx)" in done.stdout + done.stderr
    assert f"Remove {root}" in done.stderr or f"rm -r {root}" in done.stdout
    assert "Traceback" not in done.stderr


def test_safe_values_are_written_with_any_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another cache, which is removed again."""
    cache.chmod(0o777)
    monkeypatch.setenv("CACHE_DIRECTORY", str(cache))
    used: list[Path] = []

    def load(file: Path) -> None:
        used.append(cache_folder("any").parent)

    monkeypatch.setattr("hilserver.rig.build.load_rig", load)
    monkeypatch.setattr("hilserver.service.safe.make_rig_safe", lambda _: {"card": None})
    with pytest.raises(typer.Exit) as ended:
        safe(Path("rig.toml"))
    assert ended.value.exit_code == 0
    said = capsys.readouterr()
    assert f"Warning: {cache}: other users can write to it" in said.err
    assert "device card is at its safe values." in said.out
    (folder,) = used
    assert folder != cache
    assert not folder.exists()
    assert os.environ["CACHE_DIRECTORY"] == str(cache)
