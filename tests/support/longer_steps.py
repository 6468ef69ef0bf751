"""Simulated rigs in longer integration steps than those of their files: most of the time of their tests is integration.

Such tests compare runs with each other, or with bounds that the length of the step is far from (`lift_bench`).
"""

from __future__ import annotations

import re
from pathlib import Path

SUBSTEPS = 4
"""Integration steps per tick, of 0.25 ms at 1 kHz; 10 in the files."""


def in_longer_steps(*circuits: Path) -> None:
    """Let the circuits in these files be integrated in SUBSTEPS per tick."""
    for circuit in circuits:
        text, found = re.subn(r"^substeps = \d+", f"substeps = {SUBSTEPS}", circuit.read_text(), flags=re.M)
        circuit.write_text(text if found else f"{text}\n[solver]\nsubsteps = {SUBSTEPS}\n")
