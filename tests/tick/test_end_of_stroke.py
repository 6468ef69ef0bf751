"""The demo's cylinder driven to an end of its stroke that a limit sets, and out again: in lockstep, closed loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
END = 0.6


def rig(**stroke: object) -> Rig:
    """The demo's rig without its work cycle, with an end at 600 mm; the rod begins at 300 mm."""
    demo = load_rig(DEMO)
    limit = {"max": "600 mm", "action": "stop", "valves": {"main": 1}, **stroke}
    table = merged(demo.sources["rig"], {"cycle": None, "limits": {"stroke": limit}})
    sources = {key: value for key, value in demo.sources.items() if key != "cycle"}
    return assemble({**sources, "rig": table}, DEMO, standard_library())


def driven(run: LockstepRun, way: float, seconds: float) -> Floats:
    """Positions of the rod in m while the joystick is held."""
    run.set_input("joystick", way)
    positions: Floats = run.run(round(seconds / run.dt))[:, run.rig.layout.column("channel.x")]
    return positions


@pytest.mark.parametrize(("stroke", "overshoot"), [({"slow_down": "100 mm"}, 0.0), ({}, 0.01)])
def test_the_rod_stops_at_the_end_of_stroke_and_can_be_driven_back(stroke: dict[str, str], overshoot: float) -> None:
    """At 0.2 m/s. Without a way to slow down: slew 20 ms from full command, spool 4 ms, oil: 10 mm are generous."""
    with LockstepRun(rig(**stroke)) as run:
        run.start()
        run.select("inverse_lag_leakage", "main")  # what the overshoots were worked out for
        out = driven(run, 1.0, 8.0)
        assert out[1000] - out[0] > 0.1
        assert out.max() <= END + overshoot
        assert out[-1] == pytest.approx(END, abs=0.002)
        back = driven(run, -1.0, 1.0)
        assert back[-1] < END - 0.05
        assert run.mode == "RUNNING"
