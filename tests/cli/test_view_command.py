"""``hilserver view`` with logs that can't be shown: the reason, exit code 2, and nothing is served."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from command_line import Command
from pages import only
from viewer_bench import record


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none.arrow", None, "none.arrow: does not exist."),
        ("notes.docx", b"PK", "notes.docx: is not a log: its name must end with one of .arrow, .mf4, .parquet"),
        ("log.arrow", 40 * b"no log  ", "log.arrow: is not a log of hilserver"),
        ("press.csv", b"pressure;force\n1,5;2\n", "press.csv: has no column with the time"),
    ],
)
def test_what_is_no_log_is_refused(
    name: str, content: bytes | None, reason: str, hilserver: Command, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    said = hilserver("view", "--no-browser", tmp_path / name)
    assert said.code == 2
    assert reason in said.err
    assert "Traceback" not in said.err
    assert "http" not in said.out


def test_a_port_in_use_is_named(hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / "press.csv").write_text("time,force\n0,1\n1,2\n")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = hilserver("view", "--no-browser", "--port", str(port), tmp_path / "press.csv")
    assert said.code == 2
    assert f"can't be served on 127.0.0.1:{port}" in said.err


def documented_layout() -> list[str]:
    """The command of docs/viewing.md that begins with a layout."""
    return only("tested: tests/cli/test_view_command.py::documented_layout").text.split()[1:]


def test_what_is_wrong_in_the_layout_is_said_first(
    hilserver: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, log, option, layout = documented_layout()
    assert (verb, option) == ("view", "--layout")
    for file in (Path(log), Path(layout)):
        file.parent.mkdir()
    record(Path(log))
    Path(layout).write_text("[[tabs]]\nplot = []\n")
    said = hilserver("view", "--no-browser", log, option, layout)
    assert said.code == 2
    assert f"{layout}:2: tabs[0].plot: unknown key. Did you mean plots?" in " ".join(said.err.split())
    assert "http" not in said.out
