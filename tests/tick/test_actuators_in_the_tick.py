"""Actuators in the tick: a virtual oscillator with a real spring, against the closed form of the whole."""

from __future__ import annotations

from math import pi

import numpy as np
import pytest
from hybrid_rig import (
    DAMPING,
    MASS,
    RATE,
    REAL_DAMPING,
    REAL_MASS,
    REAL_STIFFNESS,
    STIFFNESS,
    column,
    driven,
    hybrid_rig,
    true_position,
    with_strategy,
)

from hilserver.circuit.model import read_circuit
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, ResultCode, Saturation
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS, DisplacementStrategy
from hilserver.tick.row import header

SINE = 6.0
"""Hz, above the natural frequency of 5 Hz."""


def whole(frequency: float) -> complex:
    """Displacement per force, m/N, of the virtual part and the specimen as one oscillator: the closed form."""
    s = 2j * pi * frequency
    mass, damping, stiffness = MASS + REAL_MASS, DAMPING + REAL_DAMPING, STIFFNESS + REAL_STIFFNESS
    return 1.0 / (mass * s * s + damping * s + stiffness)


def amplitude(values: Floats, frequency: float, first_tick: int) -> complex:
    """Complex amplitude of the sine in these values, whose first one is at the end of tick ``first_tick``."""
    t = (first_tick + 1 + np.arange(len(values))) / RATE
    columns = np.column_stack([np.sin(2 * pi * frequency * t), np.cos(2 * pi * frequency * t), np.ones(len(t))])
    sine, cosine, _ = np.linalg.lstsq(columns, values, rcond=None)[0]
    return complex(sine, cosine)


def response(strategy: str) -> complex:
    """Amplitude of the displacement under a force of 1 kN, relative to the closed form, when it is steady."""
    rig = hybrid_rig(with_strategy(strategy))
    with LockstepRun(rig, trace=True) as run:
        run.arm_and_start()
        run.run(600)
        driven(rig, run, SINE, 5.0)
        x = true_position(rig, run)[-1000:]
    held = np.exp(-1j * pi * SINE / RATE)  # the input is held during a tick: half a tick late
    return complex(amplitude(x, SINE, 4000) / (1e3 * whole(SINE) * held))


@pytest.mark.parametrize(("strategy", "tolerance"), [("prediction", 0.01), ("adaptive_lead", 0.03), ("adaptive", 0.03)])
def test_the_specimen_moves_as_if_it_were_bolted_to_the_virtual_part(strategy: str, tolerance: float) -> None:
    """With the compensation of the late force to 1 %; without, half a tick of delay is 2 % of the damping here."""
    assert abs(response(strategy) - 1.0) < tolerance


def started(rig: Rig, settled: int = 700) -> LockstepRun:
    """A run of a rig that has approached the virtual position."""
    run = LockstepRun(rig, trace=True)
    run.arm_and_start()
    run.run(settled)
    return run


# --- start, stop, trip ------------------------------------------------------------------------------------------------


def test_at_the_start_it_moves_smoothly_to_the_virtual_position() -> None:
    """The virtual spring is relaxed at 20 mm. Before, the node comes to rest as if the specimen was there."""
    changes = with_strategy("prediction", max_error="30 mm")
    changes["circuit"] = {"components": {"spring": {"relaxed": "20 mm"}}, "nodes": {"rig.table": {"position": "20 mm"}}}
    rig = hybrid_rig(changes)
    with LockstepRun(rig, trace=True) as run:
        run.run(6000)
        rows = np.concatenate([run.arm_and_start(), run.run(3000)])
        x = true_position(rig, run)
    command, error = column(rig, rows, "command"), column(rig, rows, "error")
    assert np.abs(np.diff(command)).max() < 0.2 / RATE  # 20 mm in 0.5 s: 0.075 m/s at most by the polynomial
    assert np.abs(error).max() < 2e-3
    balance = STIFFNESS * 0.020 / (STIFFNESS + REAL_STIFFNESS)  # of both springs
    assert x[-1] == pytest.approx(balance, abs=1e-5)
    assert not column(rig, rows, "saturation").any()


def test_it_returns_to_the_safe_displacement_at_the_stated_velocity() -> None:
    rig = hybrid_rig(with_strategy("prediction", return_speed="10 mm/s", safe="-5 mm"))
    with started(rig) as run:
        driven(rig, run, 1.0, 0.25, 3.0)
        at = float(column(rig, run.row, "command"))
        run.command(CommandKind.STOP)
        rows = run.run(3000)
    command = column(rig, rows, "command")
    assert at > 3e-3
    assert np.abs(np.diff(command)).max() <= 0.010 / RATE * (1 + 1e-9)
    assert command[-1] == pytest.approx(-0.005)


@pytest.mark.parametrize(("at_trip", "moves"), [("hold", False), ("return", True)])
def test_after_a_trip_it_holds_or_returns_until_it_is_reset(at_trip: str, moves: bool) -> None:
    rig = hybrid_rig(with_strategy("prediction", at_trip=at_trip))
    with started(rig) as run:
        driven(rig, run, 1.0, 0.25, 3.0)
        at = float(column(rig, run.row, "command"))
        run.command(CommandKind.TRIP)
        tripped = column(rig, run.run(3000), "command")
        run.command(CommandKind.RESET)
        run.run(3000)
        after = float(column(rig, run.row, "command"))
    assert (abs(tripped[-1] - at) > 1e-3) == moves
    assert after == pytest.approx(0.0)


def test_an_actuator_that_does_not_follow_causes_a_trip() -> None:
    """The direct command lags: by 25 mm/s times the lag at 3 Hz; the limit names the actuator."""
    rig = hybrid_rig(with_strategy("direct", max_error="0.3 mm"))
    with started(rig) as run:
        driven(rig, run, 3.0, 0.5, 1.0)
        assert (run.mode, run.fault) == ("FAULT", "limit table.following")


# --- limits -----------------------------------------------------------------------------------------------------------


def test_range_and_slew_limit_the_command_and_are_reported() -> None:
    changes = with_strategy(
        "prediction", range=["-3 mm", "3 mm"], slew="40 mm/s", max_error="6 mm", error_action="warn"
    )
    changes["rig"]["devices"] = {"lab": {"actuators": {"command": {"raw": [-500 / 3, 500 / 3]}}}}
    rig = hybrid_rig(changes)
    with started(rig) as run:
        rows = driven(rig, run, 2.0, 2.0, 3.0)
    command, flags = column(rig, rows, "command"), column(rig, rows, "saturation").astype(int)
    assert np.abs(command).max() <= 3e-3
    assert np.abs(np.diff(command)).max() <= 0.040 / RATE * (1 + 1e-9)
    assert np.any(flags & Saturation.RANGE)
    assert np.any(flags & Saturation.SLEW)
    assert run.mode == "RUNNING"


def test_samples_that_are_missing_are_left_out() -> None:
    """Every second reading of the displacement and every third one of the force are no samples: little changes."""
    rig = hybrid_rig(with_strategy("prediction"))
    readings = rig.plan.channel["raw_low"]
    with started(rig) as run:
        rows = []
        for k in range(1000):
            run.set_input("push", float(np.sin(2.0 * pi * 3.0 * k / RATE)))
            readings[:] = np.inf if k % 2 else -np.inf, np.inf if k % 3 else -np.inf
            rows.append(run.run(1))
        readings[:] = -np.inf
    found = np.concatenate(rows)
    missing = np.isnan(column(rig, found, "measured")), np.isnan(column(rig, found, "force_measured"))
    assert [float(np.mean(each)) for each in missing] == pytest.approx([1 / 2, 2 / 3], abs=0.01)
    assert np.abs(column(rig, found, "error")).max() < 0.02 * np.abs(column(rig, found, "position")).max()


def test_missed_ticks_are_made_up_for() -> None:
    """12 ms without a tick, at a velocity of 50 mm/s: the actuator is where the circuit is soon afterwards."""
    rig = hybrid_rig(with_strategy("prediction", max_error="5 mm"))
    with started(rig) as run:
        driven(rig, run, 3.0, 1.05)
        run.miss(12)
        rows = driven(rig, run, 3.0, 0.5)
    error = np.abs(column(rig, rows, "error"))
    assert run.mode == "RUNNING"
    assert error[60:].max() < 0.05 * np.abs(column(rig, rows, "position")).max()


# --- commands ---------------------------------------------------------------------------------------------------------


def test_strategies_are_selected_by_the_number_behind_the_valves() -> None:
    rig = hybrid_rig(with_strategy("direct"))
    with started(rig) as run:
        for name in AVAILABLE_IN_RIGS:
            run.command(CommandKind.STRATEGY, 0.0, DisplacementStrategy[name])
            rows = run.run(50)
            assert header(run.row).result == ResultCode.DONE
            assert int(column(rig, rows, "strategy")[-1]) == DisplacementStrategy[name]
        for actuator, strategy in ((1.0, 0.0), (0.0, DisplacementStrategy.pi_lead), (0.0, 99.0), (-1.0, 0.0)):
            run.command(CommandKind.STRATEGY, actuator, strategy)
            run.run(1)
            assert header(run.row).result == ResultCode.BAD_VALUE
    assert run.mode == "RUNNING"


def test_it_is_moved_by_hand_at_the_jog_speed_while_the_jog_is_renewed() -> None:
    """Half the jog speed of 20 mm/s for the jog time of 0.2 s, renewed once after 0.1 s: 0.3 s, 3 mm."""
    bridge = {"strategy": "manual", "jog_speed": "20 mm/s", "jog_time": "0.2 s"}
    rig = hybrid_rig(with_strategy("manual", bridge=bridge))
    with started(rig) as run:
        for _ in range(2):
            run.command(CommandKind.JOG, 0.0, 0.5)
            rows = run.run(100)
        rows = run.run(2000)
        at = float(column(rig, rows, "command")[-1])
        run.command(CommandKind.JOG, 0.0, -9.0)
        back = column(rig, run.run(51), "command")
        run.run(1000)
        run.command(CommandKind.STRATEGY, 0.0, DisplacementStrategy.prediction)
        followed = run.run(2000)
        run.command(CommandKind.JOG, 0.0, 0.5)
        run.run(1)
        assert header(run.row).result == ResultCode.NOT_MANUAL
    assert at == pytest.approx(3e-3, abs=1e-5)
    assert back[-1] - at == pytest.approx(-51 * 0.020 / RATE, abs=1e-6)  # at most the jog speed
    assert column(rig, rows, "error").any() == 0
    assert np.abs(np.diff(column(rig, followed, "command"))).max() < 0.05 / RATE  # a smooth approach
    assert np.abs(column(rig, followed, "position")[-1]) < 1e-4


def test_without_its_node_in_the_circuit_it_stays_where_it_is() -> None:
    """Switched to a circuit without the node while it moves, and back: it approaches the node again."""
    rig = hybrid_rig(with_strategy("prediction", max_error="10 mm"))
    alone = read_circuit(
        {"components": {"spare": {"type": "gain", "input": "push", "signal": "none", "gain": 1.0}}}, rig.library
    )
    with started(rig) as run:
        driven(rig, run, 2.0, 0.62, 2.0)
        run.swap(alone)
        rows = run.run(1500)
        stays = column(rig, rows, "estimate")
        run.swap(rig.circuit)
        back = run.run(3000)
    assert np.ptp(stays[500:]) < 1e-4
    assert abs(stays[-1]) > 1e-3
    assert np.abs(np.diff(column(rig, back, "command"))).max() < 0.2 / RATE
    assert np.abs(column(rig, back[-500:], "error")).max() < 1e-4
    assert run.mode == "RUNNING"


def test_at_rest_nothing_is_learned_and_the_command_is_quiet() -> None:
    rig = hybrid_rig(with_strategy("prediction"))
    with started(rig) as run:
        rows = run.run(20_000)
    assert np.abs(column(rig, rows, "memory_7")).max() < 0.5  # standard deviations of its uncertainty
    assert np.std(column(rig, rows, "command")) < 2e-6


def test_the_stiffness_of_the_specimen_is_learned_in_motion() -> None:
    """A specimen 8 % stiffer than stated with an uncertainty of 5 %: 1.6 standard deviations."""
    changes = with_strategy("prediction")
    stiffer = {"stiffness": f"{1.08 * REAL_STIFFNESS} N/m"}
    changes["devices"] = {"lab": {"machine": {"components": {"real_spring": stiffer}}}}
    rig = hybrid_rig(changes)
    with started(rig) as run:
        rows = driven(rig, run, 3.0, 4.0)
    assert column(rig, rows, "memory_7")[-1] == pytest.approx(1.6, abs=0.1)


def test_a_circuit_that_names_another_actuator_is_refused() -> None:
    rig = hybrid_rig()
    table = {**rig.circuit.source, "components": dict(rig.circuit.source["components"])}
    table["components"]["mass"] = {**table["components"]["mass"], "ports": {"rod": "rig.tabel"}}
    with pytest.raises(HilserverError, match=r'"rig\.tabel" is not an actuator of the rig.*rig\.table'):
        rig.pack(read_circuit(table, rig.library))
