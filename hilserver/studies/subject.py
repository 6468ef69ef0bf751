"""What a study runs: something that is prepared once in a process, and then gives the figures of any variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats

if TYPE_CHECKING:
    from hilserver.studies.figures import Figure
    from hilserver.studies.varied import VariedValue
    from hilserver.tolerances import Tolerance


class VariantFailedError(Exception):
    """A variant without figures; its text is the reason."""


def reason_of(error: Exception) -> str:
    """Why a variant has no figures, in a line: in the words of hilserver, or what Python says of a user's component."""
    if isinstance(error, VariantFailedError):
        return str(error)
    text = (str(error) or "no reason given").splitlines()[0].removesuffix(".")
    return text if isinstance(error, ValueError | HilserverError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True)
class EndedEarly:
    """The figures of a variant whose run ended early, as that of a test sequence on a rig that trips, and the cause."""

    figures: Floats
    cause: str


Evaluate = Callable[[Floats], Floats]
"""The figures of a variant, from its values; raises VariantFailedError."""


@runtime_checkable
class EvaluateTogether(Protocol):
    """An `Evaluate` that computes several variants in less time if it has them together, at most so many."""

    @property
    def most_together(self) -> int: ...

    def together(self, values: Floats, alive: Callable[[], None] = ...) -> list[Floats | EndedEarly | Exception]:
        """The figures of these variants, a row for each, as of each alone; or why one has none.

        ``alive``: called often, at least once between two variants: where it is not, the process hangs.
        """
        ...


class StudySubject(Protocol):
    """Can be pickled: every worker process prepares it for itself."""

    def prepare(self) -> Evaluate:
        """Everything that is the same for all variants."""
        ...


class StudyRuns(Protocol):
    """The runs of a study in this process.

    ``nominal``: the figures with the values of the files; ``in_place``: for each varied quantity, whether its values
    are written into packed numbers; ``without_effect``: keys of quantities that change no number; ``nominal_end``: why
    the nominal run ended early, empty if it did not; None where a run that ends early has no figures.
    """

    @property
    def nominal(self) -> Floats: ...

    @property
    def in_place(self) -> tuple[bool, ...]: ...

    @property
    def without_effect(self) -> tuple[str, ...]: ...

    @property
    def nominal_end(self) -> str | None: ...

    def __call__(self, values: Floats) -> Floats:
        """The figures of a variant. Raises VariantFailedError."""
        ...

    def of_half_the_step(self, values: Floats | None = None) -> Floats:
        """The same with half of every integration step; without values: nominal. Raises VariantFailedError."""
        ...


class RunsSubject(Protocol):
    """A `StudySubject` whose runs also have nominal figures. ``file``: named in messages."""

    @property
    def file(self) -> str: ...

    @property
    def figures(self) -> tuple[Figure, ...]: ...

    def prepare(self) -> StudyRuns:
        """Raises VariantFailedError if the nominal run fails."""
        ...


class KnownQuantity(Protocol):
    """A quantity that can be varied: its value, SI, and its unit."""

    @property
    def value(self) -> float: ...

    @property
    def unit(self) -> str: ...


@dataclass(frozen=True)
class RepeatedRun:
    """A run that was repeated with a report of its own: its figures, and the files of the report.

    ``ended``: why it ended early, empty if it did not.
    """

    figures: Floats
    files: tuple[Path, ...]
    ended: str = ""


class Studied(Protocol):
    """What a study file names: a circuit, a rig, a test sequence or logs, as loaded.

    ``facts``: what the page says of it, by title; ``duration``: of a run, ``end``: time at its end, s; ``known``: the
    quantities that can be varied, by key; ``tolerances``: those in its files, by key; ``quantities``: those of a run,
    with their units; ``special``: for reductions of their own, what they can reduce, with the units.
    """

    @property
    def facts(self) -> Mapping[str, str]: ...

    @property
    def duration(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def known(self) -> Mapping[str, KnownQuantity]: ...

    @property
    def tolerances(self) -> Iterable[tuple[str, Tolerance]]: ...

    @property
    def quantities(self) -> Mapping[str, str]: ...

    @property
    def special(self) -> Mapping[str, Mapping[str, str]]: ...

    def find(self, key: str) -> str:
        """The key of a quantity as in ``known``. Raises ValueError that names similar ones."""
        ...

    def usual(self, key: str) -> Mapping[str, Tolerance]:
        """The tolerances, by key, of what has a usual range and this key. Raises ValueError if nothing has."""
        ...

    def choice(self, key: str, entries: Sequence[Any]) -> VariedValue:
        """A choice of component types or strategies. Raises ValueError or ConfigurationError."""
        ...

    def default_figures(self) -> Mapping[str, Any]:
        """The figures of a study file that names none."""
        ...

    def subject(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> RunsSubject:
        """What the study runs. ``limit``: s of computing time of a run."""
        ...

    def step_error(self, runs: StudyRuns, figures: Sequence[Figure]) -> str:
        """The error of the integration step in the nominal run, in words."""
        ...

    def repeat(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject, name: str, folder: Path
    ) -> RepeatedRun:
        """Run once with these values, and write a report. Raises HilserverError."""
        ...

    def identity(self) -> str:
        """Differs for other contents of the files, and for other programs."""
        ...
