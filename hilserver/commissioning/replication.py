"""Iteration of a drive: the work cycle whose response is a given time history, from the log of the last iteration.

The machine repeats a cycle until its response is periodic. Input and response then have lines at the harmonics of the
cycle, and their ratio is the frequency response of the machine there, so that the drive can be corrected by the error
divided by it. With a linear machine one correction suffices; others need several, with a gain below 1. Source: B. W.
Cryer, P. E. Nawrocki, R. A. Lund, A Road Simulation System for Heavy Duty Vehicles, SAE 760361, 1976.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomlkit
from numpy.typing import NDArray

from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.record.reader import LogReader
from hilserver.tick.codes import Mode
from hilserver.units import si_value, value_and_unit

LEAST_LINE = 0.01
"""Lines of the drive below this fraction of the largest one say nothing about the machine."""
LEAST_GAIN = 1e-3
"""Where the machine's gain is below this fraction of its largest one, the drive is not corrected."""
POINTS = 400
"""Points of the new cycle."""

Spectrum = NDArray[np.complex128]


@dataclass(frozen=True)
class Period:
    """One period of a repeated cycle: samples ``dt`` s apart, SI. ``before``: the response in the period before."""

    dt: float
    drive: Floats
    response: Floats
    before: Floats

    @property
    def length(self) -> float:
        """Its duration, s."""
        return self.dt * len(self.drive)


@dataclass(frozen=True)
class NextDrive:
    """A corrected drive over a period; RMS of the error before, and of the change from period to period, as fractions
    of the target's RMS about its mean. ``lines``: number of harmonics that were corrected."""

    drive: Floats
    error: float
    unsteady: float
    lines: int


def next_drive(period: Period, target: Floats, highest: float, gain: float = 1.0) -> NextDrive:
    """The drive of the next iteration, corrected from the first harmonic up to ``highest``, Hz; the mean is kept.

    Raises HilserverError if target, drive or response do not move.
    """
    size = float(np.std(target))
    if size == 0.0:
        raise HilserverError("the target is constant: there is nothing to replicate.")
    frequency: Floats = np.fft.rfftfreq(len(target), period.dt).astype(np.float64)
    used = np.flatnonzero((frequency > 0.0) & (frequency <= highest))
    if len(used) == 0:
        lowest = 1.0 / period.length
        raise HilserverError(f"the highest frequency is below {lowest:.4g} Hz, the first harmonic of the cycle.")
    u, y, wanted = (np.fft.rfft(values)[used] for values in (period.drive, period.response, target))
    largest = float(np.abs(u).max(initial=0.0))
    if largest <= 1e-9 * len(target):
        text = f"the recorded input is constant up to {highest:.4g} Hz"
        raise HilserverError(f"{text}: start with a cycle that moves the machine a little.")
    machine = _between(frequency[used], y, u, np.abs(u) >= LEAST_LINE * largest)
    if not float(np.abs(machine).max()) > 0.0:  # also where the channel has no samples
        raise HilserverError("the response is constant: is this the channel that the input drives?")
    strong = np.abs(machine) >= LEAST_GAIN * float(np.abs(machine).max())
    change = np.zeros(len(frequency), dtype=np.complex128)
    change[used[strong]] = gain * (wanted[strong] - y[strong]) / machine[strong]
    error = (target - target.mean()) - (period.response - period.response.mean())
    return NextDrive(
        drive=period.drive + np.fft.irfft(change, len(target)),
        error=float(np.sqrt(np.mean(error * error))) / size,
        unsteady=float(np.sqrt(np.mean((period.response - period.before) ** 2))) / size,
        lines=int(np.count_nonzero(strong)),
    )


def _between(frequency: Floats, y: Spectrum, u: Spectrum, known: NDArray[np.bool_]) -> Spectrum:
    """The frequency response at all lines: between those that the drive contains, amplitude and phase by lines."""
    ratio = y[known] / u[known]
    amplitude = np.interp(frequency, frequency[known], np.abs(ratio))
    phase = np.interp(frequency, frequency[known], np.unwrap(np.angle(ratio)))
    found: Spectrum = amplitude * np.exp(1j * phase)
    return found


def last_period(log: Path, name: str, channel: str) -> Period:
    """The last whole period of a log in which the work cycle repeats. Raises HilserverError if there are not two."""
    reader, columns = LogReader(log), (f"input.{name}", f"channel.{channel}")
    reader.require(*columns)
    table = reader.read_all().columns
    for column, what, given in zip(columns, ("input", "channel"), (name, channel), strict=True):
        if column not in table:
            known = [other.partition(".")[2] for other in table if other.startswith(f"{what}.")]
            raise HilserverError(f"{log}: has no {what} {given}.{did_you_mean(given, known)}")
    time, running = table["cycle_time"], table["mode"] == Mode.RUNNING
    begins = 1 + np.flatnonzero((np.diff(time) < 0.0) & (time[1:] >= 0.0) & running[1:])
    counts = np.diff(begins)
    if len(begins) < 3 or counts[-1] != counts[-2] or table["missed"][begins[-3] : begins[-1]].any():
        raise HilserverError(
            f"{log}: does not end with two equal, whole periods of a work cycle without missed ticks: "
            "let the cycle repeat (repeat = true), and stop in its third period or later."
        )
    drive, response = (table[column] for column in columns)
    last, before = slice(begins[-2], begins[-1]), slice(begins[-3], begins[-2])
    dt = float(np.median(np.diff(table["time"][last])))
    return Period(dt, drive[last], response[last], response[before])


def read_target(path: Path, period: Period) -> tuple[Floats, str]:
    """A time history at the times of a period, and its unit; it must last as long.

    The table has the columns ``time`` in s and one value with its unit, such as ``x (mm)``. Raises HilserverError.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head, *lines = [line for line in csv.reader(file) if any(map(str.strip, line))]
        times, values = np.array([[float(cell) for cell in line] for line in lines]).T
        if not np.isfinite([times, values]).all() or len(head) != 2:
            raise ValueError("a cell is not a finite number, or the header does not have two columns")
    except FileNotFoundError:
        raise HilserverError(f"{path}: no such file.") from None
    except (OSError, ValueError, csv.Error) as error:
        raise HilserverError(f"{path}: is not a table of the columns time and one value ({error}).") from None
    name, _, unit = head[1].strip().rstrip(")").partition(" (")
    if head[0].strip().partition(" ")[0] != "time":
        raise HilserverError(f"{path}: the first column must be time, in s.")
    if (np.diff(times) <= 0.0).any() or times[0] != 0.0 or abs(times[-1] - period.length) > 1.5 * period.dt:
        raise HilserverError(f"{path}: the times must rise from 0 to {period.length:g} s, the length of the cycle.")
    try:
        one, si = si_value(f"1 {unit}") if unit else value_and_unit(1.0)
    except ValueError as error:
        raise HilserverError(f"{path}: column {name}: {error}.") from None
    return np.interp(period.dt * np.arange(len(period.drive)), times, one * values), si


def write_cycle(path: Path, name: str, period: Period, drive: Floats, limits: tuple[float, float]) -> bool:
    """Write a drive as a work cycle that repeats, within the limits of its input; whether it reaches them.

    Raises HilserverError if the file can't be written.
    """
    count = min(POINTS, len(drive))
    places = np.arange(count + 1) * len(drive) / count
    values = np.interp(places, np.arange(len(drive) + 1), [*drive, drive[0]])
    kept = np.clip(values, *limits)
    points = [[f"{t:.6g} s", round(float(v), 9)] for t, v in zip(places * period.dt, kept, strict=True)]
    table = {"description": "drive of an iteration (hilserver replicate)", "repeat": True}
    try:
        path.write_text(tomlkit.dumps({**table, "inputs": {name: {"points": points}}}))
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror}.") from None
    return bool((kept != values).any())
