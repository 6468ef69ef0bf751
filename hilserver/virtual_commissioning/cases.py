"""The cases of a virtual commissioning: work cycle, rest, steps and sweeps of the inputs, over stroke and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Any

from hilserver.rig.cycle import CycleSettings
from hilserver.rig.rig import Rig

STROKES = (0.1, 0.5, 0.9)
"""Initial positions, as fractions of the stroke."""
LOADS = (1.0, 0.5, 1.5)
"""Loads, as multiples of that stated; the stated one first."""
MORE_FLOW, IDENTIFIED_FLOW = 1.1, 1.03
"""Flow of the real valves, as a multiple of the stated one: the usual tolerance of the rated flow (test method: ISO
10770-1), and that of identified valves.
"""
PULLING = -1.0
"""The same load in the other direction, where the rig file states none: in one of the two it is overrunning."""
SECONDS = 3.0
"""Default duration of rest: the oscillations of usual rigs, above 1 Hz, have time to grow or to decay."""
MIN_SECONDS = 1.0
PAUSE, STEP, AFTER = 0.3, 0.5, 0.8
"""s, time at rest before an input moves; duration of a step; time at rest after it."""
STEP_SHARE = 0.5
"""Height of a step, as a fraction of the input's range from rest to its end. With

higher steps, chambers cavitate because they are closed so abruptly, in the directly connected circuit too.
"""
HELD, LONGEST_CYCLE = 1.0, 10_000
"""s after an input has had its highest and its lowest value; ticks of the work cycle before arming, at most."""
RAMP = 1.0
"""Time, s, in which an input moves from rest to the end of its range, and back."""


class CaseKind(Enum):
    """What a case examines."""

    CYCLE = "work cycle"
    REST = "rest"
    STEP = "step"
    SWEEP = "sweep"


@dataclass(frozen=True)
class Case:
    """One run: the inputs as the table of a work cycle, the initial position as a fraction of the stroke, the load.

    ``stroke``: None for the initial position in the circuit file. ``load``: multiple of the stated one. ``moves``: the
    input that moves, and how far. ``turned``: cylinders whose load is in the other direction, where others' is not.
    ``flow``: that of the real valves, of the flow in the rig file. Where it is not 1, only what harms is judged.
    """

    kind: CaseKind
    cycle: Mapping[str, Any]
    stroke: float | None = None
    load: float = 1.0
    moves: str = ""
    turned: tuple[str, ...] = ()
    flow: float = 1.0

    def __str__(self) -> str:
        parts = [f"{self.kind.value} of {self.moves}" if self.moves else self.kind.value]
        parts += [f"at {self.stroke:.0%} of the stroke"] if self.stroke is not None else []
        if self.load == PULLING:
            of = f" of {' and '.join(self.turned)}" if self.turned else ""
            parts.append(f"load{of} in the other direction")
        elif self.load != 1.0:
            parts.append(f"load {self.load:.0%}")
        parts += [f"flow of the real valves {self.flow:.0%}"] if self.flow != 1.0 else []
        return ", ".join(parts)


def cases(
    rig: Rig,
    seconds: float = SECONDS,
    *,
    stroke: bool = True,
    loads: Sequence[float] = LOADS,
    home: float | None = None,
) -> Iterator[Case]:
    """All cases of a rig. ``seconds``: duration of rest; ``stroke``: whether it can be varied; ``loads``: multiples.

    ``home``: where the work cycle starts, as a fraction of the stroke; None for the position in the circuit file.
    """
    if rig.cycle is not None:
        yield Case(CaseKind.CYCLE, {**rig.sources["cycle"], "repeat": False}, home)
    for position, multiple in _places(stroke, loads):
        yield Case(CaseKind.REST, _still(rig, seconds), position, multiple)
    for name, end in _ends(rig):
        level = rig.settings.inputs[name].initial + STEP_SHARE * (end - rig.settings.inputs[name].initial)
        for position, multiple in _places(stroke, loads):
            yield Case(CaseKind.STEP, _stepped(rig, name, level), position, multiple, f"{name} to {level:g}")
        for position, _ in _places(stroke, loads[:1]):
            step = _stepped(rig, name, level)
            yield Case(CaseKind.STEP, step, position, loads[0], f"{name} to {level:g}", flow=more_flow(rig))
            yield Case(CaseKind.SWEEP, _swept(rig, name, end), position, loads[0], f"{name} to {end:g}")


def more_flow(rig: Rig) -> float:
    """The flow of the real valves, as a multiple of the stated one, that must not make the rig oscillate."""
    identified = all("flow_drift" in valve.model_fields_set for valve in rig.settings.valves.values())
    return IDENTIFIED_FLOW if identified else MORE_FLOW


def short_cases(rig: Rig, seconds: float = SECONDS, *, home: float | None = None) -> Iterator[Case]:
    """The minimum before arming: rest, and the work cycle until it has moved both ways; ``home`` as above."""
    yield Case(CaseKind.REST, _still(rig, seconds), home)
    if rig.cycle is not None:
        longest = max(seconds, LONGEST_CYCLE / rig.settings.loop.rate)
        length = min(max(seconds, moved_both_ways(rig.cycle)), longest, rig.cycle.duration)
        yield Case(CaseKind.CYCLE, {**rig.sources["cycle"], "length": f"{length!r} s", "repeat": False}, home)


def moved_both_ways(cycle: CycleSettings) -> float:
    """Time in a work cycle, s, that ends HELD seconds after each input has had its highest and its lowest value."""
    times = [0.0]
    for entry in cycle.inputs.values():
        values = list(entry.points or ())
        if entry.sweep is not None:
            moved, sweep = entry.sines[0].counts, entry.sweep  # the first sine has passed both of its peaks by then
            values += [(moved, sweep.mean + sweep.amplitude), (moved, sweep.mean - sweep.amplitude)]
        times += [end(values, key=itemgetter(1))[0] for end in (max, min)]
    return max(times) + HELD


def _ends(rig: Rig) -> Iterator[tuple[str, float]]:
    """Each input that the virtual circuit reads, with each end of its range at which it does not rest."""
    for name, settings in rig.settings.inputs.items():
        if name in rig.packed.values:
            yield from ((name, end) for end in reversed(settings.range) if end != settings.initial)


def _places(stroke: bool, loads: Sequence[float]) -> Iterator[tuple[float | None, float]]:
    """Positions at the first load, then the other loads at mid-stroke."""
    for share in STROKES if stroke else (None,):
        yield share, loads[0]
    for multiple in loads[1:]:
        yield 0.5 if stroke else None, multiple


def _still(rig: Rig, seconds: float) -> dict[str, Any]:
    return {"inputs": _others(rig, ""), "length": f"{max(seconds, MIN_SECONDS)!r} s"}


def _others(rig: Rig, name: str) -> dict[str, Any]:
    """All inputs but one, at rest."""
    return {other: {"points": [["0 s", s.initial]]} for other, s in rig.settings.inputs.items() if other != name}


def _stepped(rig: Rig, name: str, level: float) -> dict[str, Any]:
    """An input jumps to a level and back."""
    rest = rig.settings.inputs[name].initial
    points = [["0 s", rest], [f"{PAUSE:g} s", level], [f"{PAUSE + STEP:g} s", rest]]
    moving = {"shape": "hold", "points": points}
    return _by_hand(rig, name, moving, PAUSE + STEP + AFTER)


def _swept(rig: Rig, name: str, end: float) -> dict[str, Any]:
    """An input moves steadily to the end of its range and back."""
    rest, turn = rig.settings.inputs[name].initial, PAUSE + RAMP
    points = [["0 s", rest], [f"{PAUSE:g} s", rest], [f"{turn:g} s", end], [f"{turn + RAMP:g} s", rest]]
    return _by_hand(rig, name, {"points": points}, turn + RAMP)


def _by_hand(rig: Rig, name: str, moving: Mapping[str, Any], length: float) -> dict[str, Any]:
    """One input moves, and the bridge does not know it in advance."""
    return {"inputs": {name: moving, **_others(rig, name)}, "length": f"{length:g} s", "foreseen": False}
