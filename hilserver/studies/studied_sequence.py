"""A study of a test sequence on a simulated rig, whose figures are its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.fidelity.vary import strategy_for
from hilserver.rig.build import load_rig
from hilserver.sequences.check import title_of
from hilserver.sequences.model import Sequence as TestSequence
from hilserver.sequences.model import load_sequence
from hilserver.sequences.play import channel_units
from hilserver.sequences.report import document
from hilserver.sequences.simulated import simulate_sequence
from hilserver.service.telemetry_samples import channel_columns
from hilserver.studies.figures import PASSED, Figure
from hilserver.studies.rig_runs import with_strategy
from hilserver.studies.sequence_runs import ALL, SequenceSubject, early_end
from hilserver.studies.studied_rig import StudiedRig, values_of
from hilserver.studies.subject import RepeatedRun, RunsSubject
from hilserver.studies.varied import VariedValue
from hilserver.units import unit_of_value


@dataclass(frozen=True)
class StudiedSequence(StudiedRig):
    """A test sequence, and the rig on which it runs."""

    sequence: TestSequence | None = None
    named: str = ""

    @property
    def facts(self) -> Mapping[str, str]:
        """Its file, and the rig."""
        return {"Test sequence": self.named, **super().facts}

    @property
    def duration(self) -> float:
        """Of the sequence, s."""
        return self._sequence.length

    @property
    def _sequence(self) -> TestSequence:
        assert self.sequence is not None
        return self.sequence

    @cached_property
    def quantities(self) -> dict[str, str]:
        """The channels of telemetry and the values of the virtual circuit."""
        circuit = {f"circuit.{name}": unit_of_value(name) for name in self._circuit_names()}
        units = channel_units(self.rig, {})
        return {name: units.get(name, "") for name in channel_columns(self.rig) if name != "tick"} | circuit

    @property
    def special(self) -> Mapping[str, Mapping[str, str]]:
        """The verdicts: of steps and expectations, and all together."""
        sequence = self._sequence
        titles = [step.name or step.title for step in sequence.steps]
        titles += [title_of(each, number) for number, each in enumerate(sequence.settings.expect, 1)]
        return {PASSED: dict.fromkeys((ALL, *titles), "")}

    def default_figures(self) -> Mapping[str, Any]:
        """The share of verdicts that passed, and each expectation: 1 where it passed, 0 where it did not."""
        titles = [title_of(each, number) for number, each in enumerate(self._sequence.settings.expect, 1)]
        every = {"passed": {"figure": f"{PASSED}({ALL})", "above": 1.0}}
        return every | {title: f"{PASSED}({title})" for title in titles}

    def subject(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> SequenceSubject:
        """What the study runs."""
        return SequenceSubject(**self._given(varied, figures, limit), sequence=self.sequence)

    def repeat(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject, name: str, folder: Path
    ) -> RepeatedRun:
        """Run once with these values, with the report of `hilserver test` and the log. Raises HilserverError."""
        rig, strategy, figures = self._one_run(varied, values, subject)
        log = folder / f"{name}.arrow"
        folder.mkdir(parents=True, exist_ok=True)
        found = simulate_sequence(self._sequence, with_strategy(rig, strategy), log)
        return RepeatedRun(figures, (*document(found).write(folder, name), log), early_end(found))

    def identity(self) -> str:
        """Also the contents of the sequence."""
        return f"{super().identity()}\0{self._sequence.settings.model_dump_json()}"


def load_studied_sequence(file: Path, name: str, rig: str | None, strategy: str | None) -> StudiedSequence:
    """The test sequence that a study file names, relative to it. Raises ConfigurationError with all problems."""
    sequence = load_sequence(file.parent / name)
    rig_file = file.parent / rig if rig is not None else sequence.rig_file
    if rig_file is None:
        raise ConfigurationError([Problem("the sequence names no rig: give one here.", "rig", str(file))])
    loaded = load_rig(rig_file)
    try:
        chosen = strategy_for(loaded, strategy) if strategy is not None else ""
    except HilserverError as error:
        raise ConfigurationError(
            [Problem(str(error).removeprefix(f"{loaded.file}: "), "strategy", str(file))]
        ) from None
    about = rig or str(sequence.settings.rig)
    return StudiedSequence(values_of(loaded, file), chosen, about, sequence=sequence, named=name)
