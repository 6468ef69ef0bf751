"""Pressures of a case that a sensor of the rig can't show, because they are outside its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hilserver.fidelity.results import SegmentResult
from hilserver.rig.settings import RigSettings
from hilserver.units import shown_value

MARGIN = 1e-3
"""Distance outside a range, as a fraction of it, that does not matter."""

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
