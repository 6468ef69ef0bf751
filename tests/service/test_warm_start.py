"""Commands that are copies of a process with everything imported (`warm_start`): what is the same as for users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from service_harness import Server, children_of, eventually, is_alive, rig_text
from warm_start import start

KILLED = """
import subprocess, sys, time
from warm_start import start
command = start(("run", sys.argv[1]), stdout=subprocess.PIPE)
command.stdout.readline()
print(command.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("arguments", [("--version",), ("run", "no_such_file.toml"), ("run", "--no-such-option")])
def test_it_says_the_same_and_ends_with_the_same_code(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    said = []
    for really in (False, True):
        with (tmp_path / "errors").open("w") as errors:
            process = start(arguments, stdout=subprocess.PIPE, stderr=errors, folder=tmp_path, really=really)
        assert isinstance(process, subprocess.Popen) == really
        assert process.stdout is not None
        with process.stdout as output:
            said.append((output.read(), process.wait(60.0), (tmp_path / "errors").read_text()))
    assert said[0] == said[1]
    assert said[0][0] or said[0][2]


@pytest.mark.realtime
def test_it_has_its_own_environment_and_no_files_of_others(tmp_path: Path) -> None:
    with Server(tmp_path, environment={"OF_THIS_TEST": "1"}) as server:
        supervisor = server.pids["supervisor"]
        parent = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent != os.getpid()
        assert open_files(supervisor) & open_files(parent) <= {os.devnull}
        assert Path(f"/proc/{server.pids['broker']}/environ").read_bytes().count(b"OF_THIS_TEST=1") == 1
        server.kill("supervisor", number=signal.SIGINT)
        assert server.wait_exit() == 0
        assert server.leaves() == []


def open_files(pid: int) -> set[str]:
    """What the descriptors of a process stand for."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile
            found.add(str(file.readlink()))
    return found


@pytest.mark.parametrize("variable", ["PYTHONPATH", "LD_LIBRARY_PATH", "OPENBLAS_NUM_THREADS"])
def test_it_is_really_started_if_libraries_were_loaded_otherwise(tmp_path: Path, variable: str) -> None:
    process = start(("--version",), environment={**os.environ, variable: "7"}, folder=tmp_path)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60.0) == 0


@pytest.mark.parametrize("module", ["numpy", "sitecustomize", "of_this_test"])
def test_it_is_really_started_if_other_modules_would_be_imported(tmp_path: Path, module: str) -> None:
    """In place of those that are imported already, or by the interpreter; whatever else is found there comes later."""
    (tmp_path / "modules" / module).mkdir(parents=True)
    path = os.pathsep.join((str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")))
    process = start(("--version",), environment={**os.environ, "PYTHONPATH": path}, folder=tmp_path)
    assert isinstance(process, subprocess.Popen) == (module != "of_this_test")
    process.wait(60.0)


@pytest.mark.realtime
def test_it_ends_with_the_tests_even_if_these_are_killed(tmp_path: Path) -> None:
    rig = tmp_path / "rig.toml"
    rig.write_text(rig_text(f"left_{os.getpid()}", tmp_path))
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support"), "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen((sys.executable, "-c", KILLED, rig), stdout=subprocess.PIPE, text=True, env=given) as tests:
        assert tests.stdout is not None
        supervisor = int(tests.stdout.readline())
        pids = [supervisor, *children_of(supervisor).values()]
        assert len(pids) > 3
        tests.kill()
    eventually(lambda: not any(map(is_alive, pids)))
    assert not list(tmp_path.glob("hilserver/*.json"))
