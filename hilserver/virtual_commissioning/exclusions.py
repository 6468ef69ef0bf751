"""Parts of a case that are not judged: from the moment at which the reference simulation exceeds what is comparable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.reference import position_nodes
from hilserver.fidelity.results import SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.virtual_commissioning.cases import CaseKind

AT_THE_STOP = 1e-3
"""Fraction of the stroke within which a piston counts as being at its end."""
ABOVE_VAPOUR = 1e4
"""Pa above the vapour pressure below which a chamber cavitates."""


@dataclass(frozen=True)
class Exclusion:
    """The tick from which a case is no longer judged, and the reason."""

    tick: int
    reason: str


def exclusion(comparison: Comparison, kind: CaseKind, found: SegmentResult) -> Exclusion | None:
    """The first exclusion in a case; None if all of it can be judged."""
    return min(_exclusions(comparison, kind, found), key=lambda each: each.tick, default=None)


def _exclusions(comparison: Comparison, kind: CaseKind, found: SegmentResult) -> Iterator[Exclusion]:
    rig, machine = comparison.rig, comparison.reference.machine
    vapour = rig.circuit.fluid.vapour_pressure + ABOVE_VAPOUR
    for port in rig.settings.ports:
        if (p := found.reference.get(f"pressure {port}")) is not None:
            yield from _from(p <= vapour, f"port {port} cavitates in the reference simulation")
            for name, broken in _limits(comparison, kind, rig.settings.ports[port], p):
                yield from _from(broken, f"limit {name} acts in the reference simulation")
    for rod, stroke in machine.strokes().items():
        x = found.reference[f"position {rod}"]
        ends = (x < AT_THE_STOP * stroke) | (x > (1.0 - AT_THE_STOP) * stroke)
        if kind is not CaseKind.CYCLE:  # a work cycle may use the ends on purpose
            yield from _from(ends, f"{rod} reaches the end of its stroke in the reference simulation")
    for cylinder, rod in position_nodes(rig.settings, machine.circuit).items():
        channel = rig.settings.cylinders[cylinder].position
        for name, broken in _limits(comparison, kind, channel, found.reference[f"position {rod}"]):
            yield from _from(broken, f"limit {name} acts in the reference simulation")


def _from(occurs: NDArray[np.bool_], reason: str) -> Iterator[Exclusion]:
    if occurs.any():
        yield Exclusion(int(np.argmax(occurs)), reason)


def _limits(
    comparison: Comparison, kind: CaseKind, channel: str | None, values: Floats
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The limits of a channel that do more than warn, and when these values violate them, or begin to slow down.

    A limit that stops a motion does nothing at rest.
    """
    idle = ("warn", "stop") if kind is CaseKind.REST else ("warn",)
    for name, limit in comparison.rig.settings.limits.items():
        if limit.channel == channel and limit.action not in idle:
            before = limit.slow_down.value if limit.slow_down is not None else 0.0
            zero = comparison.rig.settings.channels[channel].zero
            low = limit.min.value - zero + before if limit.min is not None else -np.inf
            high = limit.max.value - zero - before if limit.max is not None else np.inf
            yield name, (values < low) | (values > high)
