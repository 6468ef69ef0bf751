"""Cases with the load in the other direction: only for cylinders whose load the rig file does not state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from hilserver.simulation.machine import rod_of
from hilserver.virtual_commissioning.cases import PULLING, STEP, Case, CaseKind
from hilserver.virtual_commissioning.stand_in import unstated_loads
from hilserver.virtual_commissioning.subject import Subject

ALONG = 0.1
"""Share of the farthest motion, of the strokes, below which a cylinder is not moved, but drifts or sinks along."""


def of_unstated_loads(subject: Subject, chosen: Iterable[Case]) -> Iterator[Case]:
    """The cases, with the load of no cylinder in the other direction for which the rig file states it.

    A step that only moves such cylinders is left out. Where only some loads are turned, the case names their cylinders.
    """
    unstated, known = unstated_loads(subject.rig), subject.rig.settings.simulation.loads
    moved: dict[str, list[str]] = {}
    for case in chosen:
        if case.load != PULLING or not known:
            yield case
            continue
        if case.kind is not CaseKind.REST and case.moves not in moved:
            moved[case.moves] = moved_cylinders(subject, case)
        turned = [name for name in unstated if name in moved.get(case.moves, unstated)]
        if turned:
            yield replace(case, turned=tuple(turned))


def moved_cylinders(subject: Subject, case: Case) -> list[str]:
    """The cylinders that the input of a step moves in the directly connected circuit, with the loads as stated."""
    run = subject.of(replace(case, load=1.0))
    reference, dt = run.comparison.reference, run.comparison.dt
    ticks = round(STEP / dt)
    levels = {name: _level(entry, subject.rig.settings.inputs[name].initial) for name, entry in _inputs(case).items()}
    signals = {name: np.full(ticks, level) for name, level in levels.items()}
    rows = reference.run(subject.program, dt, signals, reference.start(run.start))
    places = {name: reference.packed.names.index(f"{rod_of(name)}.x") for name in subject.rig.settings.cylinders}
    strokes = {name: cylinder.stroke for name, cylinder in subject.rig.settings.cylinders.items()}
    shares = {name: float(np.ptp(rows[:, place])) / strokes[name] for name, place in places.items()}
    return [name for name, share in shares.items() if share >= ALONG * max(shares.values())]


def _inputs(case: Case) -> Mapping[str, Mapping[str, list[tuple[str, float]]]]:
    inputs: Mapping[str, Mapping[str, list[tuple[str, float]]]] = case.cycle["inputs"]
    return inputs


def _level(entry: Mapping[str, list[tuple[str, float]]], rest: float) -> float:
    """The value of an input that is farthest from rest."""
    return max((value for _, value in entry["points"]), key=lambda value: abs(value - rest))
