"""A chamber that the virtual circuit holds: a source behind a wide orifice at port B, oil trapped behind a check valve
at port A. The mass swings on the trapped oil, and the source passes whatever keeps the pressure in B.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program
from port_account import Run, installed, judged, run_with
from port_family import Case
from port_parts import LINE, A, B, part, signals, supply, two_way
from port_sizes import LOAD, SIZES, STANDSTILLS
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig

pytestmark = pytest.mark.slow

HELD = 50.0
"""bar in chamber B."""
CASE = Case("check_valve", "middle", "light")


def rig(valve: dict[str, Any], delay: float) -> Rig:
    """The rig with this real valve at each port, whose ``delay`` in ms is stated as well."""
    size = SIZES[CASE.size]
    components = {
        **supply(size),
        **signals(),
        "fill": two_way(size, "supply", LINE, "up"),
        "line": part("volume", {"P": LINE}, volume=size.volume(100)),
        "check": part("check_valve", {"A": LINE, "B": A}, nominal_flow=size.at(1.5, 5), cracking_pressure="0.5 bar"),
        "lower": two_way(size, A, "tank", "down"),
        "source": part("pressure_source", {"P": "held"}, pressure=f"{HELD} bar"),
        "wide": part("orifice", {"A": "held", "B": B}, nominal_flow=size.at(3.0, 1)),
    }
    sources = CASE.sources()
    sources["circuit"]["components"] = components
    p_A = LOAD / 1e5 + HELD * size.areas[1] / size.areas[0]
    start = {"A": {"pressure": f"{p_A} bar"}, "B": {"pressure": f"{HELD} bar"}, "rod": {"position": "640 mm"}}
    known = {**valve, "delay": f"{delay} ms"}
    late = {"delay": f"{delay} ms"}
    changes = {
        "rig": {
            "valves": {"A": known, "B": known},
            "devices": {"rig": {"actuators": {"u_A": late, "u_B": late}}},
        },
        "devices": {
            "rig": {"machine": {"nodes": start}, "drive": {"components": {"real_A": valve, "real_B": valve}}},
        },
    }
    return assemble(merged(sources, changes), Path("held.toml"), standard_library())


def unrest(run: Run) -> float:
    """RMS of the commands about their trend in the last standstill, of full command."""
    t, (begin, end) = run.record.columns["cycle_time"], STANDSTILLS["light"][-1]
    at = (t > begin) & (t <= end)
    commands = [run.record.columns[f"valve.{v}.command"][at] for v in run.rig.settings.valves]
    return max(float(np.std(u - np.polyval(np.polyfit(t[at], u, 2), t[at]))) for u in commands)


@pytest.mark.parametrize(("f90", "delay"), [(80.0, 2.0), (40.0, 4.0)])
def test_the_correction_does_not_drive_an_oscillation(f90: float, delay: float) -> None:
    """It ends: at rest the valves are as calm as without the correction. Position and pressure are no further off.

    (Valves of 40 Hz answer the step at the start with some per cent of the range, whose end is waited for.)
    """
    held = rig({"f90": f"{f90} Hz"}, delay)
    reference, found = installed(held), {}
    for strategy in ("prediction", "feedback"):
        run, trip = run_with(held, strategy, program(), reference)
        assert run is not None, trip
        found[strategy] = judged(run, STANDSTILLS["light"]), unrest(run)
    (without, calm), (corrected, at_rest) = found["prediction"], found["feedback"]
    assert corrected.position < without.position
    assert corrected.pressure < (1.3 if f90 == 80.0 else 2.5) * without.pressure
    assert at_rest < calm + 0.002
