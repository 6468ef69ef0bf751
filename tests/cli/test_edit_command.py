"""``hilserver edit`` with files that can't be edited: the reason, exit code 2, and nothing is served or written."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command

from hilserver.editor.document import open_circuit
from hilserver.errors import HilserverError

CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cycle.toml", 'description = "x"\n[inputs.work]\npoints = []\n', "is a work cycle, not a circuit"),
        ("broken.toml", "[components\n", "is not valid TOML"),
        ("text.toml", b"\xff\xfe", "can't be read"),
        ("circuit.txt", None, "the name of a circuit file ends with .toml"),
        ("no folder/circuit.toml", None, "is not a folder"),
        ("own.toml", 'library = "missing.py"\n', "missing.py"),
    ],
)
def test_what_is_no_circuit_is_refused(
    name: str, content: str | bytes | None, reason: str, hilserver: Command, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    said = hilserver("edit", "--no-browser", tmp_path / name)
    assert said.code == 2
    assert reason in said.err
    assert "Traceback" not in said.err
    assert "http" not in said.out
    assert content is not None or not (tmp_path / name).exists()


def test_files_of_every_other_kind_are_refused() -> None:
    for kind in ("catalogue", "cycles", "mechanisms", "rigs", "sequences", "studies"):
        for file in (CONFIG / kind).glob("*.toml"):
            with pytest.raises(HilserverError, match="not a circuit"):
                open_circuit(file)
    for file in (CONFIG / "circuits").rglob("*.toml"):
        open_circuit(file)
