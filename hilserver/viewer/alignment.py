"""Several overlaid logs: which time of each is the common time 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hilserver.errors import HilserverError, did_you_mean
from hilserver.viewer.measurement import Measurement, event_name
from hilserver.viewer.trigger import Trigger, nth_occurrence

Alignment = Literal["start", "clock", "event", "trigger"]


def offsets(
    logs: Sequence[Measurement], how: Alignment, event: str = "", number: int = 1, trigger: Trigger | None = None
) -> list[float]:
    """What to add to the times of each log, s, so that they have a common time.

    ``start``: each begins at 0. ``clock``: 0 is the beginning of the earliest one, the others follow by their clocks.
    ``event``: 0 is the ``number``-th event (from 1) with the name ``event`` (`event_name`) in each.
    ``trigger``: 0 is its ``number``-th occurrence in each; samples are read until it is found.

    Raises `HilserverError` if a log has no clock, or fewer of these events or occurrences.
    """
    if how == "start":
        return [-log.span[0] for log in logs]
    if how == "clock":
        starts = [_clock(log) for log in logs]
        first = min((start + log.span[0] for start, log in zip(starts, logs, strict=True)), default=0.0)
        return [start - first for start in starts]
    if how == "trigger":
        if trigger is None:
            raise HilserverError("There is no trigger to align by: define one first.")
        return [-nth_occurrence(log, trigger, number) for log in logs]
    return [-_event_time(log, event, number) for log in logs]


def common_events(logs: Sequence[Measurement]) -> list[str]:
    """The names of the events that all logs have, in the order of the first."""
    names = [dict.fromkeys(map(event_name, log.happened)) for log in logs]
    return [name for name in names[0] if all(name in other for other in names)] if names else []


def _clock(log: Measurement) -> float:
    if log.started is None:
        raise HilserverError(f"{log.name} does not say when it was recorded: align by start or by an event.")
    return log.started


def _event_time(log: Measurement, event: str, number: int) -> float:
    times = [moment.time for moment in log.happened if event_name(moment) == event]
    if not 1 <= number <= len(times):
        found = "no event" if not times else f"only {len(times)} event{'s' * (len(times) > 1)}"
        known = dict.fromkeys(map(event_name, log.happened))
        raise HilserverError(f"{log.name} has {found} named {event}.{'' if times else did_you_mean(event, known)}")
    return times[number - 1]
