"""The bridge where the machine leaves no pressure drop: the piston on its end stop, with noisy sensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hilserver.bridge import columns as b
from hilserver.rig import columns as c
from hilserver.rig.load import load_rig
from hilserver.runs.lockstep import LockstepRun

DEMO = Path(__file__).parent.parent / "config" / "rigs" / "demo.toml"


def test_on_the_stop_the_command_fades_instead_of_swinging_with_the_noise() -> None:
    """Without the fade the command reversed 480 times a second at its slew limit, 0.048 per tick on average."""
    run = LockstepRun(load_rig(DEMO))
    run.start()
    run.select("inverse_lag_leakage", "main")  # the predicting rungs come back quicker, and swing here
    run.command(c.CYCLE, 0.0)  # by hand from here on
    run.set_input("joystick", -0.6)
    run.run(4000)
    rows = run.run(2000)
    command = rows[:, run.rig.layout.column("valve.main.command")]
    flags = rows[:, run.rig.layout.column("valve.main.saturation")].astype(int)
    moved = np.abs(np.diff(command))
    assert rows[:, run.rig.layout.column("channel.x")].max() < 0.01  # it is on the stop
    assert np.mean(flags & b.NO_DROP > 0) > 0.5  # and said so
    assert moved.mean() < 0.015
