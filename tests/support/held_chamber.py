"""A chamber that the virtual circuit holds: a source behind a wide orifice at port B, oil trapped behind a check valve
at port A. The mass swings on the trapped oil, and the source passes whatever keeps the pressure in B.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from port_family import Case
from port_parts import LINE, A, B, part, signals, supply, two_way
from port_sizes import LOAD, SIZES
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig

HELD = 50.0
"""bar in chamber B."""
CASE = Case("check_valve", "middle", "light")


def held_rig(valve: dict[str, Any], delay: float) -> Rig:
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
