"""Wake-up latency of the loop on this computer, without and with load, compared with cyclictest (rt-tests)."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats, Integers
from hilserver.realtime.latency import HandOver
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.timing import Figures

PERIODIC, SEMAPHORE = "periodic thread", "semaphore hand-over"
HILSERVER, CYCLICTEST = "hilserver", "cyclictest"
LOAD_PERIOD = 3.1e-3
"""Period of the background load in s: incommensurate with a loop's period."""
BATCH = 500
"""Ticks per batch, of which minimum and maximum are kept."""
EDGES = 1e-7 * 10.0 ** (np.arange(81) / 10.0)
"""Edges of a histogram's bins in s: ten to a decade, from 0.1 µs to 10 s."""
CYCLICTEST_LONGEST = 1_000_000
"""The maximum latency in ns that cyclictest's histogram resolves."""
CYCLICTEST_PLACES = (None, "/usr/sbin:/usr/bin:/usr/local/sbin")
PATIENCE = 20.0
"""Seconds that a measurement may overrun."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a measurement: rate (1/s), duration (s) of each measurement, scheduling, background load.

    ``busy``: share of each CPU's time that the background load uses; 0: measure without load only.
    """

    rate: float = 1000.0
    duration: float = 10.0
    scheduling: Scheduling = field(default_factory=Scheduling)
    busy: float = 2.0 / 3.0

    @property
    def period(self) -> float:
        """Period of the ticks, s."""
        return 1.0 / self.rate

    @property
    def ticks(self) -> int:
        """Ticks of one measurement."""
        return max(round(self.duration * self.rate), 1)


@dataclass(frozen=True)
class Durations:
    """Measured durations: ascending values in s, the count of each, and the number ``beyond`` the range of values."""

    values: Floats
    counts: Integers
    mean: float
    max: float
    beyond: int = 0

    @classmethod
    def of(cls, durations: Floats) -> Durations:
        """The durations in an array, s."""
        values = np.sort(durations)
        return cls(values, np.ones(len(values), dtype=np.int64), float(values.mean()), float(values[-1]))

    def percentile(self, percent: float) -> float:
        """The percentile, s; infinite if it lies beyond the range of values."""
        upto = np.cumsum(self.counts)
        rank = max(math.ceil((int(upto[-1]) + self.beyond) * percent / 100.0), 1)
        return float(self.values[np.searchsorted(upto, rank)]) if rank <= upto[-1] else math.inf

    def figures(self) -> Figures:
        """Count, minimum, mean, percentiles and maximum."""
        median, p99, p999 = (self.percentile(percent) for percent in (50.0, 99.0, 99.9))
        count = int(self.counts.sum()) + self.beyond
        return Figures(count, float(self.values[0]), self.mean, median, p99, p999, self.max)

    def histogram(self, edges: Floats) -> Integers:
        """The number of durations in each bin; the outer bins also hold those beyond the edges."""
        inside = np.clip(self.values, edges[0], np.nextafter(edges[-1], 0.0))
        found = np.histogram(inside, edges, weights=self.counts)[0].astype(np.int64)
        found[min(int(np.searchsorted(edges, self.max)), len(found)) - 1] += self.beyond
        return found


@dataclass(frozen=True)
class LatencyMeasurement:
    """One measurement. ``batches``: minimum and maximum of every 500 ticks in order, s (hilserver's own only)."""

    test: str
    by: str
    loaded: bool
    samples: Durations
    batches: Floats | None = None

    @property
    def name(self) -> str:
        """Its name in tables and plots."""
        return f"{self.by if self.test == PERIODIC else 'semaphore'}, {load_words(self.loaded)}"


@dataclass(frozen=True)
class LatencyReport:
    """All measurements and their conditions; ``notes``: what is missing and why."""

    conditions: Conditions
    degradations: tuple[str, ...]
    measured: tuple[LatencyMeasurement, ...]
    notes: tuple[str, ...] = ()

    def find(self, test: str, by: str, loaded: bool) -> LatencyMeasurement | None:
        """One measurement; None if it was not made."""
        return next((m for m in self.measured if (m.test, m.by, m.loaded) == (test, by, loaded)), None)

    def ratio(self, loaded: bool) -> float | None:
        """Median of the loop's wake-up latency divided by that of cyclictest; None without cyclictest."""
        own, other = (self.find(PERIODIC, by, loaded) for by in (HILSERVER, CYCLICTEST))
        if own is None or other is None:
            return None
        return own.samples.percentile(50.0) / other.samples.percentile(50.0)


def measure(
    conditions: Conditions, *, cyclictest: bool = True, tell: Callable[[str], None] = lambda _: None
) -> LatencyReport:
    """Measure the wake-up latency of a periodic thread and of a semaphore hand-over, without load, then with load.

    cyclictest runs at the same time as the periodic thread if it is installed, with the same priority and duration.
    Raises HilserverError if a measurement does not finish.
    """
    notes: list[str] = []
    program = find_cyclictest() if cyclictest else None
    if cyclictest and program is None:
        notes.append("cyclictest is not installed (Debian: apt-get install rt-tests), so there is no comparison.")
    measured: list[LatencyMeasurement] = []
    with tempfile.TemporaryDirectory(prefix="hilserver-latency-") as folder, _Process(conditions.scheduling) as loop:
        for loaded in (False, True) if conditions.busy > 0.0 else (False,):
            with _background_load(conditions) if loaded else contextlib.nullcontext():
                tell(f"{PERIODIC}, {load_words(loaded)}: {conditions.duration:g} s")
                own, other = _periodic(conditions, loop, program, Path(folder))
                measured.append(LatencyMeasurement(PERIODIC, HILSERVER, loaded, Durations.of(own), batches(own)))
                if isinstance(other, Durations):
                    measured.append(LatencyMeasurement(PERIODIC, CYCLICTEST, loaded, other))
                elif other is not None and other not in notes:
                    notes.append(other)
                tell(f"{SEMAPHORE}, {load_words(loaded)}: {conditions.duration:g} s")
                own = _hand_over(conditions, loop, Path(folder))
                measured.append(LatencyMeasurement(SEMAPHORE, HILSERVER, loaded, Durations.of(own), batches(own)))
        return LatencyReport(conditions, loop.degradations, tuple(measured), tuple(notes))


def load_words(loaded: bool) -> str:
    """Its name in tables and plots."""
    return "with load" if loaded else "no load"


def batches(durations: Floats) -> Floats:
    """Minimum and maximum of every 500 durations in order, float64[n, 2]."""
    starts = np.arange(0, len(durations), BATCH)
    return np.stack([np.minimum.reduceat(durations, starts), np.maximum.reduceat(durations, starts)], axis=1)


# --- processes --------------------------------------------------------------------------------------------------------


class _Process:
    """A process of `hilserver.realtime.latency`, configured as the real-time process."""

    def __init__(self, scheduling: Scheduling) -> None:
        text = json.dumps(asdict(scheduling), default=sorted)  # a set: CPUs
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-m", "hilserver.realtime.latency", text]
        self._process = subprocess.Popen(command, text=True, bufsize=1, start_new_session=True, **pipes)
        try:
            ready = self.answer(PATIENCE)
        except BaseException:
            self.end()
            raise
        self.degradations = tuple(ready["degradations"])
        self.real_time = bool(ready["real_time"])

    def order(self, **content: Any) -> None:
        """Send it an order."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its answer, or the lack of one, says why
            self._process.stdin.write(json.dumps(content) + "\n")

    def answer(self, within: float) -> dict[str, Any]:
        """Its next answer. Raises HilserverError if there is none within this number of seconds."""
        assert self._process.stdout is not None
        timer = threading.Timer(within, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words(within)}
        if "error" in answer:
            raise HilserverError(f"the latency measurement failed: {answer['error']}")
        return answer

    def _last_words(self, within: float) -> str:
        assert self._process.stderr is not None
        said = self._process.stderr.read().strip()
        return said.splitlines()[-1] if said else f"its process ended or took longer than {within:g} s."

    def measure(self, conditions: Conditions, into: Path, **order: Any) -> Floats:
        """Send an order to measure and return the durations."""
        self.order(into=str(into), period=conditions.period, **order)
        self.answer(conditions.duration + PATIENCE)
        durations: Floats = np.load(into)
        return durations

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


@contextlib.contextmanager
def _background_load(conditions: Conditions) -> Iterator[None]:
    """A process without real-time priority on each CPU that the loop may use, busy for its share of every 3.1 ms."""
    allowed = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        for cpu in (conditions.scheduling.cpus or allowed) & allowed or allowed:
            ordinary = Scheduling(priority=None, cpus=frozenset({cpu}), lock_memory=False, freeze_gc=False)
            load = stack.enter_context(_Process(ordinary))
            load.order(do="load", busy=conditions.busy * LOAD_PERIOD, period=LOAD_PERIOD)
            load.answer(PATIENCE)
        yield


def _periodic(
    conditions: Conditions, loop: _Process, program: str | None, work: Path
) -> tuple[Floats, Durations | str | None]:
    """The loop's wake-up delays in order; what cyclictest measured at the same time, or why it did not."""
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(_Cyclictest(program, conditions, loop, work)) if program is not None else None
        late = loop.measure(conditions, work / "late.npy", do="periodic", ticks=conditions.ticks)
        return late, other.samples() if other is not None else None


def _hand_over(conditions: Conditions, loop: _Process, work: Path) -> Floats:
    """Wake-up delays after a semaphore was posted by a process of the next higher priority, as by an interrupt."""
    scheduling = conditions.scheduling
    above = min(scheduling.priority + 1, 99) if scheduling.priority is not None else None
    path = segment_path(f"latency-{os.getpid()}")
    with (
        contextlib.closing(HandOver.create(path, conditions.ticks)),
        _Process(replace(scheduling, priority=above)) as poster,
    ):
        loop.order(do="wait", segment=str(path), into=str(work / "woken.npy"))
        poster.order(do="post", segment=str(path), period=conditions.period)
        poster.answer(conditions.duration + PATIENCE)
        loop.answer(PATIENCE)
    durations: Floats = np.load(work / "woken.npy")
    return durations


# --- cyclictest -------------------------------------------------------------------------------------------------------


def find_cyclictest() -> str | None:
    """The program, also if only root has its folder on the path; None if it is not installed."""
    return next(filter(None, (shutil.which("cyclictest", path=place) for place in CYCLICTEST_PLACES)), None)


def cyclictest_command(
    program: str, conditions: Conditions, real_time: bool, locked: bool, result: Path, options: str = ""
) -> list[str]:
    """The command that makes cyclictest do what the loop does: one thread, same interval, priority, CPUs and duration.

    ``real_time``, ``locked``: what the system granted the loop; ``options``: its help text, which lists its options. It
    must not tune the system (--default-system), or the loop would be measured under other conditions than it runs
    in.
    """
    scheduling = conditions.scheduling
    fifo = real_time and scheduling.priority is not None
    command = [program, "--quiet", "--nsecs", "--threads=1", f"--histogram={CYCLICTEST_LONGEST}"]
    command += ["--histfile=/dev/null", f"--json={result}", f"--interval={round(1e6 * conditions.period)}"]
    command += [f"--duration={math.ceil(conditions.duration)}"]
    command += ["--policy=fifo", f"--priority={scheduling.priority}"] if fifo else ["--policy=other", "--priority=0"]
    command += ["--mlockall"] if locked else []
    command += [f"--affinity={','.join(map(str, sorted(scheduling.cpus)))}"] if scheduling.cpus else []
    return command + [option for option in ("--default-system", "--secaligned") if option in options]


def read_cyclictest(text: str) -> Durations:
    """The samples in cyclictest's JSON file (with --nsecs and one thread)."""
    (thread,) = json.loads(text)["thread"].values()
    pairs = sorted((int(value), int(count)) for value, count in thread["histogram"].items())
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    beyond = int(thread["cycles"]) - int(table[:, 1].sum())
    return Durations(table[:, 0] / 1e9, table[:, 1], thread["avg"] / 1e9, thread["max"] / 1e9, beyond)


class _Cyclictest:
    """cyclictest at the same time as the loop, for the duration of a ``with`` block."""

    def __init__(self, program: str, conditions: Conditions, loop: _Process, work: Path) -> None:
        self._result, self._limit = work / "cyclictest.json", conditions.duration + PATIENCE
        self._result.unlink(missing_ok=True)
        said = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
        locked = conditions.scheduling.lock_memory and not any(d.startswith("memory lock") for d in loop.degradations)
        known = said.stdout + said.stderr
        command = cyclictest_command(program, conditions, loop.real_time, locked, self._result, known)
        both: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **both)

    def samples(self) -> Durations | str:
        """Its measurement, once it has ended, or the reason why there is none."""
        try:
            said = self._process.communicate(timeout=self._limit)[0].strip().splitlines()
        except subprocess.TimeoutExpired:
            return "cyclictest did not finish, so there is no comparison."
        if self._process.returncode != 0 or not self._result.exists():
            return f"cyclictest failed ({said[-1] if said else self._process.returncode}), so there is no comparison."
        return read_cyclictest(self._result.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
