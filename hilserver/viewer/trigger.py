"""A trigger as on an oscilloscope, searched in a recorded log: a signal crosses a level, or an event happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from hilserver.errors import HilserverError, as_sentence
from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.crossings import Crossings, Edge
from hilserver.units import difference_to_si, to_si
from hilserver.viewer.measurement import Measurement, event_name

MOST_OCCURRENCES = 10_000
"""Occurrences that are looked for in a log."""
CHUNK = 1 << 18
"""Samples that are read at a time."""


def _duration(text: str) -> str:
    if to_si(text, "s") < 0.0:
        raise ValueError(f"a duration can't be negative: {text}.")
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class Trigger(BaseModel):
    """What is looked for: that ``signal`` crosses ``level``, or the ``event`` of this name (`event_name`).

    What is a crossing, and what the ``hysteresis`` is for, is said by `Crossings`. Levels are texts with a unit, plain
    numbers if the signal has none. ``before`` and ``after`` are the ends of the window that is shown around it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    signal: str = ""
    level: str | float = 0.0
    edge: Edge = "rising"
    hysteresis: str | float = 0.0
    event: str = ""
    before: Duration = "0.1 s"
    after: Duration = "0.5 s"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.signal) == bool(self.event):
            raise ValueError("a trigger has either a signal with a level, or an event.")
        return self

    def window(self, time: float) -> tuple[float, float]:
        """The window around an occurrence at this time, s."""
        return time - to_si(self.before, "s"), time + to_si(self.after, "s")


def occurrences(
    log: Measurement, trigger: Trigger, most: int = MOST_OCCURRENCES, wanted: Callable[[], bool] = lambda: True
) -> list[float]:
    """The times of a log at which it is triggered, s, ascending; the first ``most`` of them.

    Between two samples, the time at which the straight line through them crosses the level (see `Crossings`). Every
    sample is read, as long as the result is ``wanted``. Raises `HilserverError` if the log lacks the signal, or has
    other units.
    """
    if trigger.event:
        return [moment.time for moment in log.happened if event_name(moment) == trigger.event][:most]
    log.require(trigger.signal)
    si = log.units[trigger.signal]
    level = _in_si(trigger.level, si, "level", log, to_si)
    hysteresis = _in_si(trigger.hysteresis, si, "hysteresis", log, difference_to_si)
    if hysteresis < 0.0:
        raise HilserverError(f"hysteresis: {trigger.hysteresis} is below 0.")
    search = Crossings(level, trigger.edge, hysteresis)
    times, found = log.times(trigger.signal), list[float]()
    for at in range(0, len(times), CHUNK):
        if not wanted() or len(found) >= most:
            break
        begin, until = max(at - 1, 0), min(at + CHUNK, len(times))
        values = log.read(trigger.signal, begin, until)
        places = search.take(values[at - begin :]) + (at - begin)
        found += _exact(level, places, times[begin:until], values)
    return found[:most]


def _in_si(value: str | float, si: str, word: str, log: Measurement, converted: Callable[[str, str], float]) -> float:
    try:
        if isinstance(value, str):
            number, _, unit = value.strip().partition(" ")
            return (
                to_si(number, "") if unit == si else converted(value, si)
            )  # the log's unit may be one of another program
    except ValueError as error:
        raise HilserverError(f"{word}: {as_sentence(error)}") from None
    if si and value != 0.0:
        raise HilserverError(f"{word}: {value:g} has no unit: the signal of {log.name} is measured in {si}.")
    return value


def _exact(level: float, places: Integers, times: Floats, values: Floats) -> list[float]:
    """The times at which a signal crosses the level on its way to the samples at these places."""
    with np.errstate(invalid="ignore"):
        rise = values[places] - values[places - 1]
        share = np.where(np.isfinite(rise), (level - values[places - 1]) / rise, 1.0)  # 1: a gap, or infinity
    exact: list[float] = (times[places] - (1.0 - share) * (times[places] - times[places - 1])).tolist()
    return exact


def nth_occurrence(log: Measurement, trigger: Trigger, number: int) -> float:
    """The time of the ``number``-th occurrence, from 1. Raises `HilserverError` if there are fewer."""
    found = occurrences(log, trigger, number)
    if len(found) < number:
        what = f"event {trigger.event}" if trigger.event else f"{trigger.edge} {trigger.signal} at {trigger.level}"
        count = f"only {len(found)} occurrence{'s' * (len(found) > 1)}" if found else "no occurrence"
        raise HilserverError(f"{log.name} has {count} of the trigger {what}.")
    return found[number - 1]


def level_text(text: str, shown: str, si: str) -> str | float:
    """A level as a user enters it: a plain number is in the unit ``shown``; a comma is a decimal comma.

    Raises `HilserverError` if commas separate thousands, or could.

    >>> level_text("120", "bar", "Pa"), level_text("1,25 MPa", "bar", "Pa"), level_text("0,5", "", "")
    ('120 bar', '1.25 MPa', 0.5)
    """
    text = text.strip()
    if ambiguous := _THOUSANDS.match(text):
        whole = ambiguous[0].replace(",", "")
        decimal = f" or {ambiguous[0].replace(',', '.')}" if ambiguous[0].count(",") == 1 else ""
        raise HilserverError(f"{ambiguous[0]}: thousands are not separated; write {whole}{decimal}.")
    text = _DECIMAL_COMMA.sub(r"\1.", text)
    try:
        number = float(text)
    except ValueError:
        return text
    unit = shown.replace("³", "^3").replace("²", "^2")  # as a log has it, and as it can be converted
    return f"{number!r} {_SPELT.get(unit, unit)}".replace(".0 ", " ") if si else number


_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_DECIMAL_COMMA = re.compile(r"^([+-]?\d*),(?=\d)")
_SPELT = {"US gal/min": "gpm"}


def times_text(counts: Sequence[int]) -> str:
    """How often each log is triggered.

    >>> times_text([3]), times_text([1, 10_000])
    ('3 occurrences', 'log 1: 1, log 2: 10000 or more')
    """
    words = [f"{count} or more" if count >= MOST_OCCURRENCES else f"{count}" for count in counts]
    if len(words) == 1:
        return f"{words[0]} occurrence{'' if words[0] == '1' else 's'}"
    return ", ".join(f"log {place}: {word}" for place, word in enumerate(words, 1))
