"""The result of a test sequence: the recorded channels checked against the expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hilserver.errors import did_you_mean
from hilserver.numerics.arrays import Floats, Integers
from hilserver.sequences.model import Expectation, Sequence
from hilserver.tick.codes import Mode
from hilserver.units import shown_unit

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
ROUNDING = 1e-9
"""Times that differ by less, s, count as equal."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a step or an expectation: passed, failed or skipped, and the finding."""

    name: str
    outcome: str
    found: str


@dataclass(frozen=True)
class RecordedChannels:
    """Channels over a sequence: ``time`` in s from its start, SI values (NaN: missing), units by channel."""

    time: Floats
    channels: Mapping[str, Floats]
    units: Mapping[str, str] = field(default_factory=dict)

    def until(self, end: float) -> RecordedChannels:
        """The recording up to ``end``, s."""
        count = int(np.searchsorted(self.time, end + ROUNDING))
        channels = {name: values[:count] for name, values in self.channels.items()}
        return RecordedChannels(self.time[:count], channels, self.units)


@dataclass(frozen=True)
class SequenceResult:
    """A completed run of a sequence.

    ``where``: on what it ran; ``moments``: when the step of each title took effect, s; ``circuit``: the table of the
    virtual circuit at the start; ``endings``: when, s, and why RUNNING or ARMED has ended without a command; ``ended``:
    with which step the sequence ended early, and why.
    """

    sequence: Sequence
    where: str
    recorded: RecordedChannels
    moments: tuple[tuple[float, str], ...]
    verdicts: tuple[Verdict, ...]
    log: str = ""
    took: float = 0.0
    circuit: Mapping[str, Any] = field(default_factory=dict)
    endings: tuple[tuple[float, str], ...] = ()
    ended: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def ok(self) -> bool:
        """Whether at least one verdict passed and none failed."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return FAILED not in outcomes and PASSED in outcomes


def judged(sequence: Sequence, recorded: RecordedChannels, effects: Mapping[str, float]) -> list[Verdict]:
    """The verdict on every expectation. ``effects``: when named steps took effect, s from the start of the sequence."""
    verdicts, reactions = [], sequence.reactions
    for number, expectation in enumerate(sequence.settings.expect, 1):
        title, after = title_of(expectation, number), expectation.after
        if after in reactions and after not in effects:
            verdicts.append(Verdict(title, FAILED, f"the reaction {after} did not fire, or the playout did not end."))
        else:
            verdicts.append(_judged(title, expectation, recorded, effects))
    return verdicts


def title_of(expectation: Expectation, number: int) -> str:
    """The title of an expectation in reports."""
    return expectation.name or f"{number}: {expectation.channel} {band_text(expectation)}"


def _judged(title: str, e: Expectation, recorded: RecordedChannels, effects: Mapping[str, float]) -> Verdict:
    if e.channel not in recorded.channels:
        return Verdict(title, FAILED, f'no channel "{e.channel}".{did_you_mean(e.channel, recorded.channels)}')
    if (unit := recorded.units.get(e.channel, e.unit)) != e.unit:
        return Verdict(title, FAILED, f"{e.channel} is measured in {unit or 'no unit'}, not in {e.unit or 'no unit'}.")
    if e.after and e.after not in effects:
        return Verdict(title, FAILED, f"the step {e.after} was not carried out.")
    start = effects[e.after] if e.after else 0.0
    time, values = recorded.time, recorded.channels[e.channel]
    first, due, end = window(e, start, time)
    within = slice(int(np.searchsorted(time, due - ROUNDING)), int(np.searchsorted(time, end + ROUNDING)))
    if within.start >= len(time):
        return Verdict(title, FAILED, f"nothing was recorded after {due:.3g} s.")
    looked = values[within] if within.stop > within.start else values[within.start : within.start + 1]
    low, high = float(looked.min()), float(looked.max())  # NaN if one of the values is
    if not e.lower <= low <= high <= e.upper:
        return Verdict(title, FAILED, _miss(time[within.start :], looked, e))
    if e.delay == 0.0:
        return Verdict(title, PASSED, f"{_range(low, high, e)} from {due:.4g} to {end:.4g} s.")
    before = slice(int(np.searchsorted(time, first - ROUNDING)), within.start)
    outside = _outside(values[before], e)
    took = time[before.start + outside[-1] + 1] - first if len(outside) else 0.0
    reached = f"reached after {1e3 * took:.3g} ms of {1e3 * e.delay:.3g} ms"
    return Verdict(title, PASSED, f"{reached}; then {_range(low, high, e)} until {end:.4g} s.")


def _outside(values: Floats, e: Expectation) -> Integers:
    """Which of these values are outside of the band: NaN, too, is not a valid value."""
    return np.flatnonzero(~((values >= e.lower) & (values <= e.upper)))


def _miss(time: Floats, looked: Floats, e: Expectation) -> str:
    """What is wrong with values of which some are outside of the band, and when it begins."""
    bad = _outside(looked, e)
    worst = _worst(looked[bad], e)
    share = f", {len(bad)} of {len(looked)} samples" if len(looked) > 1 else ""
    what = "no valid value" if np.isnan(worst) else f"worst value {_shown(worst, e)}"
    return f"{what}, expected {band_text(e)}; first at {time[bad[0]]:.4g} s{share}."


def window(e: Expectation, start: float, time: Floats) -> tuple[float, float, float]:
    """When an expectation starts, by when it must be met, and until when; s from the start of the sequence."""
    last = float(time[-1]) if len(time) else 0.0
    first = start + e.at
    end = min(start + e.until, last) if e.until is not None else last
    return first, first + e.delay, max(end, first + e.delay)


def _worst(values: Floats, e: Expectation) -> float:
    """The value farthest from the band; NaN if there is none."""
    finite = values[~np.isnan(values)]
    if len(finite) == 0:
        return float("nan")
    distance = np.maximum(e.lower - finite, finite - e.upper)
    return float(finite[int(np.argmax(distance))])


def _range(low: float, high: float, e: Expectation) -> str:
    return _shown(low, e) if low == high else f"{_shown(low, e)} … {_shown(high, e)}"


def band_text(e: Expectation) -> str:
    """The expected band, in practical units."""
    if e.value is not None and e.tolerance is not None:
        return f"{_shown(e.value.value, e)} ± {_shown(e.tolerance.value, e)}"
    if e.value is not None:
        return _shown(e.value.value, e)
    parts = [f"≥ {_shown(e.lower, e)}"] if e.min is not None else []
    return " and ".join([*parts, *([f"≤ {_shown(e.upper, e)}"] if e.max is not None else [])])


def _shown(value: float, e: Expectation) -> str:
    if e.channel == "mode" and 0 <= value < len(Mode) and value == int(value):
        return Mode(int(value)).name
    unit, factor = shown_unit(e.unit)
    return f"{value * factor:.4g} {unit}".strip()
