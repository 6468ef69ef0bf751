"""What a recording says of its valves and the machine: from it, the fragment of the rig file and the report are made.

Each part is computed once, when it is first needed: most of them take all samples of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hilserver.identify.findings import IdentifiedValue, findings, trust_findings
from hilserver.identify.identification import Identified
from hilserver.identify.machine import Findings, machine_findings
from hilserver.identify.recorded import Recording
from hilserver.identify.servo import ServoTuning, tuned_servo
from hilserver.identify.suspicions import Suspicion, suspicions
from hilserver.identify.withheld import ALWAYS_LATE, OF_SENSORS, widened


@dataclass(frozen=True)
class EvaluatedValve:
    """An identified valve, and what follows from it."""

    found: Identified
    recording: Recording

    @property
    def name(self) -> str:
        """The valve's name in the rig file."""
        return self.found.experiment.valve

    @cached_property
    def findings(self) -> Sequence[IdentifiedValue]:
        """Its properties."""
        values = findings(self.found)
        return [widened(each) for each in values] if self.found.is_speed_limited else values

    @cached_property
    def trust(self) -> Sequence[IdentifiedValue]:
        """How closely it keeps to them; empty if not known."""
        return trust_findings(self.found)

    @cached_property
    def suspicions(self) -> Sequence[Suspicion]:
        """The model errors that the recording suggests, also those that are only errors of the rig file."""
        return list(suspicions(self.found))

    @cached_property
    def servo(self) -> ServoTuning | None:
        """Its flow servo; None without a flow sensor."""
        return tuned_servo(self.found, self.findings, self.recording)


@dataclass(frozen=True)
class Evaluation:
    """The identified valves of a recording, and what follows from them."""

    results: Sequence[Identified]
    recording: Recording

    @cached_property
    def valves(self) -> Sequence[EvaluatedValve]:
        """Each valve, in the order of the results."""
        return [EvaluatedValve(found, self.recording) for found in self.results]

    @cached_property
    def machine(self) -> Findings:
        """The properties of the cylinders and channels at these valves."""
        found = machine_findings(self.results, self.recording)
        if not any(each.is_speed_limited for each in self.results):
            return found
        return {table: [widened(each) for each in values] for table, values in found.items()}

    @property
    def suggested_curves(self) -> dict[str, list[tuple[float, float]]]:
        """By valve, the flow-signal curve to be entered first: until then, no other value can be relied on."""
        return {found.experiment.valve: curve for found in self.results if (curve := found.suggested_curve)}

    @cached_property
    def corrections(self) -> frozenset[str]:
        """The keys by which the fragment of the rig file corrects its description of the machine, with their tables."""
        if curves := self.suggested_curves:
            return frozenset(f"valves.{name}.flow_signal" for name in curves)
        found = ((table, f.key) for table, values in self.machine.items() for f in values)
        return frozenset(f"{table}.{key}" for table, key in found if key and not self.reason_of_machine(key))

    def corrected(self, valve: EvaluatedValve) -> list[Suspicion]:
        """What differs from the rig file, but no longer once the fragment is merged."""
        return [each for each in valve.suspicions if each.key in self.corrections]

    def suspected(self, valve: EvaluatedValve) -> list[Suspicion]:
        """The model errors that remain when the fragment is merged."""
        return [each for each in valve.suspicions if each.key not in self.corrections]

    def reason_of_machine(self, key: str) -> str:
        """Why this key of a cylinder, motor or channel is not merged; empty if it is."""
        return ALWAYS_LATE if key not in OF_SENSORS and any(each.is_always_late for each in self.results) else ""
