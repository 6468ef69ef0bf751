"""Runs of a test sequence on a simulated rig with other values, each reduced to figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hilserver.errors import HilserverError
from hilserver.rig.build import Rig
from hilserver.sequences.check import PASSED
from hilserver.sequences.model import Sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.simulation.lockstep import RowMemory
from hilserver.studies.figures import PASSED as SHARE_PASSED
from hilserver.studies.rig_runs import Course, RigSubject, RunsOfRig, with_strategy, within
from hilserver.studies.subject import VariantFailedError

ALL = "all"
"""All verdicts, as a quantity."""


@dataclass(frozen=True)
class SequenceSubject(RigSubject):
    """A test sequence, read from its file, and the rig on which it runs, with its varied quantities."""

    sequence: Sequence | None = None

    def prepare(self) -> RunsOfRig:
        """Loaded, and run once on the rig as it is described."""
        return SequenceRuns(self)


class SequenceRuns(RunsOfRig):
    """Runs of a test sequence; a rig that trips has its verdicts, too."""

    subject: SequenceSubject

    def __init__(self, subject: SequenceSubject) -> None:
        self._memory = RowMemory()
        super().__init__(subject)

    def courses(self, rig: Rig, strategy: str, limit: float) -> list[Course]:
        """What the figures are made of. Raises VariantFailedError if the rig does not get ready."""
        assert self.subject.sequence is not None
        wanted = [figure.quantity for figure in self.subject.figures if figure.reduction != SHARE_PASSED]
        try:
            found = simulate_sequence(
                self.subject.sequence,
                with_strategy(rig, strategy),
                also=wanted,
                only_required=True,
                pace=within(limit),
                memory=self._memory,
            )
        except HilserverError as error:
            raise VariantFailedError(str(error).removeprefix(f"{Path(rig.file)}: ").removesuffix(".")) from None
        courses = list[Course]()
        for figure in self.subject.figures:
            if figure.reduction == SHARE_PASSED:
                mine = [each for each in found.verdicts if figure.quantity in (ALL, each.name)]
                passed = np.array([float(each.outcome == PASSED) for each in mine] or [0.0])
                courses.append((np.zeros(len(passed)), passed, None))
                continue
            if figure.quantity not in found.recorded.channels:
                raise VariantFailedError(f"has no channel {figure.quantity}")
            courses.append((found.recorded.time, found.recorded.channels[figure.quantity], None))
        return courses
