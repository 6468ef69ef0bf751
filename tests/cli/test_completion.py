"""Completion on the command line, as the shell asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hilserver.cli import COMPLETING, _called

INSTALL = "hilserver --install-completion && source ~/.bashrc"
ASK = """
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
    _hilserver_completion hilserver
    echo "${COMPREPLY[@]}"
}
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = f"{INSTALL}\n{ASK}\nask hilserver ex\nask hilserver check --st\nask hilserver no-command --st"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    installed, _, commands, options, none = done.stdout.splitlines()
    assert "bash completion installed" in installed
    assert commands.split() == ["export", "experiment"]
    assert options.split() == ["--strategy", "--strict"]
    assert none == ""


@pytest.mark.parametrize("variable", ["COMP_WORDS", "_TYPER_COMPLETE_ARGS"])
def test_only_the_command_in_the_line_is_loaded(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A completion has to be as fast as the command: without all the others."""
    monkeypatch.setattr(sys, "argv", ["hilserver"])
    assert _called() is None
    monkeypatch.setenv(variable, "hilserver send st")
    assert _called() is None
    monkeypatch.setenv(COMPLETING, "complete_bash")
    assert _called() == "send"
