"""A request for the check before arming, as the server writes it for the process that answers, and the findings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hilserver.rig.build import assemble, library_in
from hilserver.rig.rig import Rig

COMPARE = "The rig can be armed; hilserver check --run compares the strategies."
REMEDY = (
    "Use another strategy (hilserver check --run compares them), or, to arm regardless of this simulation, set "
    "arming.virtual_commissioning = false in the rig file."
)


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be examined: a rig's file and sources, with the running circuit among them, and the strategies.

    ``strategies``: of its valves. ``supply``: measured real supply pressure, Pa, for a rig with real devices.
    ``actuators``: their strategies, by name.
    """

    file: str
    sources: Mapping[str, Any]
    strategies: tuple[str, ...]
    supply: float | None = None
    actuators: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Write the request for the process that answers it."""
        file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Request:
        """Read a request."""
        found = json.loads(file.read_text())
        return cls(**{**found, "strategies": tuple(found["strategies"])})

    def rig(self) -> Rig:
        """The rig. Raises ConfigurationError."""
        sources = dict(self.sources)
        if self.supply is not None:
            assumed = {**sources["rig"].get("simulation", {}), "supply_pressure": f"{self.supply!r} Pa"}
            sources["rig"] = {**sources["rig"], "simulation": assumed}
        return assemble(sources, Path(self.file), library_in(sources))


@dataclasses.dataclass(frozen=True)
class Findings:
    """What speaks against arming a rig, one sentence per strategy.

    ``refusals``: of those that do harm, so that the rig must not be armed with them; ``doubts``: of those that do none,
    but are doubtful, or inaccurate. ``unexamined``: why nothing could be examined; empty if it could.
    """

    refusals: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unexamined: str = ""

    def and_also(self, other: Findings) -> Findings:
        """Both together."""
        unexamined = "; ".join(text for text in (self.unexamined, other.unexamined) if text)
        return Findings(self.refusals + other.refusals, self.doubts + other.doubts, unexamined)
