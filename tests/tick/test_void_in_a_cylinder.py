"""A load that goes on when the virtual valve closes: behind the piston is a void, which its position shows as oil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rig_bench import merged

from hilserver.circuit.engine import VOID_CAPACITANCE
from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import CycleRun, run_cycle_on
from hilserver.rig.build import assemble, load_rig
from hilserver.tick.codes import Unseen

LIFT = Path(__file__).parents[2] / "config/rigs/lift.toml"
MASS = 2000.0
"""kg, on a horizontal slide."""
RANGE = ["-1 bar", "250 bar"]
VAPOUR = 1e5
"""Pa below the atmosphere: the vapour pressure of the oil."""


def run(strategy: str) -> CycleRun:
    """The lift rig with this load and with sensors that show a void; the joystick returns at once."""
    rig = load_rig(LIFT)
    scale = {"raw": [0, 10], "value": RANGE}
    changes: dict[str, Any] = {
        "cycle": {"inputs": {"joystick": {"points": [["0 s", 0.0], ["0.3 s", 0.5], ["1.2 s", 0.5], ["1.25 s", 0.0]]}}},
        "devices": {
            "rig": {"machine": {"components": {"load": {"mass": f"{MASS - 10.0} kg", "direction": "0 deg"}}}},
        },
        "rig": {
            "devices": {"rig": {"sensors": {name: {"value": RANGE} for name in ("p_A", "p_B")}}},
            "channels": {name: {"scale": scale} for name in ("p_A", "p_B")},
            "cylinders": {"lift": {"mass": f"{MASS} kg"}},
            "limits": {name: {"max": "245 bar"} for name in ("p_A_high", "p_B_high")},
        },
    }
    sources = merged(dict(rig.sources), changes)
    sources["cycle"]["length"] = "2.5 s"
    sources["devices"]["rig"]["machine"]["nodes"] |= {"A": {"pressure": "10 bar"}, "B": {"pressure": "15.6 bar"}}
    return run_cycle_on(assemble(sources, rig.file, rig.library), "rig", strategy, standard_program())


@pytest.mark.parametrize(("strategy", "position", "pressure"), [("prediction", 1e-4, 0.005), ("feedback", 1e-3, 0.05)])
def test_a_void_is_not_taken_for_oil(strategy: str, position: float, pressure: float) -> None:
    """The load swings between two voids for over a second: the pressures were up to 65 % off, the position 1.5 %."""
    found = run(strategy)
    columns, deviations = found.record.columns, found.result.deviations
    for valve in "AB":
        unseen = columns[f"valve.{valve}.unseen"] == Unseen.VOID
        assert np.count_nonzero(unseen) > 100, "otherwise this tests nothing"
        assert (columns[f"valve.{valve}.volume_error"][unseen] == 0.0).all()
        assert deviations[f"pressure {valve}"].nrmse < pressure
    assert deviations["position rod"].nrmse < position


def test_the_estimated_void_is_that_of_the_machine() -> None:
    """By the account of the simulated machine, within a twentieth of the largest."""
    found = run("feedback")
    names = list(found.comparison.plant.names)
    for side in "AB":
        true = VOID_CAPACITANCE * np.maximum(-VAPOUR - found.true_values[:, names.index(f"{side}.content")], 0.0)
        estimated = found.record.columns[f"cylinder.lift.void_{side}"]
        assert true.max() > 1e-7
        assert np.abs(estimated - true).max() < 0.15 * true.max()
