"""Evaluates the variants of a study on the workers of a Dask cluster: on many machines, or on this one.

A variant is computed by the same program from the same numbers, whichever worker does it; each worker proves that it
has this program. If a worker disappears, nothing is lost: another one computes its task again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.studies.execution import AHEAD, BATCH, DIED, FOREVER, Evaluated, Patience, Pool, Run
from hilserver.studies.subject import StudySubject

LOCAL = "local"
PACKAGE = Path(__file__).parents[1]
TIMEOUT = 10.0
"""s to find the scheduler, and a first worker."""


@dataclass(frozen=True)
class Cluster:
    """A connection to a cluster.

    ``client``: a ``distributed.Client``, which has no complete types. ``workers``: threads that compute; ``dashboard``:
    address of the page that shows what they do.
    """

    client: Any
    workers: int
    dashboard: str

    def evaluate(
        self,
        subject: StudySubject,
        values: Floats,
        figures: int,
        first: int = 0,
        batch: int = BATCH,
        patience: Patience = FOREVER,
    ) -> Iterator[Evaluated]:
        """As `hilserver.studies.execution.evaluate`. Raises HilserverError if the cluster is lost."""
        with self.evaluating(subject, figures, patience) as run:
            yield from run(values, first, batch)

    @contextlib.contextmanager
    def evaluating(self, subject: StudySubject, figures: int, patience: Patience = FOREVER) -> Iterator[Run]:
        """As `hilserver.studies.execution.evaluating`."""
        from distributed import CancelledError
        from distributed.comm.core import CommClosedError

        # A task: it is computed again if all workers that have its result disappear.
        shared = self.client.submit(_Shared, subject, software(), patience, pure=False)

        def run(values: Floats, first: int, batch: int) -> Iterator[Evaluated]:
            try:
                yield from self._evaluated(shared, values, figures, first, batch)
            except (CancelledError, CommClosedError, TimeoutError) as error:
                text = "the cluster was lost; --resume continues a study on this or another one."
                raise HilserverError(text) from error

        yield run

    def _evaluated(self, shared: Any, values: Floats, figures: int, first: int, batch: int) -> Iterator[Evaluated]:
        from distributed import KilledWorker

        def submitted(start: int, number: int) -> Any:
            return self.client.submit(_task, shared, values[start : start + number], start, figures, pure=False)

        waiting, running = deque(range(first, len(values), batch)), deque[tuple[int, Any]]()
        while waiting or running:
            while waiting and len(running) < AHEAD * self.workers:
                start = waiting.popleft()
                running.append((start, submitted(start, batch)))
            start, future = running.popleft()
            try:
                yield future.result()
            except KilledWorker:  # whichever worker had this task, ended
                for number in range(start, min(start + batch, len(values))):
                    try:
                        yield submitted(number, 1).result()
                    except KilledWorker:
                        yield Evaluated(number, np.full((1, figures), np.nan), {number: DIED})


@dataclass(frozen=True)
class _Shared:
    """The subject on a worker, each of whose threads has a process that prepares it once and computes its runs.

    So a run that hangs ends neither the worker nor the runs beside it, and Python of the user's that does not end while
    the subject is prepared is found, as in the processes of a study without a cluster.

    ``software``: what must be installed there. A worker may have come after the study was begun. ``patience``: with a
    run that hangs.
    """

    subject: StudySubject
    software: str
    patience: Patience

    @functools.cached_property
    def _of_threads(self) -> threading.local:
        return threading.local()

    def run(self, figures: int) -> Run:
        """What evaluates variants for this thread."""
        if not hasattr(self._of_threads, "run"):
            if (here := software()) != self.software:
                raise HilserverError(f"a worker has hilserver {here}, the study was begun with {self.software}.")
            # Dask's nanny makes its workers daemonic, which may not start processes. These end with this object.
            multiprocessing.current_process().daemon = False
            self._of_threads.run = Pool(self.subject, figures, 1, self.patience).__enter__().evaluated
        run: Run = self._of_threads.run
        return run

    def __getstate__(self) -> dict[str, Any]:
        return {"subject": self.subject, "software": self.software, "patience": self.patience}


def _task(shared: _Shared, values: Floats, first: int, figures: int) -> Evaluated:
    (found,) = shared.run(figures)(values, 0, len(values))
    return found.moved(first)


@contextlib.contextmanager
def cluster(where: str, workers: int) -> Iterator[Cluster]:
    """The cluster at an address (``tcp://host:8786``) or of a scheduler's file; ``local``: with workers of its own.

    Raises HilserverError if there is none, or if a worker has another version of hilserver.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed"):
            raise
        raise HilserverError("--cluster needs Dask: pip install 'hilserver[cluster]'.") from None
    _silence()
    with contextlib.ExitStack() as opened:
        if where == LOCAL:
            local = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
            local |= {"host": "127.0.0.1", "silence_logs": logging.CRITICAL}
            started: Any = distributed.LocalCluster
            with _interrupts_ignored():
                at: Any = opened.enter_context(started(**local))
        else:
            at = where
        client = opened.enter_context(_connected(at))
        yield Cluster(client, _workers_of(client, where), client.dashboard_link)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes that are started meanwhile ignore Ctrl-C, which a terminal sends to all: this one ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _silence() -> None:
    """Dask's tracebacks in the log say what an error says here in a sentence."""
    for name in [*logging.root.manager.loggerDict]:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _connected(at: Any) -> Any:
    import distributed

    made: Any = distributed.Client
    forms = f'the address of a Dask scheduler such as "tcp://host:8786", the file that it writes, or "{LOCAL}"'
    is_file = isinstance(at, str) and "://" not in at and Path(at).exists()
    if isinstance(at, str) and ":" not in at and not is_file:
        raise HilserverError(f"--cluster {at}: there is no such file. Give {forms}.")
    try:
        return made(scheduler_file=at, timeout=TIMEOUT) if is_file else made(at, timeout=TIMEOUT)
    except (OSError, ValueError, KeyError, TypeError) as error:  # the last for tls:// without certificates
        raise HilserverError(f"--cluster {at}: no scheduler answers there ({error}). Give {forms}.") from error


def _workers_of(client: Any, where: str) -> int:
    """How many threads compute. Raises HilserverError if none does, or if one would compute something else."""
    try:
        client.wait_for_workers(1, timeout=TIMEOUT)
    except TimeoutError:
        raise HilserverError(
            f"--cluster {where}: the scheduler has no workers. Start some: dask worker ADDRESS."
        ) from None
    here = software()
    for address, there in client.run(software, on_error="return").items():
        if there != here:
            reason = there if isinstance(there, Exception) else f"hilserver {there}"
            text = f"--cluster {where}: worker {address} has {reason}, this computer hilserver {here}."
            raise HilserverError(f"{text} Install the same version with the same Python there.")
    return sum(client.nthreads().values())


def software() -> str:
    """Version and sources of hilserver, and the versions of what it computes with."""
    sources = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        sources.update(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    return f"{version('hilserver')} ({sources.hexdigest()[:12]}), Python {python}, NumPy {np.__version__}"
