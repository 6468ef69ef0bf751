"""Readings of a row that are no samples, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Watched


def invalid_samples(rig: Rig, row: Floats) -> Iterator[str]:
    """The channels whose latest reading is invalid, in words."""
    plan = rig.plan
    for number, (name, settings) in enumerate(rig.settings.channels.items()):
        slot, jitter = int(plan.channel[number].slot), plan.channel[number].least_interval
        if slot < 0:
            continue
        raw, age = row[plan.layout[0].raw + slot], row[plan.layout[0].age + slot]
        reason = settings.why_invalid(raw if isfinite(age) else nan)
        if not reason and row[plan.layout[0].stale + number] - age > jitter:
            reason = "it changes faster than valid_rate"
        if reason:
            yield f"channel {name}: {reason}"


def without_sample(rig: Rig, row: Floats, limit: str) -> str:
    """The channel of a limit of its value or rate of change, if it has had no valid sample; otherwise empty.

    Such a limit acts as if it were violated, although nobody knows the value.
    """
    line = rig.plan.limit[rig.layout.limits.index(limit)]
    if line.watched not in (Watched.VALUE, Watched.RATE) or isfinite(row[rig.plan.layout[0].stale + line.channel]):
        return ""
    return list(rig.settings.channels)[line.channel]
