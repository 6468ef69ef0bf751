"""Runs of a test sequence on a simulated rig with other values, each reduced to figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import TypeVar

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.sequences.check import PASSED, SequenceResult
from hilserver.sequences.model import Sequence as TestSequence
from hilserver.sequences.simulated import PreparedSequence
from hilserver.simulation.steps import Steps
from hilserver.studies.execution import BATCH
from hilserver.studies.figures import PASSED as SHARE_PASSED
from hilserver.studies.rig_runs import Course, RigSubject, RunsOfRig
from hilserver.studies.subject import EndedEarly, VariantFailedError

R = TypeVar("R")
MEMORY = 2**28
"""Bytes for the rows of variants that are run in turns."""
TOGETHER = BATCH // 2
"""Variants that are run in turns at most, so that a task has equal groups: more of them save no more time."""
ALL = "all"
"""All verdicts, as a quantity."""


@dataclass(frozen=True)
class SequenceSubject(RigSubject):
    """A test sequence, read from its file, and the rig on which it runs, with its varied quantities."""

    sequence: TestSequence | None = None

    def prepare(self) -> RunsOfRig:
        """Loaded, and run once on the rig as it is described."""
        return SequenceRuns(self)


class SequenceRuns(RunsOfRig):
    """Runs of a test sequence; a rig that trips has its verdicts, too.

    ``ended``: why the last run that was computed alone ended early; empty if it did not.
    """

    subject: SequenceSubject

    def __init__(self, subject: SequenceSubject) -> None:
        self._prepared: PreparedSequence | None = None
        self.ended = ""
        super().__init__(subject)
        self.nominal_end = self.ended

    def courses(self, rig: Rig, strategy: str, limit: float) -> list[Course]:
        """What the figures are made of. Raises VariantFailedError if the rig does not get ready."""
        (found,) = in_turns([self._courses(rig, strategy)], limit)
        if isinstance(found, Exception):
            raise found
        courses, self.ended = found
        return courses

    def together(
        self, values: Floats, alive: Callable[[], None] = lambda: None
    ) -> list[Floats | EndedEarly | Exception]:
        """The figures of some variants, or why one has none. They are run in turns, which changes nothing but the time.

        What Python does for one variant between two runs of compiled code takes two to three times as long as for the
        next one right after it: until then, code and data of the interpreter are not in the cache.
        """
        return in_turns([self._figures_of(row) for row in values], self.subject.limit, alive)

    @property
    def most_together(self) -> int:
        """How many variants are run in turns, as far as there is memory for their rows."""
        prepared = self._prepared_for(self.values.rig)
        return max(1, min(TOGETHER, MEMORY // prepared.memory))

    def _figures_of(self, values: Floats) -> Steps[Floats | EndedEarly]:
        rig, strategy = self.rig_of(values)
        yield 0  # all rigs are assembled before the first run begins: one right after another takes less time
        courses, why = yield from self._courses(rig, strategy)
        figures = self._figures(courses)
        return EndedEarly(figures, why) if why else figures

    def _courses(self, rig: Rig, strategy: str) -> Steps[tuple[list[Course], str]]:
        try:
            found = yield from self._prepared_for(rig).running(self.with_strategy(rig, strategy))
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
        return courses, early_end(found)

    def _prepared_for(self, rig: Rig) -> PreparedSequence:
        """The sequence, prepared for rigs like this one; nearly always as for the one before."""
        if self._prepared is None or not self._prepared.serves(rig):
            assert self.subject.sequence is not None
            wanted = [figure.quantity for figure in self.subject.figures if figure.reduction != SHARE_PASSED]
            self._prepared = PreparedSequence(self.subject.sequence, rig, wanted, only_required=True)
        return self._prepared


def early_end(found: SequenceResult) -> str:
    """Why the run of a sequence ended early, in the words of the runs of a rig; empty if it did not.

    By a limit, a trip or the local enable, after which the sequence may go on, or by a step that was refused.
    """
    told = [
        f"ended in mode {mode} ({why}) at {at:.4g} s" for at, how in found.endings for mode, why in [how.split(": ", 1)]
    ]
    return "; ".join([*told, *([f"ended with step {found.ended.removesuffix('.')}"] if found.ended else [])])


def in_turns(runs: Sequence[Steps[R]], limit: float, alive: Callable[[], None] = lambda: None) -> list[R | Exception]:
    """What comes of each of these runs, of which each makes a step in turn.

    ``limit``: s of computing time of each. ``alive``: called before each step, in which a run could hang.
    """
    found, spent, going = dict[int, R | Exception](), [0.0] * len(runs), list(range(len(runs)))
    while going:
        for k in tuple(going):
            alive()
            begun = thread_time()
            try:
                tick = next(runs[k])
                spent[k] += thread_time() - begun
                if spent[k] <= limit:
                    continue
                runs[k].close()
                found[k] = VariantFailedError(f"aborted after {limit:g} s of computing time, at tick {tick}")
            except StopIteration as end:
                found[k] = end.value
            except Exception as error:
                found[k] = error
            going.remove(k)
    return [found[k] for k in range(len(runs))]
