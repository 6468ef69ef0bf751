"""The highest rate that this computer sustains: the server itself, run briefly at rising rates on a simulated rig."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.numerics.arrays import Floats
from hilserver.protocol import commands
from hilserver.record.reader import LogReader
from hilserver.record.summary import WORK
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.service.supervisor import Supervisor
from hilserver.tick.codes import Mode
from hilserver.toml import copied

RATES = (500.0, 1000.0, 2000.0, 3000.0, 5000.0, 7000.0, 10_000.0, 14_000.0, 20_000.0)
"""Rates that are tried, 1/s, up to the highest that a rig file may have."""
MAX_MISSED = 0.01
"""Fraction of the ticks that may be missed at a rate that counts as sustained: a shared machine misses some at any
rate."""
WARMING_UP = 0.3
"""Seconds of each run that are not evaluated."""
PATIENCE = 5.0
"""Seconds within which a rig must have samples of all its channels."""


@dataclass(frozen=True)
class RateTrial:
    """A run at one rate. Times in µs; ``missed`` is a fraction of the ticks; ``lost`` counts rows that the log lacks.

    ``work`` is the whole work of the loop in a tick: reading, computing, writing, publishing. A run in
    which the server ended by itself has no ticks.
    """

    rate: float
    ticks: int
    missed: float
    lost: int
    wake_up_median: float
    wake_up_p99: float
    work_median: float
    work_p99: float
    work_p999: float

    @classmethod
    def ended(cls, rate: float) -> RateTrial:
        """The run at a rate at which the server ended by itself."""
        return cls(rate, 0, 1.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def sustained(self) -> bool:
        """Whether the machine keeps up: almost no ticks are missed, the work fits into the tick, and the log is
        complete."""
        return self.missed <= MAX_MISSED and self.work_p99 < 1e6 / self.rate and self.lost == 0


def highest_rate(trials: Sequence[RateTrial]) -> float | None:
    """The highest rate that was sustained; None if none was."""
    return max((trial.rate for trial in trials if trial.sustained), default=None)


def try_rates(
    rig: Rig,
    rates: Sequence[float] | None = None,
    duration: float = 2.0,
    tell: Callable[[str], None] = lambda _: None,
) -> list[RateTrial]:
    """Run the server for ``duration`` seconds at each of these rates (1/s), RUNNING its work cycle.

    Without ``rates``: at rising ones, until one is not sustained. The circuit takes as many integration steps per tick
    at every rate. A run includes everything: simulated device, recorder, broker. Raises ConfigurationError if
    the rig has other than simulated devices, HilserverError where a run does not complete.
    """
    refuse_hardware(rig)
    trials = []
    with TemporaryDirectory(prefix="hilserver-rates-") as folder, _quiet():
        for rate in rates or RATES:
            tell(f"the server at {rate:g} Hz for {duration:g} s")
            trials.append(asyncio.run(_run_at(rig_at(rig, rate, Path(folder) / f"{rate:g}"), duration)))
            if rates is None and not trials[-1].sustained:
                break
    return trials


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Don't log missed ticks: they are expected here."""
    log = logging.getLogger("hilserver")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def refuse_hardware(rig: Rig) -> None:
    """Raise ConfigurationError if a device is not simulated: a real rig is not run to measure a computer's speed."""
    problems = [
        Problem("not simulated: a rate is tried on simulated rigs only.", f"devices.{device.name}", str(rig.file))
        for device in rig.devices
        if not device.is_simulated
    ]
    if problems:
        raise ConfigurationError(problems)


def rig_at(rig: Rig, rate: float, folder: Path) -> Rig:
    """The rig at another rate, under another name, with a separate broker and its log in ``folder``.

    Nothing in it trips or is refused: missed ticks and old samples are to be measured, and the rig is simulated.
    """
    sources: dict[str, Any] = copied(rig.sources)
    table = sources["rig"]
    table["name"] = f"{rig.settings.name[:25]}-rates-{os.getpid()}"
    table["loop"] = {**table.get("loop", {}), "rate": f"{rate} Hz", "max_missed": 10_000, "max_age": "60 s"}
    table["limits"] = {}
    table.pop("enable", None)
    table["recording"] = {"folder": str(folder), "enabled": True}
    table["mqtt"] = {"embedded": True, "port": 0}
    return assemble(sources, rig.file, rig.library)


async def _run_at(rig: Rig, duration: float) -> RateTrial:
    """One run of the server. Raises HilserverError if it does not start, or is ended by Ctrl-C."""
    supervisor = Supervisor(rig, attended=True)
    running = asyncio.create_task(supervisor.run())
    log = None
    try:
        await asyncio.wait(
            {running, preparing := asyncio.create_task(_begin(supervisor))}, return_when="FIRST_COMPLETED"
        )
        if preparing.done():
            preparing.result()
            await asyncio.wait({running}, timeout=WARMING_UP + duration)
        preparing.cancel()
        if running.done() and running.exception() is None and running.result() == 0:
            raise HilserverError(f"the run at {rig.settings.loop.rate:g} Hz was interrupted.")
        log = supervisor.log_file
    finally:
        supervisor.stop()
        code = await running
    if code:  # most often because the supervisor had no time for its heartbeat
        return RateTrial.ended(rig.settings.loop.rate)
    assert log is not None
    return judged(LogReader(log), rig.settings.loop.rate)


async def _begin(supervisor: Supervisor) -> None:
    """Start the rig and its work cycle. Raises HilserverError if it refuses."""
    run = await supervisor.until_it_can_be_armed()
    executor, deadline = run.executor, time.monotonic() + PATIENCE
    answer = await executor.execute(commands.Arm())
    while not answer.ok and time.monotonic() < deadline:  # there are not yet samples of all channels
        await asyncio.sleep(0.02)
        answer = await executor.execute(commands.Arm())
    for command in (commands.Start(), *([commands.Cycle(action="start")] if supervisor.rig.cycle is not None else [])):
        if not answer.ok:
            break
        answer = await executor.execute(command)
    if not answer.ok:
        raise HilserverError(f"at {supervisor.rig.settings.loop.rate:g} Hz the rig can't run: {answer.reason}")


def judged(log: LogReader, rate: float) -> RateTrial:
    """The result of a run, from its log without the warm-up. Raises HilserverError if the log has nothing else."""
    read: dict[str, list[Floats]] = {name: [] for name in ("tick", "mode", "missed", "wake_error", *WORK)}
    lost = 0
    for batch in log.batches():
        lost += sum(int(event.get("rows", 1)) for _, event in batch.events if event.get("kind") == "lost")
        for name, pieces in read.items():
            pieces.append(batch.column(name).copy())
    columns = {name: np.concatenate(pieces) for name, pieces in read.items()}
    running = columns["tick"][columns["mode"] == Mode.RUNNING].astype(np.float64)
    rows = (columns["mode"] == Mode.RUNNING) & (columns["tick"] >= running.min(initial=np.inf) + WARMING_UP * rate)
    if not rows.any():
        raise HilserverError(f"at {rate:g} Hz the rig did not reach RUNNING.")
    work = 1e6 * np.sum([columns[name][rows] for name in WORK], axis=0)
    late = 1e6 * (columns["missed"][rows] / rate + columns["wake_error"][rows])
    ticks, missed = len(work), float(columns["missed"][rows].sum())
    wake_up_median, wake_up_p99 = np.percentile(late, (50.0, 99.0)).tolist()
    work_median, work_p99, work_p999 = np.percentile(work, (50.0, 99.0, 99.9)).tolist()
    return RateTrial(
        rate=rate,
        ticks=ticks,
        missed=missed / (missed + ticks),
        lost=lost,
        wake_up_median=wake_up_median,
        wake_up_p99=wake_up_p99,
        work_median=work_median,
        work_p99=work_p99,
        work_p999=work_p999,
    )
