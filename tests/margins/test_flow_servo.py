"""Margins of a rig's flow servo: its flow gain against the characteristic of the bridge, and its note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program
from hypothesis import given, settings
from hypothesis import strategies as st
from rig_bench import BAR, CIRCUIT, RIG, bench_rig

from hilserver.circuit.library import standard_library
from hilserver.margins import flow_servo
from hilserver.margins.flow_servo import controller, flow_plant, largest_slope, servo_margins
from hilserver.margins.margins import margins
from hilserver.margins.servo_loop import ServoLoop
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState
from hilserver.tick.valve import valve_flow

EDGE = {"drop": "35 bar", "per": "edge"}
KNOWN_SUPPLY = {"p_S": {"value": "140 bar", "device": None, "source": None, "scale": None}}


def rig_of(bridge: dict[str, Any] | None = None, **valve: Any) -> Rig:
    """The bench rig with a fixed, and so known, supply of 140 bar."""
    changes = {"f45": None, "f90": "80 Hz", "damping": 0.8, "bridge": bridge or {}, **valve}
    return bench_rig({"channels": KNOWN_SUPPLY, "valves": {"main": changes}})


# --- flow gain --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(
    overlap=st.floats(0.0, 0.3),
    to_tank=st.floats(20.0, 120.0),
    leak=st.floats(0.0, 20.0),
    gone_at=st.floats(0.05, 1.0),
)
def test_no_slope_of_the_characteristic_exceeds_the_largest(
    overlap: float, to_tank: float, leak: float, gone_at: float
) -> None:
    """Slopes of the bridge's own characteristic over the spool's position and the port's pressure, 0 ... 140 bar."""
    rig = rig_of(
        overlap=overlap,
        nominal_flow_to_tank={"flow": f"{to_tank} l/min", **EDGE},
        leakage={"flow": f"{leak} l/min", **EDGE, "gone_at": gone_at},
    )
    line, bound = rig.plan.valve[0], largest_slope(rig.settings.valves["main"])
    slopes = slopes_of(line)
    assert slopes.max() <= bound * np.sqrt(140 * BAR) * 1.001
    assert slopes.max() >= 0.7 * bound * np.sqrt(140 * BAR)


def slopes_of(line: Any) -> Floats:
    block = blank(ValveState)
    block.gain_PA = block.gain_AT = 1.0

    def flow(U: float, p: float) -> float:
        return float(valve_flow(U, p, 140 * BAR, 0.0, block, line))

    spools = np.linspace(-0.999, 0.998, 100)
    pressures = np.linspace(0.0, 140 * BAR, 9)
    return np.array([[(flow(U + 1e-3, p) - flow(U, p)) / 1e-3 for U in spools] for p in pressures])


def test_the_flow_gain_of_a_simple_valve() -> None:
    """60 l/min at 35 bar are 120 l/min at 140 bar: twice the nominal flow per full command."""
    rig = rig_of()
    v = rig.settings.valves["main"]
    assert flow_plant(rig, v, 140 * BAR).gain == pytest.approx(2.0)
    assert flow_plant(rig, v, 35 * BAR).gain == pytest.approx(1.0)


# --- from the rig file ------------------------------------------------------------------------------------------------


def test_all_dead_times_count() -> None:
    rig = bench_rig({"channels": {"Q_A": {"delay": "2 ms", "filter": "3 ms"}}, "valves": {"main": {"delay": "1 ms"}}})
    plant = flow_plant(rig, rig.settings.valves["main"], 35 * BAR)
    assert (plant.dead_time, plant.filter, plant.dt) == pytest.approx((3e-3, 3e-3, 1e-3))


def test_slow_devices_add_a_period_each_way() -> None:
    """A sample is up to a period old when the next one comes, and a command holds as long; with the loop a tick."""
    places = {name: {"table": "input", "address": number, "type": "uint16"} for number, name in enumerate("ASQ")}
    valve = {"valve": {"table": "holding", "address": 40, "type": "uint16", "safe": 300}}
    host = {"host": "127.0.0.1", "port": 502}
    device = {"driver": "modbus", "tcp": host, "rate": "100 Hz", "inputs": places, "outputs": valve}
    table = {**RIG, "devices": {"card": device}, "valves": {"main": {**RIG["valves"]["main"], "raw": [100, 500]}}}
    rig = assemble({"rig": table, "circuit": CIRCUIT}, Path("bench.toml"), standard_library())
    assert flow_plant(rig, rig.settings.valves["main"], 35 * BAR).dead_time == pytest.approx(18e-3)


def test_an_unknown_supply_is_assumed() -> None:
    """That of the capacity margins; the note says so."""
    rig = bench_rig({"valves": {"main": {"bridge": {"gain": 4.0}}}})
    (servo,) = servo_margins(rig, {"main": 70 * BAR})
    assert (servo.drop, servo.assumed) == (70 * BAR, True)
    (note,) = flow_servo.warnings((servo,))
    assert "with an assumed 70 bar across one edge" in note


def test_a_supply_that_is_off_gives_no_verdict() -> None:
    rig = bench_rig({"channels": KNOWN_SUPPLY | {"p_T": {"value": "140 bar"}}})
    assert servo_margins(rig, {}) == ()


def test_a_valve_without_flow_sensor_has_no_flow_servo() -> None:
    assert servo_margins(rig_of(flow=None), {}) == ()


# --- the note ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "state"), [(4.0, "unstable"), (0.8, "close to instability"), (0.25, None)])
def test_insufficient_margins_are_a_note_with_a_remedy(gain: float, state: str | None) -> None:
    """The figures of the note are those of the loop, and the remedy in it leaves the required margins."""
    (servo,) = servo_margins(rig_of({"gain": gain, "integral_time": "4 ms"}), {})
    notes = list(flow_servo.warnings((servo,)))
    if state is None:
        assert notes == []
        return
    (note,) = notes
    assert note.startswith(f"valves.main.bridge: the flow servo is {state}: with 140 bar across one edge")
    assert f"gain margin is {servo.margins.gain:.2g}" in note
    remedy = dict(part.split(" = ") for part in note.split("set ")[1].split(";")[0].split(", "))
    better = rig_of({key: value.strip('"') for key, value in remedy.items()})
    assert ServoLoop(servo.loop.plant, controller(better.settings.valves["main"].bridge)).margins().gain > 2.6
    assert list(flow_servo.warnings(servo_margins(better, {}))) == []


def test_warnings_concern_the_flow_servo_only() -> None:
    found = margins(rig_of({"gain": 2.0}), program())
    assert not any("flow servo" in warning for warning in found.warnings({"feedback"}))
    assert any("flow servo" in warning for warning in found.warnings({"flow_servo"}))
