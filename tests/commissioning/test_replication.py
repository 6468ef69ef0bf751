"""Iteration of a drive: exact for a linear machine after one step, and small on the simulated rig after some."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
from command_line import Command
from pages import only
from service_harness import rig_text

from hilserver.commissioning.replication import Period, last_period, next_drive, read_target, write_cycle
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun

N, DT = 2000, 1e-3
"""A period of 2 s."""
TIME: Floats = DT * np.arange(N, dtype=np.float64)


def machine(drive: Floats) -> Floats:
    """The periodic response of a second-order lag of 5 Hz with a delay of 20 ms: its frequency response is exact."""
    f = np.fft.rfftfreq(N, DT)
    response = 3.0 * np.exp(-2j * np.pi * f * 0.02) / (1.0 - (f / 5.0) ** 2 + 2j * 0.4 * f / 5.0)
    found: Floats = np.fft.irfft(response * np.fft.rfft(drive), N).astype(np.float64)
    return found


def history() -> Floats:
    return np.sin(np.pi * TIME) + 0.4 * np.sin(4 * np.pi * TIME + 1.0) + 0.2 * np.cos(9 * np.pi * TIME)


def test_one_step_is_exact_for_a_linear_machine() -> None:
    """The drive at first is the target itself, scaled: it contains all its lines."""
    drive, target = 0.1 * history(), history()
    first = next_drive(Period(DT, drive, machine(drive), machine(drive)), target, 8.0)
    assert first.error > 0.5
    response = machine(first.drive)
    assert np.abs(response - target).max() < 1e-9
    again = next_drive(Period(DT, first.drive, response, response), target, 8.0)
    assert again.error < 1e-9
    assert (first.unsteady, first.lines) == (0.0, 16)


def test_each_step_corrects_its_share() -> None:
    drive, target = 0.1 * history(), history()
    errors = []
    for _ in range(4):
        found = next_drive(Period(DT, drive, machine(drive), machine(drive)), target, 8.0, gain=0.5)
        errors.append(found.error)
        drive = found.drive
    assert np.array(errors[1:]) / np.array(errors[:-1]) == pytest.approx([0.5] * 3, abs=1e-6)


def test_what_is_above_the_highest_frequency_is_left_as_it_is() -> None:
    drive, target = 0.1 * history(), history()
    found = next_drive(Period(DT, drive, machine(drive), machine(drive)), target, 3.0)
    change = np.abs(np.fft.rfft(found.drive - drive))
    assert change[7:].max() < 1e-9 * change.max()


def test_a_drive_or_target_at_rest_is_refused() -> None:
    rest = np.zeros(N)
    with pytest.raises(HilserverError, match="the recorded input is constant"):
        next_drive(Period(DT, rest, rest, rest), history(), 8.0)
    with pytest.raises(HilserverError, match="the target is constant"):
        next_drive(Period(DT, history(), rest, rest), rest, 8.0)
    for dead in (rest, np.full(N, np.nan)):
        with pytest.raises(HilserverError, match="the response is constant"):
            next_drive(Period(DT, history(), dead, dead), history(), 8.0)
    with pytest.raises(HilserverError, match=r"below 0\.5 Hz, the first harmonic"):
        next_drive(Period(DT, history(), history(), history()), history(), -1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("time,x (mm)\n0,1\n1,2\n", "must rise from 0 to 2 s"),
        ("time,x (mm)\n0,1\n2,much\n", "is not a table"),
        ("t,x (mm)\n0,1\n2,2\n", "the first column must be time"),
        ("time,x (mm)\n0,1\n2,nan\n", "not a finite number"),
        ("time\n0,1\n2,1\n", "does not have two columns"),
        ("time,x (mmm)\n0,1\n2,2\n", "column x"),
    ],
)
def test_a_wrong_target_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "target.csv").write_text(text)
    with pytest.raises(HilserverError, match=problem):
        read_target(tmp_path / "target.csv", Period(DT, TIME, TIME, TIME))


def test_a_cycle_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"none/next\.toml: can't be written: No such file or directory"):
        write_cycle(tmp_path / "none" / "next.toml", "joystick", Period(DT, TIME, TIME, TIME), TIME, (-1.0, 1.0))


OUT = "config/cycles/attempt2.toml"


def documented() -> tuple[list[str], str]:
    """The words of the command in docs/endurance-tests.md, and what it says."""
    line, _, said = only("tested: tests/commissioning/test_replication.py::documented").text.partition("\n")
    return shlex.split(line)[2:], said


def without_numbers(text: str, file: object) -> list[str]:
    return [re.sub(r"[\d.]+", "#", line.replace(str(file), "FILE")) for line in text.strip().splitlines()]


def test_the_simulated_rig_follows_a_history_of_its_flow(tmp_path: Path, hilserver: Command) -> None:
    """The flow into port A of the demo, driven by the joystick through the virtual valve, follows a history."""
    target = 6.0 * np.sin(np.pi * TIME) + 2.0 * np.sin(3 * np.pi * TIME + 0.5)  # l/min
    lines = [f"{t:.4f},{v:.6f}" for t, v in zip([*TIME[::20], 2.0], [*target[::20], target[0]], strict=True)]
    (tmp_path / "target.csv").write_text("\n".join(["time,Q (l/min)", *lines]))
    shape = target / np.abs(target).max()
    points = ", ".join(
        f'["{t:.2f} s", {0.05 * v:.5f}]' for t, v in zip([*TIME[::20], 2.0], [*shape[::20], 0.0], strict=True)
    )
    (tmp_path / "cycle0.toml").write_text(f"repeat = true\n[inputs.joystick]\npoints = [{points}]\n")
    errors = []
    for step in range(4):
        rig = tmp_path / f"rig{step}.toml"
        rig.write_text(rig_text("drive", tmp_path, {"cycle =": f'cycle = "cycle{step}.toml"'}))
        log, after = tmp_path / f"run{step}.arrow", tmp_path / f"cycle{step + 1}.toml"
        with LockstepRun(load_rig(rig), log) as run:
            run.start()
            run.run(3 * N + 10)
        command, expected = documented()
        files = {"logs/attempt1.arrow": log, "road.csv": tmp_path / "target.csv", OUT: after}
        said = hilserver(*(files.get(word, word) for word in command))
        assert said.code == 0, said.err
        assert without_numbers(said.out, after) == without_numbers(expected, OUT)
        found = re.search(r"Error of this iteration: ([\d.]+) %", said.out)
        assert found is not None
        errors.append(float(found[1]))
        assert len(tomllib.loads(after.read_text())["inputs"]["joystick"]["points"]) == 401
    assert errors[0] > 30.0
    assert errors[-1] < 0.1 * errors[0], errors
    with pytest.raises(HilserverError, match=r"has no channel Q.*Did you mean Q_A"):
        last_period(log, "joystick", "Q_a")
