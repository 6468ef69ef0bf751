"""The bridge where the machine can't move: the piston on its end stop, with noisy sensors, and on its way off it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lift_bench import both, hard, lift

from hilserver.fidelity.strategies import compare
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Saturation

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"


@pytest.mark.parametrize("strategy", ["inverse_lag_leakage", "supply_droop", "prediction", "feedback", "adaptive"])
@pytest.mark.parametrize(("way", "end"), [(-0.6, 0.0), (0.6, 1.0)])
def test_at_the_end_stop_the_command_does_not_follow_the_noise(strategy: str, way: float, end: float) -> None:
    """Without a reduced gain it reversed 370 to 480 times a second there, at up to 0.12 per tick on average."""
    with LockstepRun(load_rig(DEMO)) as run:
        run.start()
        run.select(strategy, "main")
        run.command(CommandKind.CYCLE, 0.0)  # by hand from here on
        run.set_input("joystick", way)
        run.run(6000)
        rows = run.run(2000)
        column = run.rig.layout.column
        assert np.abs(rows[:, column("channel.x")] - end).max() < 0.01  # it is on the stop
        assert np.abs(np.diff(rows[:, column("valve.main.command")])).mean() < 0.015
        if way < 0.0:  # to tank: no drop is left
            flags = run.rig.layout.values(rows, "valve.main.saturation")
            assert np.mean(flags & Saturation.NO_DROP > 0) > 0.5  # and it says so


@pytest.mark.parametrize(("changes", "position"), [({}, 5e-4), (hard(), 3e-3)])
def test_the_piston_leaves_its_stops_as_in_the_direct_simulation(changes: dict[str, object], position: float) -> None:
    """Onto the stop, two seconds on it, quickly off; onto it again, slowly off: what moves is right."""
    points = [(0.0, 0.0), (0.2, -0.5), (4.0, -0.5), (4.1, 0.4), (6.0, 0.4), (6.1, -0.1), (7.0, -0.1), (7.1, -0.6)]
    points += [(10.0, -0.6), (10.5, 0.05), (12.0, 0.05)]
    cycle = {"joystick": {"shape": "linear", "points": [[f"{t} s", u] for t, u in points]}}
    (variant,) = (
        v
        for v in compare(lift(both({"cycle": {"inputs": cycle}}, changes)), ["feedback"], chosen_by_user=True).variants
        if v.name == "feedback"
    )
    assert variant.cycle is not None
    assert variant.cycle.deviations["position rod"].nrmse < position
