"""Evaluates the variants of a study, in this process or in several; the results do not depend on how many."""

from __future__ import annotations

import functools
import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.studies.subject import Evaluate, StudySubject, VariantFailedError

BATCH = 50
"""Variants in a task: with them, distributing tasks takes a small part of the time."""
AHEAD = 3
"""Tasks per worker that are distributed before the first of them is needed."""
DIED = "the process that ran it ended: killed, or out of memory"


@dataclass(frozen=True)
class Evaluated:
    """Some variants in a row: number of the first, figures (a row for each, NaN where it has none), reasons.

    ``failures``: by number of the variant. ``spent``: s.
    """

    first: int
    figures: Floats
    failures: dict[int, str]
    spent: float = 0.0


def evaluate(
    subject: StudySubject, values: Floats, figures: int, first: int = 0, workers: int = 1, batch: int = BATCH
) -> Iterator[Evaluated]:
    """Evaluate the variants from number ``first`` on, in their order. ``values``: of all variants, a row for each."""
    starts = range(first, len(values), batch)
    if workers <= 1:
        run = subject.prepare()
        for start in starts:
            yield evaluated_by(run, values[start : start + batch], start, figures)
        return
    yield from _Pool(subject, values, figures, workers, batch).evaluated(starts)


def evaluated_by(run: Evaluate, values: Floats, first: int, figures: int) -> Evaluated:
    """The figures of these variants, computed one after the other; ``first``: the number of the first."""
    found, failures, begun = np.full((len(values), figures), np.nan), dict[int, str](), perf_counter()
    for k, row in enumerate(values):
        try:
            found[k] = run(row)
        except VariantFailedError as error:
            failures[first + k] = str(error)
    return Evaluated(first, found, failures, perf_counter() - begun)


_received: list[StudySubject] = []
"""The subject in a worker process."""


def _receive(subject: StudySubject) -> None:
    """A worker process starts."""
    _received[:] = [subject]


@functools.cache
def _prepared() -> Evaluate:
    """The subject of this worker process, prepared for its first task."""
    return _received[0].prepare()


def _task(values: Floats, first: int, figures: int) -> Evaluated:
    return evaluated_by(_prepared(), values, first, figures)


@dataclass
class _Pool:
    """Worker processes. When one of them dies, its task is repeated variant by variant, to find the one that did it."""

    subject: StudySubject
    values: Floats
    figures: int
    workers: int
    batch: int

    def evaluated(self, starts: range) -> Iterator[Evaluated]:
        waiting, running = deque(starts), deque[tuple[int, Future[Evaluated]]]()
        executor = self._executor(self.workers)
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * self.workers:
                    start = waiting.popleft()
                    running.append((start, self._submitted(executor, start, self.batch)))
                start, future = running.popleft()
                try:
                    yield future.result()
                except BrokenProcessPool:
                    executor.shutdown(wait=False, cancel_futures=True)
                    executor = self._executor(self.workers)
                    yield self._one_by_one(start)
                    again = [each for each, _ in running]
                    running = deque((each, self._submitted(executor, each, self.batch)) for each in again)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _executor(self, workers: int) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(workers, mp_context=spawn, initializer=_receive, initargs=(self.subject,))

    def _submitted(self, executor: ProcessPoolExecutor, start: int, number: int) -> Future[Evaluated]:
        try:
            return executor.submit(_task, self.values[start : start + number], start, self.figures)
        except BrokenProcessPool as error:  # by a task before it
            failed: Future[Evaluated] = Future()
            failed.set_exception(error)
            return failed

    def _one_by_one(self, start: int) -> Evaluated:
        """The variants of a task whose process has died, each in a process of its own once one has died again."""
        rows, failures, spent = list[Floats](), dict[int, str](), 0.0
        executor = self._executor(1)
        try:
            for number in range(start, min(start + self.batch, len(self.values))):
                try:
                    found = self._submitted(executor, number, 1).result()
                except BrokenProcessPool:
                    executor.shutdown(wait=False)
                    executor = self._executor(1)
                    found = Evaluated(number, np.full((1, self.figures), np.nan), {number: DIED})
                rows.append(found.figures)
                failures |= found.failures
                spent += found.spent
        finally:
            executor.shutdown(wait=True)
        return Evaluated(start, np.concatenate(rows), failures, spent)
