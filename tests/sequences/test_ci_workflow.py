"""The ready workflow for CI: its steps are carried out on a repository as it expects it, and go red for a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from pages import only

from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / "docs/ci/replay.yml").read_text())
STEPS: dict[str, Any] = {step["name"]: step for step in WORKFLOW["jobs"]["rigs"]["steps"] if "name" in step}
SHELL = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
"""As GitHub runs a step."""


def run(step: str, folder: Path) -> tuple[int, str]:
    """Carry out a step; returns exit code and output."""
    return carry_out(STEPS[step]["run"], folder)


def carry_out(script: str, folder: Path) -> tuple[int, str]:
    """Run a script as GitHub does it."""
    python = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "COLUMNS": "200"}
    command = (*SHELL, script)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rig, sequence and a log of a run, as the workflow expects them."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("circuits", "cycles", "sequences"):
        shutil.copytree(ROOT / "config" / name, folder / name)
    (folder / "rigs").mkdir()
    shutil.copy(ROOT / "config/rigs/demo.toml", folder / "rigs")
    (folder / "logs").mkdir()
    with LockstepRun(load_rig(folder / "rigs/demo.toml"), folder / "logs/acceptance.arrow") as simulated:
        simulated.start()
        simulated.run(300)
    return folder


def test_the_workflow_passes_for_a_correct_repository(repository: Path) -> None:
    for step in ("Rig files are right", "Recorded runs give the same outputs", "Test sequences"):
        code, said = run(step, repository)
        assert code == 0, f"{step}\n{said}"
    assert (repository / "reports/sequences.xml").is_file()
    assert STEPS["Keep reports"]["with"]["path"] == "reports/"


def test_the_page_shows_the_steps(repository: Path) -> None:
    block = only("tested: tests/sequences/test_ci_workflow.py::test_the_page_shows_the_steps")
    code, said = carry_out(block.text, repository)
    assert code == 0, said
    steps = "".join(str(step.get("run", "")) for step in STEPS.values())
    for program in ("check", "replay", "test"):
        (command,) = re.findall(rf"hilserver {program} .*?(?=;| \|\||\n)", block.text)
        assert command in steps


def test_a_step_of_the_workflow_fails_on_an_error(repository: Path) -> None:
    rig = repository / "rigs/demo.toml"
    right = rig.read_text()
    rig.write_text(right.replace('rate = "1 kHz"', 'rate = "1 bar"'))
    code, said = run("Rig files are right", repository)
    rig.write_text(right)
    assert code != 0
    assert "loop.rate" in said

    sequence = repository / "sequences/relief.toml"
    right = sequence.read_text()
    sequence.write_text(right.replace('min = "310 mm"', 'min = "999 mm"'))
    code, said = run("Test sequences", repository)
    sequence.write_text(right)
    assert code == 1
    assert "FAILED  the load rises" in said


def test_the_workflow_fails_on_a_changed_output(repository: Path) -> None:
    """A log whose command does not follow from its inputs; the intact one after it is replayed nevertheless."""
    log = LogReader(repository / "logs/acceptance.arrow")
    rows = np.concatenate([batch.rows() for batch in log.batches()])
    events = {row: [event] for row, event in log.read_all().events}
    rows[200:, log.header.columns.index("valve.main.command")] += 1e-3
    with LogWriter(repository / "logs/a-changed.arrow", log.header, 1000) as writer:
        writer.append(rows, events)
    code, said = run("Recorded runs give the same outputs", repository)
    (repository / "logs/a-changed.arrow").unlink()
    assert code == 1
    assert "valve.main.command" in said
    assert "identical, bit for bit" in said
