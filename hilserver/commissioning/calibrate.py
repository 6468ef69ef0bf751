"""Calibration of a channel: readings at known values, live or from a file, a polynomial through them, the entry."""

from __future__ import annotations

import csv
import math
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.commissioning.live import Source, readings
from hilserver.errors import HilserverError, did_you_mean
from hilserver.rig.calibration import Calibration, CalibrationFit, add, source_of
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.scale import in_si
from hilserver.units import shown_unit

BETWEEN_LOOKS = 0.005
MIN_SAMPLES = 5
"""Number of samples for a reading."""
NOISE = 6.0
"""Standard deviations by which two readings must differ."""
ROUNDING = 1e-12
FAR = 0.05
"""Fraction of the span."""
PATIENCE = 1.0
"""Seconds beyond its averaging time that a reading waits for this number of samples."""


@dataclass(frozen=True)
class Measured:
    """The mean raw reading over some time, its standard deviation, and the number of samples."""

    raw: float
    deviation: float
    samples: int


def measured_channel(rig: Rig, name: str) -> ChannelSettings:
    """The channel to calibrate. Raises HilserverError if there is none, or nothing measures it."""
    if name not in rig.settings.channels:
        known = did_you_mean(name, rig.settings.channels)
        raise HilserverError(f'{rig.file}: "{name}" is not a channel.{known}')
    channel = rig.settings.channels[name]
    if not channel.is_measured:
        raise HilserverError(f"{rig.file}: channels.{name} has a fixed value: there is nothing to calibrate.")
    return channel


def calibration_file(rig: Rig) -> Path:
    """Where the rig's calibrations are kept. Raises HilserverError if the rig file does not name the file."""
    if rig.settings.calibration is None:
        example = f"{rig.file.stem}-calibration.toml"
        raise HilserverError(f'{rig.file}: no calibration file is named. Add at its top: calibration = "{example}"')
    return rig.file.parent / rig.settings.calibration


def default_unit(rig: Rig, name: str) -> str:
    """The unit in which a person enters the channel's values."""
    if rig.calibrations.get(name):
        return rig.calibrations[name][-1].unit
    channel = rig.settings.channels[name]
    if channel.scale is not None and channel.scale.unit is not None:
        return channel.scale.unit
    return shown_unit(channel.unit)[0]


def checked_unit(rig: Rig, name: str, unit: str) -> str:
    """The unit, where the channel's values can be given in it. Raises HilserverError."""
    expected = rig.settings.channels[name].unit
    try:
        found = in_si(unit)[0]
    except ValueError as error:
        raise HilserverError(f"--unit: {error}.") from None
    if found != expected:
        raise HilserverError(f"--unit {unit}: channel {name} is measured in {expected or 'no unit'}.")
    return unit


def measure(rig: Rig, source: Source, name: str, seconds: float) -> Measured:
    """Raw readings of a channel over some time. Raises HilserverError if it has no valid samples."""
    channel, trouble = rig.settings.channels[name], ""
    found: list[float] = []
    source.row()  # the first takes longer
    deadline = time.monotonic() + seconds
    while (late := time.monotonic() - deadline) < 0.0 or (len(found) < MIN_SAMPLES and late < PATIENCE):
        (reading,) = (r for r in readings(rig, source.row()) if r.channel == name)
        trouble = channel.why_invalid(reading.raw)
        if not trouble:
            found.append(reading.raw)
        time.sleep(BETWEEN_LOOKS)
    if len(found) < MIN_SAMPLES:
        reason = source.failures.get(channel.device or "") or trouble or "there were none"
        raise HilserverError(f"channel {name} has too few valid samples: {reason.rstrip('.')}.")
    return Measured(float(np.mean(found)), float(np.std(found)), len(found))


def same_as_before(measured: Measured, points: list[tuple[float, float]]) -> bool:
    """Whether a reading can't be distinguished from an earlier one: its noise is as large as the difference."""
    least = NOISE * measured.deviation + ROUNDING * abs(measured.raw)
    return any(abs(measured.raw - raw) <= least for raw, _ in points)


def far_from_configured(rig: Rig, channel: str, fitted: CalibrationFit, unit: str) -> bool:
    """Whether the fit differs greatly from the present calibration: another unit, another sensor?"""
    differences = [abs(value_now(rig, channel, raw, unit) - value) for raw, value in fitted.points]
    return max(differences) > FAR * fitted.span


def value_now(rig: Rig, channel: str, raw: float, unit: str) -> float:
    """The value that the present scale gives for a raw reading, in this unit (absolute if the channel is absolute)."""
    settings = rig.settings.channels[channel]
    _, zero, one = in_si(unit)
    return (settings.curve().value(raw) + settings.zero - zero) / one


def read_points(file: Path, unit: str) -> list[tuple[float, float]]:
    """Points (raw reading, value) from a CSV file: two columns, commas or semicolons, one header line or none.

    Raises HilserverError naming the line.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HilserverError(f"{file}: can't be read: {error}.") from None
    delimiter = ";" if ";" in text else "\t" if "\t" in text else ","
    points: list[tuple[float, float]] = []
    for number, cells in enumerate(csv.reader(text.splitlines(), delimiter=delimiter), 1):
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        try:
            raw, value = (_number(cell, decimal_comma=delimiter != ",") for cell in cells)
        except ValueError:
            if not points and number == 1:
                continue  # the header
            given = delimiter.join(cells)
            text = f'"{given}" is not a raw reading and a value in {unit or "no unit"}, such as 5.02, 125.5'
            raise HilserverError(f"{file}, line {number}: {text}") from None
        points.append((raw, value))
    if not points:
        raise HilserverError(f"{file}: contains no points: each line needs a raw reading and a value.")
    return points


def _number(text: str, *, decimal_comma: bool) -> float:
    value = float(text.replace(",", ".") if decimal_comma else text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def fitted_entry(channel: ChannelSettings, unit: str, note: str, fitted: CalibrationFit) -> Calibration:
    """The entry of a fit for the calibration file, dated now."""
    return Calibration(
        **_common(channel, unit, note),
        polynomial=fitted.polynomial,
        points=fitted.points,
        largest_residual=float(f"{fitted.largest_residual:.3g}"),
    )


def tare_entry(rig: Rig, name: str, raw: float, value: float, unit: str, note: str) -> Calibration:
    """The entry of a tare: with this raw reading the channel is to show ``value`` (in ``unit``)."""
    channel = rig.settings.channels[name]
    before = channel.tare.value / in_si(unit)[2] if channel.tare is not None else 0.0
    tare = before + value_now(rig, name, raw, unit) - value
    return Calibration(**_common(channel, unit, note), tare=float(f"{tare:.6g}"))


def _common(channel: ChannelSettings, unit: str, note: str) -> dict[str, Any]:
    date = datetime.now().astimezone().isoformat(timespec="seconds")
    return {"date": date, "note": note, "source": source_of(channel), "unit": unit}


def store(rig: Rig, channel: str, entry: Calibration) -> Path:
    """Add an entry to the rig's calibration file; returns the file."""
    file = calibration_file(rig)
    add(file, channel, entry)
    return file
