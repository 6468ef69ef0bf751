"""Circuits and rigs that are being edited, without a page."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hilserver.circuit.library import standard_library
from hilserver.editor.document import CircuitDocument
from hilserver.editor.parts import Parts
from hilserver.editor.rig_session import RigDocument, RigSession

BASE = """\
[components.tank]
type = "tank"
ports = { T = "tank" }

[components.pump]
type = "fixed_pump"
ports = { P = "supply", T = "tank" }
displacement = "10 cm^3"
speed = "1450 rpm"

[components.line]
type = "volume"
ports = { P = "supply" }
volume = "1 l"
"""

RIGS = Path(__file__).parents[2] / "config/rigs"
RUBBISH: tuple[Any, ...] = (
    *(1, -1, 3.5, True, "", "=y", "1 bar", 'é"<b>'),
    *([], [1], [[1, 2]], ["a"], {"a": 1}, {"T": 3}, {"a.b": {}}),
)


def document(text: str, folder: Path = Path("nowhere")) -> CircuitDocument:
    """A circuit that is being edited, as if it were in this folder."""
    return CircuitDocument(folder / "circuit.toml", text, text, Parts(standard_library(), folder))


def rig(name: str = "demo", text: str = "") -> RigSession:
    """A ready rig that is being edited; ``text``: instead of its own."""
    document = RigDocument.open(RIGS / f"{name}.toml")
    document.text = text or document.text
    return RigSession(document)


def spoil(chance: random.Random, table: dict[str, Any]) -> None:
    """Put something senseless at three random places of a table."""
    for _ in range(3):
        _spoil(chance, table)


def _spoil(chance: random.Random, table: dict[str, Any]) -> None:
    key = chance.choice([*table])
    if isinstance(table[key], dict) and table[key] and chance.random() < 0.8:
        _spoil(chance, table[key])
    else:
        table[key] = chance.choice(RUBBISH)
