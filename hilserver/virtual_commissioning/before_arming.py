"""A short virtual commissioning of a circuit: why a rig must not be armed with it, or is doubtful with it.

``python -m hilserver.virtual_commissioning.before_arming REQUEST`` answers a `Request`. It is a separate process with
low priority: a case is one compiled call of about 0.1 s, during which no other thread of the process runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.realtime.reports import send_report
from hilserver.rig.rig import Rig
from hilserver.tick.bridge.strategies import BRIDGING
from hilserver.virtual_commissioning.actuators import examined_actuators
from hilserver.virtual_commissioning.cases import short_cases
from hilserver.virtual_commissioning.criteria import CRITERIA, Suitability
from hilserver.virtual_commissioning.report import sentence
from hilserver.virtual_commissioning.request import COMPARE, REMEDY, Findings, Request
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.trial import StrategyResult, run_cases

SHORT = 2.0
"""s of rest, and at least of the work cycle."""
LOW_PRIORITY = 5
"""Behind everything else, but not last: somebody waits for it to arm, even if the computer is fully loaded."""


def examined(rig: Rig, strategies: Collection[str]) -> Findings:
    """Try a rig with these strategies: at rest, and in the work cycle until it has moved both ways.

    One that trips, oscillates, wears out the valve or does not hold the load is harmful. Takes less than a second of
    computing time per strategy for one cylinder, some seconds for several.
    """
    bridging = [name for name in dict.fromkeys(strategies) if name in BRIDGING]
    if not bridging:
        return Findings()
    subject = Subject(rig, compiled_program(rig.library))
    results = run_cases(subject, bridging, tuple(short_cases(subject.rig, SHORT, home=subject.home)))
    if not any(each.judged for found in results for each in found.cases):
        return Findings(unexamined=next((each.exclusion for each in results[0].cases), "there is no case"))
    harmful = [found for found in results if is_hazardous(found)]
    doubtful = [found for found in results if is_doubtful(found) and found not in harmful]
    return Findings(
        tuple(f"virtual commissioning: {sentence(found)} {REMEDY}" for found in harmful),
        tuple(f"virtual commissioning: {sentence(found)} {COMPARE}" for found in doubtful),
    )


def is_doubtful(found: StrategyResult) -> bool:
    """Whether a figure of a strategy is not fit; not where no case could be judged."""
    return found.verdict is not Suitability.FIT and any(each.judged for each in found.cases)


def is_hazardous(found: StrategyResult) -> bool:
    """Whether a strategy trips, or is unfit by a criterion for harmful behaviour."""
    worst = ((criterion, found.worst(criterion.name)) for criterion in CRITERIA if criterion.hazardous)
    unfit = [c for c, value in worst if value is not None and c.verdict(value[0]) is Suitability.UNFIT]
    return bool(found.trips or unfit)


def answer(file: Path) -> None:
    """Answer the request in a file: ``ready`` with the findings."""
    request = Request.read(file)
    try:
        rig = request.rig()
        found = examined(rig, request.strategies)
        if request.actuators:
            found = found.and_also(examined_actuators(rig, request.actuators))
    except HilserverError as error:
        found = Findings(unexamined="; ".join(str(error).splitlines()).removesuffix("."))
    send_report(ready=True, **asdict(found))


if __name__ == "__main__":
    os.nice(LOW_PRIORITY)
    answer(Path(sys.argv[1]))
