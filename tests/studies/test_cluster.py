"""Studies on a Dask cluster of real schedulers and workers: the results are those of this process, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import Command
from study_bench import STUDY, FunctionSubject, WatchedSubject, computing, deadly, slow, written_study
from warm_start import COMMAND as HILSERVER

from hilserver.errors import HilserverError
from hilserver.studies import cluster as cluster_module
from hilserver.studies import own_calls, worst
from hilserver.studies.cluster import Cluster, cluster
from hilserver.studies.execution import DIED, evaluate
from hilserver.studies.settings import load_study
from hilserver.studies.study import run_study
from hilserver.studies.worst import worst_case

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).parents[1] / "support"
LOCAL = ("--host", "127.0.0.1")
CALM = {"DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s", "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
"""Variables with which processes of Dask neither look at themselves fifty times a second nor sample their stacks."""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a scheduler with two workers, whose tasks fail for good when the worker that has one dies."""
    folder = tmp_path_factory.mktemp("dask")
    file, never = folder / "scheduler.json", {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with ExitStack() as running:
        started(running, folder, "scheduler", *LOCAL, "--port", "0", "--scheduler-file", file, **never)
        for name in ("one", "two"):
            options = ("--name", name, "--nthreads", "1", "--local-directory", folder / name)
            started(running, folder, "worker", *LOCAL, "--scheduler-file", file, *options)
        while not file.exists():
            time.sleep(0.05)
        with cluster(str(file), 1) as found:
            found.client.wait_for_workers(2, timeout=100.0)
        yield file


def started(running: ExitStack, folder: Path, *words: str | Path, **environment: str) -> None:
    """Start a process of Dask until the end of the module."""
    command = [sys.executable, "-m", "dask", *map(str, words), "--no-dashboard"]
    variables = {**os.environ, "PYTHONPATH": str(SUPPORT), "OPENBLAS_NUM_THREADS": "1", **CALM, **environment}
    with (folder / "log.txt").open("a") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    running.callback(process.wait)
    running.callback(process.terminate)


def test_the_table_is_that_of_one_process(scheduler: Path, hilserver: Command, tmp_path: Path) -> None:
    file = written_study(tmp_path)
    here = run_study(load_study(file), tmp_path / "here").table
    said = hilserver("study", file, "--cluster", scheduler, "-o", tmp_path / "there")
    assert said.code == 0, said.err
    assert "2 workers; dashboard: http://127.0.0.1" in said.err
    assert pq.read_table(tmp_path / "there/tolerances.parquet").equals(here)


def test_a_worker_that_is_killed_loses_no_variant_and_repeats_none(scheduler: Path) -> None:
    values = np.arange(120.0)[:, None]
    with cluster(str(scheduler), 1) as found:
        pids = list(found.client.run(os.getpid).values())
        numbers, figures = list[int](), list[float]()
        for each in found.evaluate(FunctionSubject(slow), values, 1, batch=5):
            numbers += range(each.first, each.first + len(each.figures))
            figures += each.figures[:, 0].tolist()
            assert each.failures == {}
            if each.first == 10:
                os.kill(pids[0], signal.SIGKILL)
    assert numbers == list(range(120))
    assert figures == [slow(row) for row in values]


def test_a_variant_that_kills_its_process_is_named_and_costs_no_worker(scheduler: Path) -> None:
    values = np.arange(60.0)[:, None]
    values[30] = 8.5
    patience = (0.3, inf)
    with cluster(str(scheduler), 1) as found:
        before = found.client.run(os.getpid)
        parts = list(found.evaluate(FunctionSubject(deadly), values, 1, batch=20, patience=patience))
        assert found.client.run(os.getpid) == before
    here = list(evaluate(FunctionSubject(deadly), values, 1, workers=2, patience=patience))
    assert {k: reason for each in parts for k, reason in each.failures.items()} == {7: DIED, 30: DIED}
    there, expected = (np.concatenate([each.figures for each in found]) for found in (parts, here))
    np.testing.assert_array_equal(there, expected)


def test_python_of_the_users_is_watched_while_a_worker_prepares_a_study(scheduler: Path) -> None:
    """As in the processes of a study without a cluster; these end with the study."""
    with cluster(str(scheduler), 1) as found:
        (each,) = found.evaluate(WatchedSubject(), np.zeros((1, 1)), 1)
        while any(found.client.run(computing).values()):
            time.sleep(0.05)
    assert each.figures == own_calls.LIMIT / own_calls.LOOKS


@pytest.fixture
def _environment() -> Iterator[None]:
    """Dask sets variables for its workers in its own process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("_environment")
def test_a_cluster_of_this_machine(hilserver: Command, tmp_path: Path) -> None:
    file = written_study(tmp_path)
    here = run_study(load_study(file), tmp_path / "here").table
    said = hilserver("study", file, "--cluster", "local", "-j", "1", "-o", tmp_path / "local")
    assert said.code == 0, said.err
    assert pq.read_table(tmp_path / "local/tolerances.parquet").equals(here)


def test_another_version_on_a_worker_is_refused(scheduler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "version", lambda name: "9.9")
    other = pytest.raises(HilserverError, match=r"worker tcp://127.* has hilserver .*, this computer hilserver 9\.9")
    with other, cluster(str(scheduler), 1):
        pass


def test_a_worker_that_comes_later_is_examined_too(scheduler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(str(scheduler), 1) as found:
        monkeypatch.setattr(cluster_module, "version", lambda name: "9.9")
        with pytest.raises(HilserverError, match=r"a worker has hilserver .*, the study was begun with 9\.9"):
            list(found.evaluate(FunctionSubject(slow), np.zeros((2, 1)), 1))


def test_the_worst_case_is_that_of_one_process(
    scheduler: Path, hilserver: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same candidates with the same figures, in the same order."""
    monkeypatch.setattr(worst, "GENERATIONS", 3)
    file = written_study(tmp_path)
    here = pq.read_table(worst_case(load_study(file), "end", tmp_path / "here").table)
    said = hilserver("study", file, "--worst", "end", "--cluster", scheduler, "-o", tmp_path / "there")
    assert said.code == 0, said.err
    assert pq.read_table(tmp_path / "there/tolerances-worst-end.parquet").equals(here)


@pytest.mark.usefixtures("_environment")
def test_a_variant_that_hangs_is_given_up_by_a_worker_with_several_threads() -> None:
    """The run beside it goes on, and so does the worker."""
    started: Any = distributed.LocalCluster
    connected: Any = distributed.Client
    with (
        started(n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0") as local,
        connected(local) as client,
    ):
        before = client.run(os.getpid)
        values = np.array([[2.0], [8.5], [3.0], [4.0]])
        found = list(Cluster(client, 2, "").evaluate(FunctionSubject(deadly), values, 1, batch=2, patience=(0.3, inf)))
        assert client.run(os.getpid) == before
    assert [each.failures for each in found] == [{1: DIED}, {}]
    np.testing.assert_array_equal(np.concatenate([each.figures for each in found]), [[4.0], [np.nan], [9.0], [16.0]])


@pytest.mark.parametrize("option", [("--repeat", "3"), ("--set", "vessel.volume=2 l")])
def test_a_single_run_needs_no_cluster(option: tuple[str, str], hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("study", written_study(tmp_path), "--cluster", "local", *option)
    assert (said.code, option[0] in said.err) == (2, True)


def test_a_cluster_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT", 0.5)
    silent = dict.fromkeys(("tcp://127.0.0.1:1", "tls://127.0.0.1:1"), "no scheduler answers")
    for where, reason in {**silent, "nowhere.json": "there is no such file"}.items():
        with pytest.raises(HilserverError, match=f"--cluster {where}: {reason}"), cluster(where, 1):
            pass


def test_ctrl_c_ends_a_cluster_of_this_machine_without_tracebacks(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the workers, too; each of them printed a traceback."""
    file, out = written_study(tmp_path, STUDY.replace("samples = 40", "samples = 4000000")), tmp_path / "out"
    study = (*HILSERVER, "study", str(file), "--cluster", "local", "-j", "1", "-o", str(out))
    process = subprocess.Popen(study, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)
    stream = out / "tolerances.part.arrows"
    while not (stream.exists() and stream.stat().st_size > 10_000):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate()
    assert "Traceback" not in said
    assert process.returncode == 130
    while _is_there(process.pid):  # the workers end when their scheduler is gone; if not, the test hangs
        time.sleep(0.1)


def _is_there(group: int) -> bool:
    """Whether a group of processes has any."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
