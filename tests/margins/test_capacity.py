"""Is the real valve large and fast enough, the tick short enough? Against datasheets and formulas."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program
from port_family import Case
from rig_bench import L_MIN, bench_rig, merged
from scipy.integrate import solve_ivp

from hilserver.circuit.analysis import LinearModel
from hilserver.margins.capacity import (
    TO_PORT,
    TO_TANK,
    Capacity,
    CapacityResult,
    capacity_margins,
    warnings,
)
from hilserver.rig.build import load_rig
from hilserver.rig.valves import spool_speed
from hilserver.simulation.machine import input_ends, input_levels, real_pressures

pytestmark = pytest.mark.slow

RIGS = Path(__file__).parents[2] / "config/rigs"
SUPPLY = {"device": None, "source": None, "scale": None, "value": "140 bar"}
INPUT: dict[str, Any] = {"inputs": {"flow": None, "joystick": {}}}
VALVE: dict[str, Any] = {
    "type": "proportional_valve_4_3",
    "ports": {"P": "supply", "T": "tank", "A": "rig.A", "B": "plug"},
    "command": "joystick",
    "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
    "f45": "30 Hz",
}
CIRCUIT: dict[str, Any] = {
    "components": {
        "source": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "140 bar"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
        "plug": {"type": "volume", "ports": {"P": "plug"}, "volume": "0.1 l"},
        "valve": VALVE,
    },
    "solver": {"substeps": 10},
}


def found_of(rig: Mapping[str, Any] | None = None, circuit: Mapping[str, Any] | None = None) -> CapacityResult:
    """Of the bench's rig with a 4/3 valve on a stiff supply of 140 bar, the real one's too."""
    changes = merged({**INPUT, "channels": {"p_S": SUPPLY}}, rig or {})  # None takes a key away, there and in the rig
    return capacity_margins(bench_rig(changes, merged(CIRCUIT, circuit or {})), program())


def capacity(found: CapacityResult, direction: str) -> Capacity:
    (one,) = (each for each in found.capacities if each.direction == direction)
    return one


# --- capacity ---------------------------------------------------------------------------------------------------------


def test_a_valve_alone_has_its_datasheets_coefficient() -> None:
    found = found_of()
    for direction in (TO_PORT, TO_TANK):
        one = capacity(found, direction)
        assert one.needed == pytest.approx(40 * L_MIN / sqrt(35e5), rel=1e-6)
        assert one.real == pytest.approx(60 * L_MIN / sqrt(35e5))
        assert one.same_drop == pytest.approx(1.5, rel=1e-6)
        assert one.margin == pytest.approx(1.5, rel=1e-3)  # the same supply and tank
    assert list(warnings(found_of({"valves": {"main": {"slew": "900 1/s"}}}))) == []


def test_a_throttle_in_series_makes_it_smaller() -> None:
    """1/C² adds up along the way of the oil: the total coefficient of the source's rule."""
    throttle = {
        "type": "orifice",
        "ports": {"A": "middle", "B": "rig.A"},
        "nominal_flow": {"flow": "30 l/min", "drop": "35 bar"},
    }
    valve = {"ports": {"A": "middle"}}
    between = {"type": "volume", "ports": {"P": "middle"}, "volume": "0.05 l"}
    found = found_of(circuit={"components": {"throttle": throttle, "valve": valve, "between": between}})
    expected = 1.0 / sqrt(1.0 / 40.0**2 + 1.0 / 30.0**2) * L_MIN / sqrt(35e5)
    assert capacity(found, TO_PORT).needed == pytest.approx(expected, rel=0.01)  # 1 bar of it laminar


def test_two_valves_at_a_port_add_up() -> None:
    second = merged(VALVE, {"nominal_flow": {"flow": "15 l/min"}})
    assert capacity(found_of(circuit={"components": {"second": second}}), TO_PORT).needed == pytest.approx(
        55 * L_MIN / sqrt(35e5), rel=1e-6
    )


def test_a_pump_limits_the_required_flow() -> None:
    """12 l/min is all there is: at rest no more can be asked for, whatever the valve would pass."""
    pump = {"type": "pressure_compensated_pump", "ports": {"P": "supply", "T": "tank"}, "max_flow": "12 l/min"}
    circuit = {
        "components": {
            "source": {**pump, "set_pressure": "140 bar"},
            "line": {"type": "volume", "ports": {"P": "supply"}, "volume": "0.2 l"},
        },
        "nodes": {"supply": {"pressure": "140 bar"}},
    }
    whole = merged(CIRCUIT, {"components": {"source": None}})
    rig = bench_rig(merged(INPUT, {"channels": {"p_S": SUPPLY}}), merged(whole, circuit))
    one = capacity(capacity_margins(rig, program()), TO_PORT)
    assert one.worst is not None
    assert one.margin > 2.0  # at 133 bar, the highest pressure that is looked at, it passes 27 l/min of the 12
    assert one.needed < 0.5 * 40 * L_MIN / sqrt(35e5)


def test_a_low_real_supply_is_distinguished_from_a_small_valve() -> None:
    """At the same drop it is large enough; with 80 bar behind it, it passes nothing into a port at 105 bar."""
    one = capacity(found_of({"channels": {"p_S": {"value": "80 bar"}}}), TO_PORT)
    assert one.same_drop == pytest.approx(1.5, rel=1e-6)
    assert one.margin == 0.0
    (text,) = (text for text in warnings(found_of({"channels": {"p_S": {"value": "80 bar"}}})) if TO_PORT in text)
    assert "where the real valve passes practically no flow, with its supply of 80 bar." in text


def test_a_valve_that_is_too_small_is_reported_in_both_directions() -> None:
    small = {"nominal_flow": {"flow": "20 l/min"}, "f45": "200 Hz", "slew": "900 1/s"}
    texts = list(warnings(found_of({"valves": {"main": small}, "loop": {"rate": "4 kHz"}})))
    assert len(texts) == 2
    for text, direction in zip(texts, (TO_PORT, TO_TANK), strict=True):
        assert f"valves.main: {direction}, the virtual circuit requests 2 times the flow" in text


def test_a_smaller_edge_to_the_tank_is_reported_separately() -> None:
    smaller = {"flow": "30 l/min", "drop": "35 bar", "per": "edge"}
    found = found_of({"valves": {"main": {"nominal_flow_to_tank": smaller}}})
    assert capacity(found, TO_PORT).margin == pytest.approx(1.5, rel=1e-3)
    assert capacity(found, TO_TANK).margin == pytest.approx(0.75, rel=1e-3)


def test_an_unknown_supply_is_replaced_by_the_highest_pressure_of_the_circuit() -> None:
    rig = bench_rig(INPUT, CIRCUIT)
    found = capacity_margins(rig, program())
    assert found.assumed == ("main",)
    assert capacity(found, TO_PORT).margin == pytest.approx(1.5, rel=0.01)
    assert real_pressures(rig) == {"main": None}


def test_the_lift_rig_is_large_and_fast_enough() -> None:
    found = capacity_margins(load_rig(RIGS / "lift.toml"), program())
    assert found.assumed == ()
    assert list(warnings(found)) == []
    ways = [each for each in found.capacities if each.direction == TO_TANK]
    assert [each.same_drop for each in ways] == pytest.approx([1.5, 1.5], rel=1e-6)
    assert real_pressures(load_rig(RIGS / "lift.toml"))["A"] == pytest.approx((210e5, 0.5e5), rel=1e-3)


# --- speed ------------------------------------------------------------------------------------------------------------


def test_the_fastest_opening_is_that_of_the_virtual_spool_after_a_step() -> None:
    """First order: from null towards 40/60 of the real valve's opening; the steepest tick is the first."""
    (speed,) = found_of().speeds
    tau = 1.0 / (2.0 * pi * 30.0)
    assert speed.requested == pytest.approx(40 / 60 * (1.0 - exp(-1e-3 / tau)) / 1e-3, rel=0.01)
    assert speed.spool == pytest.approx(2.0 * pi * 70.0)
    assert speed.margin == pytest.approx(50.0 / speed.requested)  # the default slew
    (text,) = warnings(found_of())
    assert "the slew limit allows 50" in text


@pytest.mark.parametrize("d", [0.3, 0.7, 1.0, 2.0])
def test_spool_speed_is_that_of_the_step_response(d: float) -> None:
    omega = 2.0 * pi * 80.0
    settings = bench_rig({"valves": {"main": {"f45": None, "f90": "80 Hz", "damping": d}}}).settings.valves["main"]

    def motion(t: float, x: Any) -> list[float]:
        return [x[1], omega * omega * (1.0 - x[0]) - 2.0 * d * omega * x[1]]

    solution = solve_ivp(motion, (0.0, 0.05), [0.0, 0.0], method="DOP853", rtol=1e-10, atol=1e-12, max_step=1e-5)
    assert spool_speed(settings) == pytest.approx(solution.y[1].max(), rel=1e-4)


# --- frequencies ------------------------------------------------------------------------------------------------------


def test_only_modes_with_a_share_in_the_flow_count() -> None:
    """A slow and a fast lag side by side: the fast one counts from 5 % of the output on."""

    def two(share: float) -> set[str]:
        A, B, C = np.diag([-100.0, -1e5]), np.array([[100.0], [1e5]]), np.array([[1.0, share]])
        linear = LinearModel(A, B, C, np.zeros((1, 1)), ("slow", "fast"), np.ones(2))
        return {motion.state for motion in linear.significant(np.ones(1))}

    assert two(0.04) == {"slow"}
    assert two(0.06) == {"slow", "fast"}


def test_a_motion_says_whether_it_oscillates() -> None:
    """A lag, and a spring with a damping ratio of 0.5, side by side."""
    A = np.array([[-100.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -400.0, -20.0]])
    B, C = np.array([[100.0], [0.0], [400.0]]), np.array([[1.0, 1.0, 0.0]])
    linear = LinearModel(A, B, C, np.zeros((1, 1)), ("lag", "spring", "speed"), np.ones(3))
    found = {round(2.0 * pi * motion.frequency): motion.oscillates for motion in linear.significant(np.ones(1))}
    assert found == {100: False, 20: True}


@pytest.mark.parametrize("kind", ["volume, small", "check_valve, small line", "hose"])
def test_a_small_line_needs_no_faster_tick(kind: str) -> None:
    """It settles in a few microseconds, in every tick; the family of ports shows that the machine follows."""
    found = capacity_margins(Case(kind).rig(), program())
    (of_circuit,) = (f for f in found.frequencies if f.what.startswith("the virtual circuit"))
    assert of_circuit.hertz < 110.0  # that of its pump


def test_a_tick_that_is_too_long_is_reported() -> None:
    """30 Hz of the virtual valve, 70 Hz of the real one: 500 ticks per second are enough for 50 Hz."""
    found = found_of({"loop": {"rate": "500 Hz"}})
    by_name = {frequency.what: frequency for frequency in found.frequencies}
    assert by_name["the virtual circuit (valve.U)"].hertz == pytest.approx(30.0, rel=1e-3)
    assert by_name["valve main (-45°)"].ticks == pytest.approx(500 / 70)
    (text,) = (text for text in warnings(found) if "loop.rate" in text)
    assert "valve main (-45°) has 70 Hz, 7.1 ticks per period. The bridge needs 10" in text


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_inputs_are_moved_to_their_ends() -> None:
    rig = bench_rig({"inputs": {"flow": {"range": [0, 1], "initial": 0.0}}})
    assert list(input_ends(rig)) == [{"flow": 0.0}, {"flow": 1.0}]
    assert list(input_levels(rig, (0.5, 1.0))) == [{"flow": 0.0}, {"flow": 0.5}, {"flow": 1.0}]
