"""Circuits that are being edited, without a page."""

from __future__ import annotations

from pathlib import Path

from hilserver.circuit.library import standard_library
from hilserver.editor.document import CircuitDocument
from hilserver.editor.parts import Parts

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


def document(text: str, folder: Path = Path("nowhere")) -> CircuitDocument:
    """A circuit that is being edited, as if it were in this folder."""
    return CircuitDocument(folder / "circuit.toml", text, text, Parts(standard_library(), folder))
