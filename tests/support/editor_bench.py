"""``hilserver edit`` in a process of its own, and documents without one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service_harness import eventually, listens

from hilserver.circuit.library import standard_library
from hilserver.editor.document import CircuitDocument
from hilserver.editor.parts import Parts

COMMAND = (sys.executable, "-c", "from hilserver.cli import main; main()", "edit", "--no-browser")

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


@contextmanager
def edited(folder: Path, *options: str) -> Iterator[str]:
    """The editor of a file in this folder; its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    said = folder / "edit.log"
    with said.open("w") as log:
        process = subprocess.Popen((*COMMAND, *options), stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        url = eventually(lambda: (found := re.search(r"http://\S+", said.read_text())) and found[0], 30)
        eventually(lambda: listens(int(url.split(":")[2].partition("/")[0])), 30)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in said.read_text(), said.read_text()
