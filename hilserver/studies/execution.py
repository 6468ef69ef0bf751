"""Evaluates the variants of a study, in this process or in several; the results do not depend on how many."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from multiprocessing.connection import Connection
from time import perf_counter

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.studies.own_calls import ending_own_calls
from hilserver.studies.subject import EndedEarly, Evaluate, EvaluateTogether, StudySubject, reason_of

SPAWN = multiprocessing.get_context("spawn")
BATCH = 50
"""Variants in a task: with them, distributing tasks takes a small part of the time."""
AHEAD = 3
"""Tasks per worker that are distributed before the first of them is needed."""
DIED = "the process that ran it ended: killed, out of memory, or hung for much longer than time_limit"
Patience = tuple[float, float]
"""s after which a run that hangs ends its process: of computing time, and by the clock."""
FOREVER: Patience = (inf, inf)


@dataclass(frozen=True)
class Evaluated:
    """Some variants in a row: number of the first, figures (a row for each, NaN where it has none), reasons.

    ``failures``, and why runs ``ended`` early that have figures: by number of the variant. ``spent``: s.
    """

    first: int
    figures: Floats
    failures: dict[int, str]
    spent: float = 0.0
    ended: dict[int, str] = field(default_factory=dict)

    def moved(self, first: int) -> Evaluated:
        """The same with numbers that begin ``first`` higher."""
        failures, ended = ({first + k: text for k, text in each.items()} for each in (self.failures, self.ended))
        return replace(self, first=first + self.first, failures=failures, ended=ended)


def evaluate(
    subject: StudySubject,
    values: Floats,
    figures: int,
    first: int = 0,
    workers: int = 0,
    batch: int = BATCH,
    patience: Patience = FOREVER,
) -> Iterator[Evaluated]:
    """Evaluate the variants from number ``first`` on, in their order. ``values``: of all variants, a row for each.

    ``workers``: processes beside this one; with 0, this one computes. ``patience``: a run that hangs longer is given up
    with its process; this process waits for it.
    """
    with evaluating(subject, figures, workers, patience) as run:
        yield from run(values, first, batch)


Run = Callable[[Floats, int, int], Iterator[Evaluated]]
"""Evaluates the variants of a table from a number on, a given number per task, in their order."""


@contextlib.contextmanager
def evaluating(subject: StudySubject, figures: int, workers: int = 0, patience: Patience = FOREVER) -> Iterator[Run]:
    """For several tables, one after the other: what is prepared, and the processes, stay until the end."""
    if workers > 0:
        with Pool(subject, figures, workers, patience) as pool:
            yield pool.evaluated
        return
    prepared = subject.prepare()

    def run(values: Floats, first: int, batch: int) -> Iterator[Evaluated]:
        for start in range(first, len(values), batch):
            yield evaluated_by(prepared, values[start : start + batch], start, figures)

    yield run


def evaluated_by(run: Evaluate, values: Floats, first: int, figures: int, patience: Patience = FOREVER) -> Evaluated:
    """The figures of these variants, computed one after the other, or some together; ``first``: number of the first.

    ``patience``: with a run that hangs; it then ends this process.
    """
    found, begun = np.full((len(values), figures), np.nan), perf_counter()
    failures, ended = dict[int, str](), dict[int, str]()
    together, most = _some_at_once(run)  # asked once, not for each
    watch = _Watch(patience)
    for k in range(0, len(values), most):
        for number, each in enumerate(together(values[k : k + most], watch), k):
            if isinstance(each, Exception):
                failures[first + number] = reason_of(each)
            elif isinstance(each, EndedEarly):
                found[number], ended[first + number] = each.figures, each.cause
            else:
                found[number] = each
    _end_if_stuck(FOREVER)
    return Evaluated(first, found, failures, perf_counter() - begun, ended)


def _some_at_once(run: Evaluate) -> tuple[Callable[[Floats, _Watch], list[Floats | EndedEarly | Exception]], int]:
    """What evaluates variants together, or one alone, with the reason if one has no figures; and how many at most."""
    if isinstance(run, EvaluateTogether):
        return run.together, run.most_together

    def alone(rows: Floats, watch: _Watch) -> list[Floats | EndedEarly | Exception]:
        watch()
        try:
            return [run(row) for row in rows]
        except Exception as error:  # also in Python of the user's: one run must not end the others
            return [error]

    return alone, 1


def patience_with(limit: float) -> Patience:
    """With a run whose limit is this computing time in s: code that does not check the time hangs."""
    return 3.0 * limit + 5.0, 10.0 * limit + 60.0


class _Watch:
    """Has the kernel end this process if it hangs; called before each run, or each part of one.

    From each call on, the process has nine tenths of the patience at least: timers are not set anew for every run.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience, self._often = patience, 0.1 * min(patience)
        self._set = -inf if isfinite(self._often) else inf

    def __call__(self) -> None:
        """The process does not hang."""
        if (now := perf_counter()) - self._set > self._often:
            self._set = now
            _end_if_stuck(self._patience)


def _end_if_stuck(patience: Patience) -> None:
    """Let the kernel end this process if it is not called again in time: compiled code can't be interrupted."""
    for timer, seconds in zip((signal.ITIMER_PROF, signal.ITIMER_REAL), patience, strict=True):
        signal.setitimer(timer, seconds if isfinite(seconds) else 0.0)


@dataclass(frozen=True)
class _Given:
    """What a worker process has: the subject, the patience with its runs, and a pipe that ends when nobody waits."""

    subject: StudySubject
    patience: Patience
    end: Connection


_received: list[_Given] = []
"""What this worker process has."""


def _receive(given: _Given) -> None:
    """A worker process starts. Ctrl-C is for the process that waits for it, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_when_nobody_waits, args=(given.end,), daemon=True).start()
    _received[:] = [given]


def _end_when_nobody_waits(end: Connection) -> None:
    """Whatever this process is at: it could take minutes, or hang. A process that is killed closes its pipe, too."""
    end.poll(None)
    os._exit(1)


@functools.cache
@ending_own_calls()
def _prepared() -> Evaluate:
    """The subject of this worker process, prepared for its first task."""
    found = _received[0].subject.prepare()
    gc.freeze()  # all of it lasts as long as the process: the search for garbage takes 0.1 s if it looks there, too
    return found


def _task(values: Floats, first: int, figures: int) -> Evaluated:
    return evaluated_by(_prepared(), values, first, figures, _received[0].patience)


class Pool:
    """Worker processes. When one of them dies, its task is repeated variant by variant, to find the one that did it."""

    def __init__(self, subject: StudySubject, figures: int, workers: int, patience: Patience) -> None:
        end, self._waiting = SPAWN.Pipe(duplex=False)
        self._given = _Given(subject, patience, end)
        self._figures, self._workers = figures, workers

    def __enter__(self) -> Pool:
        self._executor = self._started(self._workers)
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._given.end.close()

    def evaluated(self, values: Floats, first: int, batch: int) -> Iterator[Evaluated]:
        """See `Run`."""
        waiting, running = deque(range(first, len(values), batch)), deque[tuple[int, Future[Evaluated]]]()
        while waiting or running:
            while waiting and len(running) < AHEAD * self._workers:
                start = waiting.popleft()
                running.append((start, self._submitted(self._executor, values[start : start + batch], start)))
            start, future = running.popleft()
            try:
                yield future.result()
            except BrokenProcessPool:
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = self._started(self._workers)
                again = [each for each, _ in running]
                running = deque(
                    (each, self._submitted(self._executor, values[each : each + batch], each)) for each in again
                )
                yield self._one_by_one(values[start : start + batch], start)

    def _started(self, workers: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(workers, mp_context=SPAWN, initializer=_receive, initargs=(self._given,))

    def _submitted(self, executor: ProcessPoolExecutor, values: Floats, first: int) -> Future[Evaluated]:
        try:
            return executor.submit(_task, values, first, self._figures)
        except BrokenProcessPool as error:  # by a task before it
            failed: Future[Evaluated] = Future()
            failed.set_exception(error)
            return failed

    def _one_by_one(self, values: Floats, first: int) -> Evaluated:
        """The variants of a task whose process has died, each in a process of its own once one has died again."""
        rows, failures, ended, spent = list[Floats](), dict[int, str](), dict[int, str](), 0.0
        executor = self._started(1)
        try:
            for number in range(first, first + len(values)):
                try:
                    found = self._submitted(executor, values[number - first][None], number).result()
                except BrokenProcessPool:
                    executor.shutdown(wait=False)
                    executor = self._started(1)
                    found = Evaluated(number, np.full((1, self._figures), np.nan), {number: DIED})
                rows.append(found.figures)
                failures |= found.failures
                ended |= found.ended
                spent += found.spent
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        return Evaluated(first, np.concatenate(rows), failures, spent, ended)
