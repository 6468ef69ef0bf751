"""The calibration file: the calibrations of the channels, with date and reference; they replace the scales.

One list of entries per channel, the history: a polynomial applies from its entry onwards and starts without a tare; a
tare applies from its own entry onwards. Entries are only ever appended to the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tomlkit
from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import HilserverError, Problem, did_you_mean, problems_of
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.scale import HIGHEST_DEGREE, Curve, Scale, in_si
from hilserver.rig.settings import RigSettings
from hilserver.toml import replace_file
from hilserver.units import Number, Quantity, difference, usual_unit

HEAD = "# Calibrations of channels, written by hilserver calibrate. For each channel the last entry applies.\n"


ROUNDING = 1e-9
"""Fraction of the values that counts as no change."""


def _is_date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]


class Calibration(Datasheet):
    """One calibration of a channel: a polynomial fitted to points, or a tare."""

    date: Annotated[str, AfterValidator(_is_date)] = Field(
        description='date and time, ISO 8601: "2026-11-21T10:15:00+01:00"'
    )
    note: Line = Field(default="", description="reference instrument, person")
    source: Line = Field(description="device and source of the channel at that time: daq.ai0")
    unit: Line = Field(description="unit of the values in this entry")
    polynomial: tuple[Number, ...] | None = Field(
        default=None, min_length=2, max_length=HIGHEST_DEGREE + 1, description="value = c0 + c1·raw + c2·raw² …"
    )
    points: tuple[tuple[Number, Number], ...] = Field(default=(), description="raw reading and value of each point")
    largest_residual: Number | None = Field(
        default=None, description="largest deviation of the points from the polynomial"
    )
    tare: Number | None = Field(default=None, description="subtracted from the scaled value")

    @model_validator(mode="after")
    def _one_thing(self) -> Calibration:
        if (self.polynomial is None) == (self.tare is None):
            raise ValueError("give polynomial or tare")
        if self.polynomial is not None and not any(self.polynomial[1:]):
            raise ValueError("polynomial: the value does not depend on the reading")
        in_si(self.unit)
        return self


@dataclass(frozen=True)
class CalibrationFit:
    """A polynomial through points (raw reading, value): its coefficients; each point's value less the fitted one."""

    points: tuple[tuple[float, float], ...]
    polynomial: tuple[float, ...]
    residuals: tuple[float, ...]

    @property
    def span(self) -> float:
        """The range of the values."""
        values = [value for _, value in self.points]
        return max(values) - min(values)

    @property
    def largest_residual(self) -> float:
        """The largest absolute residual."""
        return max(map(abs, self.residuals))


def fit(points: Sequence[tuple[float, float]], degree: int = 1) -> CalibrationFit:
    """The least-squares polynomial through points (raw reading, value).

    Raises HilserverError for too few points, and for a polynomial that is not monotonic between them.

    >>> fit([(0.0, 1.0), (5.0, 11.0), (10.0, 21.0)]).polynomial
    (1.0, 2.0)
    """
    raw, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
    needed = degree + 1
    if len(set(raw.tolist())) < needed:
        raise HilserverError(f"a fit of degree {degree} needs at least {needed} different readings.")
    fitted = np.polynomial.Polynomial.fit(raw, values, degree).convert().coef
    coefficients = np.array([float(f"{c:.12g}") for c in np.pad(fitted, (0, needed - len(fitted)))])
    polynomial = np.polynomial.Polynomial(coefficients)
    rises = polynomial.deriv()(np.linspace(raw.min(), raw.max(), 1000)) * np.ptp(raw)
    least = ROUNDING * np.abs(values).max()
    if not (np.all(rises > least) or np.all(rises < -least)):
        raise HilserverError(
            f"the fitted polynomial of degree {degree} is not monotonic between the points: "
            "use a lower degree, or look for a wrong point."
        )
    residuals = values - polynomial(raw)
    pairs = tuple((float(r), float(v)) for r, v in zip(raw, values, strict=True))
    return CalibrationFit(pairs, tuple(coefficients.tolist()), tuple(residuals.tolist()))


def with_calibrations(
    settings: RigSettings, tables: Mapping[str, Any], file: str, problems: list[Problem]
) -> tuple[RigSettings, dict[str, tuple[Calibration, ...]]]:
    """The settings with the calibrations instead of the configured scales, and the history of each channel.

    ``tables``: the calibration file as parsed. ``problems`` receives its errors.
    """
    channels, found = dict(settings.channels), histories(tables, file, problems)
    for name, history in found.items():
        channel = settings.channels.get(name)
        if channel is None:
            problems.append(Problem("there is no such channel." + did_you_mean(name, settings.channels), name, file))
            continue
        for number, entry in enumerate(history):
            if reason := _misfit(channel, entry):
                problems.append(Problem(reason, f"{name}[{number}]", file))
                break
            channels[name] = _calibrated(channels[name], entry)
    return settings.model_copy(update={"channels": channels}), found


def histories(tables: Mapping[str, Any], file: str, problems: list[Problem]) -> dict[str, tuple[Calibration, ...]]:
    """The calibrations of each channel in a calibration file as parsed; ``problems`` receives its errors."""
    return {name: tuple(_entries(name, entries, file, problems)) for name, entries in tables.items()}


def _entries(name: str, entries: object, file: str, problems: list[Problem]) -> Iterator[Calibration]:
    if not isinstance(entries, list) or not entries:
        problems.append(Problem(f"is not a list of calibrations: write [[{name}]] above each.", name, file))
        return
    for number, entry in enumerate(entries):
        try:
            yield Calibration.model_validate(entry)
        except ValidationError as error:
            key, names = f"{name}[{number}]", Calibration.model_fields
            problems += problems_of(error, entry, file=file, prefix=key, names=names)


def _misfit(channel: ChannelSettings, entry: Calibration) -> str:
    """Why a calibration can't belong to this channel; empty if it can."""
    if not channel.is_measured:
        return "the channel has a fixed value: nothing was measured."
    if entry.source != source_of(channel):
        return (
            f'was made at "{entry.source}", but the channel now reads "{source_of(channel)}": '
            "calibrate it again, and remove entries that no longer apply."
        )
    if in_si(entry.unit)[0] != channel.unit:
        measured = usual_unit(channel.unit) or "no unit"
        return f"is in {entry.unit or 'no unit'}, but the channel is measured in {measured}."
    return ""


def _range_of(scale: Scale, calibrated: Curve) -> tuple[Quantity, Quantity] | None:
    """The sensor's range, which the points of a calibration do not narrow: as calibrated, at the same raw readings."""
    if (ends := scale.range_values()) is None:
        return None
    values = list(ends)
    with suppress(ValueError):  # a polynomial that can't be inverted
        values = sorted(calibrated.value(scale.curve().raw(value)) for value in ends)
    low, high = (Quantity(value=value, unit=scale.si_unit) for value in values)
    return low, high


def _calibrated(channel: ChannelSettings, entry: Calibration) -> ChannelSettings:
    if entry.polynomial is None:
        return channel.model_copy(update={"tare": difference(f"{entry.tare!r} {entry.unit}")})
    assert channel.scale is not None
    live = channel.valid_raw or channel.scale.live_range()  # a broken wire stays one
    noise = (
        Quantity(value=channel.deviation(), unit=channel.unit) if channel.deviation() > 0.0 else None
    )  # by its range
    scale = Scale(polynomial=entry.polynomial, unit=entry.unit)
    scale = scale.model_copy(update={"range": _range_of(channel.scale, scale.curve())})
    return channel.model_copy(update={"scale": scale, "valid_raw": live, "tare": None, "noise": noise})


def source_of(channel: ChannelSettings) -> str:
    """Device and source of a measured channel, as a calibration notes it."""
    return f"{channel.device}.{channel.source}"


def as_text(channel: str, entry: Calibration) -> str:
    """An entry as written in the file."""
    table = tomlkit.table()
    for key in ("date", "note", "source", "unit", "polynomial", "tare", "largest_residual"):
        if (value := getattr(entry, key)) is not None:
            table.add(key, list(value) if isinstance(value, tuple) else value)
    if entry.points:
        table.add("points", tomlkit.array([list(point) for point in entry.points]).multiline(True))  # type: ignore[arg-type]
    entries = tomlkit.aot()
    entries.append(table)
    return tomlkit.dumps({channel: entries})


def add(file: Path, channel: str, entry: Calibration) -> None:
    """Append an entry to a calibration file, which is created if it is missing; existing entries are not changed.

    Raises HilserverError if it can't be written.
    """
    try:
        before = file.read_text() if file.exists() else HEAD
    except (OSError, UnicodeDecodeError) as error:
        raise HilserverError(f"{file}: can't be written: {error}.") from error
    replace_file(file, f"{before.rstrip()}\n\n{as_text(channel, entry)}")
