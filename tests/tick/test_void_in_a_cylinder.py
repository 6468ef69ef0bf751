"""A load that goes on when the virtual valve closes: behind the piston there is a void, which its position shows as oil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rig_bench import merged

from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import CycleRun, run_cycle_on
from hilserver.rig.build import assemble, load_rig
from hilserver.tick.codes import Learning, Unseen

LIFT = Path(__file__).parents[2] / "config/rigs/lift.toml"
MASS = 2000.0
"""kg, on a horizontal slide."""
RANGE = ["-1 bar", "250 bar"]


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


def test_feedback_does_not_take_a_void_for_oil() -> None:
    prediction, feedback = run("prediction"), run("feedback")
    unseen = feedback.record.columns["valve.A.unseen"] == Unseen.VOID
    assert np.count_nonzero(unseen) > 20, "otherwise this tests nothing"
    assert (feedback.record.columns["valve.A.volume_error"][unseen] == 0.0).all()
    errors = [each.result.deviations["position rod"].nrmse for each in (prediction, feedback)]
    print(errors)
    assert errors[1] < 2.0 * errors[0]
