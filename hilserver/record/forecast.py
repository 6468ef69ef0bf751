"""How large the log of a rig becomes, and how long the disk and ``recording.keep`` last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hilserver.record.selection import is_recorded
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.rig.rig import Rig
from hilserver.units import CIRCUIT

TYPICAL_SHARE: Final = {"none": 1.0, "lz4": 0.6, "zstd": 0.42}
"""Compressions -> size of a log of the demo rig, recorded in real time, as a fraction of `log_rate`; that of another
rig depends on its signals (0.54 and 0.39 for ``lift``, simulated)."""


def log_folder(settings: RecordingSettings) -> Path:
    """Where logs go: the folder in the rig file, otherwise the logs directory of a systemd service, otherwise
    ``logs``."""
    return Path(settings.folder or os.environ.get("LOGS_DIRECTORY", "").split(":")[0] or "logs")


def log_rate(rig: Rig) -> float:
    """Bytes per second of the rig's full-rate log without compression, the most that it can take; the frames of its
    batches, some per cent at most, are left out."""
    names = [*rig.layout.names, *(f"{CIRCUIT}{name}" for name in rig.packed.names)]
    columns = sum(is_recorded(name, rig.settings.recording.signals) for name in names)
    return 8.0 * columns * rig.settings.loop.rate


def existing(path: Path) -> Path:
    """The path, or the nearest of its parents that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def free_space(folder: Path) -> float | None:
    """Free bytes on the disk of a folder, which need not exist yet; None if they can't be determined."""
    try:
        return shutil.disk_usage(existing(folder)).free
    except OSError:
        return None


def forecast(rig: Rig, free: float | None) -> Iterator[tuple[str, str]]:
    """What the log takes, what is kept of it, and how long the disk lasts, in words. ``free``: bytes on the disk."""
    settings, most_rate = rig.settings.recording, log_rate(rig)
    if not settings.enabled:
        yield "log", "not recorded (recording.enabled)"
        return
    rate = most_rate * TYPICAL_SHARE[settings.compression]
    about = "" if rate == most_rate else "about "
    size = f"{about}{size_text(3600 * rate)} per hour"
    if about:
        size += (
            f" (with {settings.compression}, if it compresses as the demo does; at most {size_text(3600 * most_rate)})"
        )
    yield "log", f"{size}, a new file every {about}{duration_text(file_duration(settings, rate))}"
    kept = list(_kept(settings, rate, most_rate))
    yield "logs kept", "; ".join(text for text, _ in kept) or "all (recording.keep)"
    if free is not None:
        most = min((size for _, size in kept), default=None)
        yield "disk of the logs", _disk(settings, rate, most_rate, free, most)


def file_duration(settings: RecordingSettings, rate: float) -> float:
    """Seconds in a file of the log. ``rate``: bytes per second."""
    duration = settings.max_megabytes * 1e6 / rate
    return duration if settings.max_duration is None else min(duration, settings.max_duration)


def _kept(settings: RecordingSettings, rate: float, most_rate: float) -> Iterator[tuple[str, float]]:
    """The limits of what is kept, in words with the duration or size that they mean; and in bytes, at most."""
    keep, about = settings.keep, "" if rate == most_rate else "about "
    if keep.gigabytes is not None:
        size = keep.gigabytes * 1e9
        yield f"{size_text(size)}: {about}{duration_text(size / rate)}", size
    if keep.files is not None:
        duration = keep.files * file_duration(settings, rate)
        most = keep.files * file_duration(settings, most_rate) * most_rate
        yield f"{keep.files} files: {about}{duration_text(duration)}", most
    if keep.age is not None:
        yield f"{duration_text(keep.age)}: up to {size_text(keep.age * most_rate)}", keep.age * most_rate


def _disk(settings: RecordingSettings, rate: float, most_rate: float, free: float, most: float | None) -> str:
    """How long the disk lasts. ``most``: bytes that are kept, None without a limit."""
    room = free - settings.min_free_megabytes * 1e6
    text = f"{size_text(free)} free in {log_folder(settings)}"
    if room <= 0.0:
        return f"{text}: nothing would be recorded (recording.min_free_megabytes)"
    if most is not None and most <= room and not settings.keep.running:
        return f"{text}: enough for all that is kept"
    unless = ", for the running recording is never removed (keep.running)" if most is not None and most <= room else ""
    lasts = duration_text(room / most_rate)
    if rate != most_rate:
        lasts = f"about {duration_text(room / rate)}, {lasts} at least"
    return f"{text}: full after {lasts}{unless}"


def duration_text(seconds: float) -> str:
    """A rounded duration.

    >>> [duration_text(t) for t in (1.5, 100.0, 3 * 3600.0, 30 * 86400.0)]
    ['1.5 s', '1.7 min', '3 h', '30 d']
    """
    limits = ((60.0, 1.0, "s"), (3600.0, 60.0, "min"), (2 * 86400.0, 3600.0, "h"), (float("inf"), 86400.0, "d"))
    unit, name = next((unit, name) for limit, unit, name in limits if seconds < limit)
    return f"{_two_digits(seconds / unit)} {name}"


def size_text(size: float) -> str:
    """A rounded size in bytes.

    >>> [size_text(n) for n in (5e5, 2.5e6, 7.45e9, 5.3e12)]
    ['0.5 MB', '2.5 MB', '7.5 GB', '5.3 TB']
    """
    unit, name = next(((u, n) for u, n in ((1e12, "TB"), (1e9, "GB")) if size >= u), (1e6, "MB"))
    return f"{_two_digits(size / unit)} {name}"


def _two_digits(value: float) -> str:
    """At least two digits, without needless zeros."""
    return f"{value:.0f}" if value >= 10.0 else f"{round(value + 1e-9, 1):g}"
