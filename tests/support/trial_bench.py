"""Cases of a virtual commissioning, and their runs."""

from __future__ import annotations

from collections.abc import Sequence

from component_bench import program

from hilserver.rig.rig import Rig
from hilserver.virtual_commissioning.cases import Case, CaseKind, cases
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.trial import StrategyResult, run_cases

SUPPLY = {"rig": {"simulation": {"supply_pressure": "210 bar"}}}


def chosen(rig: Rig, kind: CaseKind, stroke: float = 0.5, load: float = 1.0) -> list[Case]:
    wanted = (kind, stroke, load, 1.0)
    return [case for case in cases(rig) if (case.kind, case.stroke, case.load, case.flow) == wanted]


def run(rig: Rig, strategies: Sequence[str], wanted: Sequence[Case]) -> dict[str, StrategyResult]:
    return {found.strategy: found for found in run_cases(Subject(rig, program()), strategies, wanted)}
