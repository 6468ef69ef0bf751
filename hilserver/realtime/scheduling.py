"""What the real-time process requests from the operating system, and the consequences if a request is denied."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

PRIORITY_BELOW_LOOP = 10
"""By how much the priority of the processes for devices is below that of the loop, which must not wait for them."""
_MCL_CURRENT, _MCL_FUTURE = 1, 2
_PR_SET_TIMERSLACK = 29
_CAP_IPC_LOCK = 14


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Scheduling:
    """The requests to the operating system."""

    priority: int | None = 80
    """SCHED_FIFO priority, 1 ... 99; None leaves the ordinary scheduler."""
    cpus: frozenset[int] | None = None
    """CPUs to run on; None leaves the choice to the kernel."""
    lock_memory: bool = True
    """Keep all pages in memory (mlockall)."""
    freeze_gc: bool = True
    """Collect garbage once, then switch the collector off."""


@dataclass(frozen=True)
class Degradation:
    """A resource that the operating system does not grant: the loop runs, but with less accurate timing."""

    what: str
    why: str
    cost: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.cost}. {self.remedy}."


def prepare(settings: Scheduling) -> list[Degradation]:
    """Make this process a real-time process as far as the system permits; returns what is not granted, never raises.

    Scheduler and affinity apply to the calling thread and to threads and processes that it starts later. The settings
    are not reverted: call it in a dedicated process, after everything is loaded and compiled, just before the loop.
    """
    if settings.freeze_gc:
        gc.collect()
        gc.freeze()
        gc.disable()
    return [
        *(_lock_memory() if settings.lock_memory else ()),
        *(_pin(settings.cpus) if settings.cpus is not None else ()),
        *(_run_first(settings.priority) if settings.priority is not None else _sharpen_timer()),
        *check_kernel(),
    ]


def _lock_memory() -> Iterator[Degradation]:
    what, cost = "memory lock", "A page that was swapped out or dropped stops the loop for milliseconds"
    remedy = "Set LimitMEMLOCK=infinity in the systemd unit or memlock unlimited in /etc/security/limits.conf"
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and not _has_capability(_CAP_IPC_LOCK):
        # mlockall could succeed now, but later allocations beyond the limit would then fail during the run.
        yield Degradation(what, f"this user may lock {limit / 1024:.0f} KiB only", cost, remedy)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE) != 0:
        yield Degradation(what, f"mlockall: {os.strerror(ctypes.get_errno())}", cost, remedy)


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _pin(cpus: frozenset[int]) -> Iterator[Degradation]:
    what, cost = f"CPUs {_listed(cpus)}", "The loop shares its CPU with other processes and may move between CPUs"
    remedy = f"Choose from the CPUs this process may use: {_listed(os.sched_getaffinity(0))}"
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError, OverflowError) as error:
        yield Degradation(what, _reason(error), cost, remedy)
        return
    granted = os.sched_getaffinity(0)
    if granted != cpus:  # the kernel silently ignores CPUs that don't exist
        yield Degradation(what, f"the kernel granted only {_listed(granted)}", cost, remedy)


def _run_first(priority: int) -> Iterator[Degradation]:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, OverflowError) as error:
        allowed, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
        yield Degradation(
            f"SCHED_FIFO at priority {priority}",
            f"{_reason(error)} (priorities 1 ... 99 exist, this user's limit is {allowed})",
            "Other processes delay the loop by milliseconds when the computer is busy",
            f"Set LimitRTPRIO={priority} in the systemd unit or rtprio {priority} in /etc/security/limits.conf;"
            " remove RestrictRealtime=yes",
        )
        yield from _sharpen_timer()
        return
    yield from check_throttling()


def _sharpen_timer() -> Iterator[Degradation]:
    """The ordinary scheduler may delay each wake by 50 µs to save power; a real-time one never does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0) != 0:
        yield Degradation(
            "timer slack",
            f"prctl: {os.strerror(ctypes.get_errno())}",
            "Each wake-up may be up to 50 µs late",
            "Allow SCHED_FIFO, which has no timer slack",
        )


def check_throttling(root: Path = Path("/")) -> Iterator[Degradation]:
    """Whether the kernel keeps a fraction of the CPU from real-time processes."""
    runtime, period = (_kernel_number(root / f"proc/sys/kernel/sched_rt_{name}_us") for name in ("runtime", "period"))
    if runtime is not None and period is not None and 0 <= runtime < period:
        yield Degradation(
            "the whole CPU",
            f"the kernel keeps {100 * (1 - runtime / period):.0f} % for ordinary processes"
            f" (sched_rt_runtime_us = {runtime})",
            f"A loop that is busy for {runtime / 1000:.0f} ms without a pause can be stopped for"
            f" {(period - runtime) / 1000:.0f} ms; one that sleeps between its ticks is not affected",
            "To lift it: sysctl kernel.sched_rt_runtime_us=-1",
        )


def check_kernel(root: Path = Path("/")) -> Iterator[Degradation]:
    """Whether the kernel is a real-time kernel."""
    version, release = (_kernel_text(root / f"proc/sys/kernel/{name}") for name in ("version", "osrelease"))
    if _kernel_number(root / "sys/kernel/realtime") != 1 and "PREEMPT_RT" not in version:
        yield Degradation(
            "real-time kernel",
            f"kernel {release} is not built with PREEMPT_RT",
            "Wake-ups can be milliseconds late while the kernel is busy",
            "Install a PREEMPT_RT kernel and boot it (Debian: apt-get install linux-image-rt-amd64)",
        )


def _kernel_number(path: Path) -> int | None:
    try:
        return int(_kernel_text(path))
    except ValueError:
        return None


def _kernel_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _listed(cpus: set[int] | frozenset[int]) -> str:
    return ", ".join(map(str, sorted(cpus))) or "(none)"


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
