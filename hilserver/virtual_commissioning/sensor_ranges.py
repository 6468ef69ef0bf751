"""What the sensors of a rig can't show in a case, because it is outside their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hilserver.fidelity.results import SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import RigSettings
from hilserver.units import shown_value

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
        shown = [shown_value(end + channel.zero, "Pa") for end in ends]
        if known[low][0] < ends[0] - margin:
            yield _sentence(port, name, known[low][0] + channel.zero, low, f"from {shown[0]}", "from -1 bar")
        if known[high][1] > ends[1] + margin:
            yield _sentence(port, name, known[high][1] + channel.zero, high, f"up to {shown[1]}", "beyond that")


def _sentence(port: str, channel: str, pressure: float, case: str, measures: str, wanted: str) -> str:
    return (
        f"In the reference simulation, port {port} reaches {shown_value(pressure, 'Pa')} (case “{case}”), but channel "
        f"{channel} only measures {measures}: readings there are not the true pressure. Use a sensor that measures "
        f"{wanted}."
    )


def saturated(columns: Mapping[str, Floats], rows: slice, settings: RigSettings) -> tuple[str, ...]:
    """The channels of supply pressures and flows that are at an end of their range in a share of these rows."""
    found = []
    for valve in settings.valves.values():
        for name, ends in ((valve.supply, (1,)), (valve.flow, (-1, 1))):
            if name is not None and settings.channels[name].device is not None:
                if np.isin(columns[f"channel_end.{name}"][rows], ends).mean() > SHARE:
                    found.append(name)
    return tuple(dict.fromkeys(found))


def too_small(settings: RigSettings, of_cases: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Sentences on the channels that are `saturated` in these cases."""
    for name in dict.fromkeys(name for names in of_cases.values() for name in names):
        case = next(case for case, names in of_cases.items() if name in names)
        low, high = settings.channels[name].measuring_range() or (0.0, 0.0)
        zero, unit = settings.channels[name].zero, settings.channels[name].unit
        ends = f"{shown_value(low + zero, unit)} … {shown_value(high + zero, unit)}"
        yield (
            f"Channel {name} is at an end of its range, {ends}, in case “{case}”: the true value may lie beyond. Use a "
            "sensor with a larger range."
        )
