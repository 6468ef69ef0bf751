"""What the sensors of a rig can't show in a case, because it is outside their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hilserver.fidelity.results import SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import RigSettings

MARGIN = 1e-3
"""Distance outside a range, as a fraction of it, that does not matter."""

SHARE = 0.01
"""Share of a case from which a sensor at an end of its range matters."""

Pressures = Mapping[str, tuple[float, float]]
"""Lowest and highest pressure of a case by port, Pa."""


def pressures(found: SegmentResult, settings: RigSettings) -> Pressures:
    """The pressures at the ports in the reference simulation of a case."""
    series = {port: found.reference.get(f"pressure {port}") for port in settings.ports}
    return {port: (float(p.min()), float(p.max())) for port, p in series.items() if p is not None and len(p)}


def outside_ranges(settings: RigSettings, of_cases: Mapping[str, Pressures]) -> Iterator[str]:
    """Sentences on the sensors whose range the pressures of these cases, by their names, exceed."""
    for port, name in settings.ports.items():
        channel = settings.channels[name]
        known = {case: each[port] for case, each in of_cases.items() if port in each}
        if not known or (ends := channel.measuring_range()) is None:
            continue
        low, high = min(known, key=lambda case: known[case][0]), max(known, key=lambda case: known[case][1])
        margin = MARGIN * (ends[1] - ends[0])
        if known[low][0] < ends[0] - margin:
            reached, vacuum = channel.shown(known[low][0]), "0 bar absolute" if channel.absolute else "-1 bar"
            yield _sentence(port, name, reached, low, f"from {channel.shown(ends[0])}", f"from {vacuum}")
        if known[high][1] > ends[1] + margin:
            reached = channel.shown(known[high][1])
            yield _sentence(port, name, reached, high, f"up to {channel.shown(ends[1])}", "beyond that")


def _sentence(port: str, channel: str, pressure: str, case: str, measures: str, wanted: str) -> str:
    return (
        f"In the reference simulation, port {port} reaches {pressure} (case “{case}”), but channel {channel} only "
        f"measures {measures}: readings there are not the true pressure. Use a sensor that measures {wanted}."
    )


def saturated(columns: Mapping[str, Floats], rows: slice, settings: RigSettings) -> tuple[str, ...]:
    """The channels of supply pressures and flows that are at an end of their range in a share of these rows."""
    found = []
    for valve in settings.valves.values():
        for name, ends in ((valve.supply, (1,)), (valve.flow, (-1, 1))):
            if name is not None and settings.channels[name].is_measured:
                if np.isin(columns[f"channel_end.{name}"][rows], ends).mean() > SHARE:
                    found.append(name)
    return tuple(dict.fromkeys(found))


def too_small(settings: RigSettings, of_cases: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Sentences on the channels that are `saturated` in these cases."""
    for name in dict.fromkeys(name for names in of_cases.values() for name in names):
        case = next(case for case, names in of_cases.items() if name in names)
        ends = settings.channels[name].shown(*(settings.channels[name].measuring_range() or ()))
        yield (
            f"Channel {name} is at an end of its range, {ends}, in case “{case}”: the true value may lie beyond. Use a "
            "sensor with a larger range."
        )
