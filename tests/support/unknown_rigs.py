"""Rigs with unknown properties, as `identification_coverage` draws them, simulated in longer steps (`lift_bench`)."""

from __future__ import annotations

from collections.abc import Iterable

import identification_coverage
from lift_bench import STEPS
from rig_bench import merged

from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig


def changed_rig(name: str, seed: int, only: Iterable[str] | None = None) -> Rig:
    """The rig of ``config/rigs`` with all unknowns of this seed, or ``only`` these."""
    rig = identification_coverage.changed_rig(name, seed, only)
    sources = merged(rig.sources, {"devices": {"rig": {"machine": STEPS, "drive": STEPS}}})
    return assemble(sources, rig.file, rig.library)
