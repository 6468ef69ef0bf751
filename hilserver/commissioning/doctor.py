"""Whether this computer has everything that a run needs: limits, clock, broker, cache, disk; and how to fix it.

Nothing is changed, no device is touched; the disk's speed is measured with a file that is removed again.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiomqtt

from hilserver.commissioning.host import ERROR, NOTE, OK, WARNING, Finding, Host, State, check_host
from hilserver.compiler import is_compiled
from hilserver.compiler.private import flaw
from hilserver.compiler.seal import broken_in
from hilserver.compiler.sources import cache_root
from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import connection, new_client
from hilserver.realtime.rig_setup import loop_memory_shape
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.shared import LoopMemory
from hilserver.record.forecast import existing, log_folder, log_rate
from hilserver.record.machine import machine
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import LoopSettings
from hilserver.service.broker import find_program

EXIT_CODES = {OK: 0, NOTE: 0, WARNING: 1, ERROR: 2}
BROKER_TIMEOUT = 3.0
"""Seconds in which the broker must answer."""
TRIAL_BYTES = 32 << 20
"""Number of bytes written to measure the speed of the disk."""
SHORT_OF_SPACE, ALMOST_FULL = 24 * 3600.0, 600.0
"""Seconds of log for which the disk should, and must, have room."""
SPEED_MARGIN = 4.0
"""How many times faster than the log the disk should be: it has other work too."""
_TIME_ERROR, _STA_UNSYNC = 5, 0x40


def diagnose(
    rig: Rig | None, host: Host | None = None, clock: Callable[[], float | None] | None = None
) -> list[Finding]:
    """All findings for a rig, or for a rig file of defaults.

    ``host``: another computer than this one; ``clock``: the largest error of the system's clock.
    """
    loop = rig.settings.loop if rig is not None else LoopSettings()
    scheduling = Scheduling(loop.priority, frozenset(loop.cpus) or None, loop.lock_memory)
    findings = [*check_host(host or Host(), scheduling), check_clock((clock or clock_error)()), check_cache(rig)]
    if rig is not None:
        findings += [check_shared_memory(rig), check_broker(rig)]
    recording = rig.settings.recording if rig is not None else RecordingSettings()
    folder, kept_free = log_folder(recording), recording.min_free_megabytes * 1e6
    rate = log_rate(rig) if rig is not None else 0.0
    if rig is None or rig.settings.recording.enabled:
        findings += check_disk(folder, rate, kept_free)
    return findings


def exit_code(findings: list[Finding]) -> int:
    """0: suitable; 1: it runs, but less well than it could; 2: it can't run with these settings."""
    return max((EXIT_CODES[finding.state] for finding in findings), default=0)


def doctor_figures(findings: list[Finding]) -> dict[str, Any]:
    """The findings as data."""
    return {
        "machine": machine(),
        "exit_code": exit_code(findings),
        "findings": [asdict(finding) for finding in findings],
    }


# --- clock ------------------------------------------------------------------------------------------------------------


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2): the fields that are read; the rest is padding."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_char * 160),
    ]


def clock_error() -> float | None:
    """The maximum error of the system's clock, s; None if nothing synchronises it."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state in (-1, _TIME_ERROR) or timex.status & _STA_UNSYNC:
        return None
    return float(timex.maxerror) * 1e-6


def check_clock(largest_error: float | None) -> Finding:
    """Whether the system's clock is synchronised. The loop itself uses another clock, which never jumps."""
    if largest_error is not None:
        return Finding("clock", OK, f"synchronised, to {largest_error * 1e3:.0f} ms at most")
    return Finding(
        "clock",
        WARNING,
        "the system clock is not synchronised",
        "Times in logs and messages are wrong, and commands that expire may be refused or accepted too late",
        "apt-get install chrony   (or: timedatectl set-ntp true)",
    )


# --- cache and shared memory ------------------------------------------------------------------------------------------


def check_cache(rig: Rig | None) -> Finding:
    """Whether compiled programs can be stored, and whether the one for this rig exists already."""
    folder = cache_root()
    if not _may_write(folder):
        return Finding(
            "cache",
            WARNING,
            f"{folder} can't be written: compiled programs are stored below {tempfile.gettempdir()}",
            "User-defined components, and a program not part of the package, are compiled again after each start",
            f"mkdir -p {folder} && chown $USER {folder}   (in a systemd unit: CacheDirectory=hilserver)",
        )
    if folder.exists() and (found := flaw(folder, folder) or broken_in(folder)) is not None:
        why = (
            "It contains machine code that runs under your account. Own components, and a program built here, are "
            "refused"
        )
        return Finding("cache", ERROR, found, why, f"rm -r {folder}   (it is filled again)")
    if rig is not None and not is_compiled(rig.library):
        found = f"{folder}: this version is not compiled yet"
        return Finding("cache", NOTE, found, "The first run compiles for about a minute", f"hilserver run {rig.file}")
    return Finding("cache", OK, str(folder))


def _may_write(folder: Path) -> bool:
    """Whether this user can write into a folder, made where it is missing."""
    return os.access(existing(folder), os.W_OK | os.X_OK) and (folder.is_dir() or not folder.exists())


def check_shared_memory(rig: Rig, folder: Path = Path("/dev/shm")) -> Finding:
    """Whether there is room for the memory that the processes of a run share."""
    needed = LoopMemory.nbytes(**loop_memory_shape(rig))
    free = shutil.disk_usage(folder).free
    found = f"{folder} has {free / 1e6:.0f} MB free, the run needs {needed / 1e6:.0f} MB"
    if free >= needed:
        return Finding("shared memory", OK, found)
    return Finding("shared memory", ERROR, found, "The run does not start", f"mount -o remount,size=512M {folder}")


# --- broker -----------------------------------------------------------------------------------------------------------


def check_broker(rig: Rig) -> Finding:
    """Whether the rig's broker can be reached and admits the server."""
    s = rig.settings.mqtt
    if s.embedded:
        try:
            return Finding("broker", OK, f"embedded: {find_program()} is installed")
        except HilserverError as error:
            return Finding("broker", ERROR, str(error), "The run does not start", "apt-get install mosquitto")
    address = rig.broker
    if (reason := asyncio.run(_refusal(address))) is not None:
        return Finding(
            "broker",
            ERROR,
            f"{address}: {reason}",
            "The loop runs, but it can be neither commanded nor monitored",
            f"systemctl status mosquitto; mosquitto_pub -h {s.host} -p {s.port} -t hil/test -m 1   (and see [mqtt] in"
            " the rig file)",
        )
    if weak := list(address.weaknesses()):
        cost = "Others on the network may command the rig"
        return Finding("broker", WARNING, " ".join(weak), cost, "In the rig file: [mqtt] ca_file, user, password_file")
    return Finding("broker", OK, f"{address} admits the server")


async def _refusal(address: BrokerAddress) -> str | None:
    """Why a broker does not admit the server; None if it does."""
    try:
        async with connection(new_client(address, aiomqtt.ProtocolVersion.V311, timeout=BROKER_TIMEOUT)):
            return None
    except (aiomqtt.MqttError, HilserverError, OSError, ValueError) as error:
        return str(error) or type(error).__name__


# --- disk -------------------------------------------------------------------------------------------------------------


def check_disk(folder: Path, rate: float, kept_free: float = 0.0) -> Iterator[Finding]:
    """Free space and speed of the disk for the log; ``rate`` in bytes per second, 0 if it is not known."""
    place = existing(folder)
    if not _may_write(folder):
        found = f"{folder.absolute()} can't be written by this user"
        remedy = f"mkdir -p {folder.absolute()} && chown $USER {folder.absolute()}   (or recording.folder)"
        yield Finding("log folder", ERROR, found, "The run is not recorded", remedy)
        return
    free = shutil.disk_usage(place).free
    yield check_space(folder, free, rate, kept_free)
    if free > 4 * TRIAL_BYTES:
        yield check_speed(writing_speed(place), rate)


def check_space(folder: Path, free: float, rate: float, kept_free: float = 0.0) -> Finding:
    """Whether the log fits on the disk in addition to the space left free (``recording.min_free_megabytes``)."""
    found = f"{folder.absolute()}: {free / 1e9:.1f} GB free"
    if kept_free:
        found += f", of which {kept_free / 1e9:.1f} GB are kept free"
    if rate == 0.0:
        return Finding("disk space", OK, found)
    lasts = max(free - kept_free, 0.0) / rate
    found += f", the log takes at most {rate * 3600 / 1e9:.1f} GB per hour: enough for {lasts / 3600:.1f} h"
    if lasts >= SHORT_OF_SPACE:
        return Finding("disk space", OK, found)
    state: State = ERROR if lasts < ALMOST_FULL else WARNING
    return Finding(
        "disk space",
        state,
        found,
        "When the disk is nearly full, the run continues without being recorded",
        f"Remove or move old logs: du -h {folder.absolute()} | sort -h   (or recording.keep, or another folder)",
    )


def writing_speed(folder: Path) -> float:
    """How fast a file can be written and forced to disk, bytes per second."""
    block = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="hilserver-doctor-") as file:
        begin = time.perf_counter()
        for _ in range(TRIAL_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return TRIAL_BYTES / (time.perf_counter() - begin)


def check_speed(speed: float, rate: float) -> Finding:
    """Whether the disk keeps up with the log."""
    found = f"{speed / 1e6:.0f} MB/s, forced to disk"
    if rate == 0.0:
        return Finding("disk speed", OK, found)
    found += f"; the log needs {rate / 1e6:.1f} MB/s"
    if speed >= SPEED_MARGIN * rate:
        return Finding("disk speed", OK, found)
    return Finding(
        "disk speed",
        WARNING,
        found,
        "When the disk is busy with other work, rows of the log are lost (and reported)",
        "Put recording.folder on a local SSD, or lower loop.rate",
    )
