"""Hazards during a run of wild rigs: a supply that fails, a sensor that drifts, one valve for both ports, slow I/O.

The wild rigs are those of ``hilserver fidelity --vary``: all unknowns at once, by seed. Whatever happens, commands stay
within range and slew, no oscillation remains unreported, and nothing is learned that is not true of the valve.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, lift, of_valves
from slow_lift import SlowLift, slow_lift

from hilserver.fidelity.unknowns import applicable, varied
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.learning import GAIN_RANGE, NULL_RANGE, OVERLAP_RANGE
from hilserver.tick.codes import CommandKind, Learning, Mode, Saturation
from hilserver.tick.plant_records import sensors_on
from hilserver.tick.row import headers

pytestmark = pytest.mark.slow

SEEDS = (301, 302)
BOTH = ("feedback", "adaptive")
LEARNED = ("gain_PA", "gain_AT", "delay", "null", "overlap")
SLEW = 400.0  # 1/s
HELD = ((1.0, 2.5), (4.0, 5.5), (6.0, 6.5))
"""s of the work cycle in which the joystick is held."""
TURNS = 5.0
"""Turns of a demand per second, by a tenth of full command, from which it is an oscillation: 10 half-waves in 2 s."""


def failure(seconds: float) -> dict[str, Any]:
    """The supply falls to 1 bar at 1.5 s, while the load is lifted, and returns after this time."""
    back = 1.55 + seconds
    level = [[0.0, 1.0], [1.5, 1.0], [1.55, 0.005], [back, 0.005], [back + 0.05, 1.0]]
    points = [[f"{t:g} s", share] for t, share in level]
    components = {
        "level": {"type": "table_signal", "signal": "level", "points": points},
        "supply": {"command": "level"},
    }
    return {"devices": {"rig": {"drive": {"components": components}}}}


ONE_VALVE: dict[str, Any] = {
    "devices": {"rig": {"drive": {"components": {"valve_A": {"ports": {"B": "B"}}, "valve_B": None, "plug_A": None,
                                                 "plug_B": None}}}},
    "rig": {
        "valves": {"A": {"other_port": "B"}, "B": None},
        "devices": {"rig": {"actuators": {"valve_B": None}}},
    },
}  # fmt: skip


def wild(seed: int, changes: dict[str, Any]) -> Rig:
    """The lift rig with changes, and everything that the bridge does not know."""
    rig = lift(changes)
    return assemble(varied(rig, "rig", applicable(rig, "rig"), seed), rig.file, rig.library)


def whole_cycle(rig: Rig, between: Callable[[LockstepRun], None] = lambda run: None) -> tuple[Floats, str]:
    """Rows of the work cycle, and the mode at its end; ``between`` is called every 0.1 s."""
    with LockstepRun(rig, program=program()) as run:
        rows = [run.start()]
        for _ in range(run.ticks_per_cycle // 100):
            between(run)
            rows.append(run.run(100))
        return np.concatenate(rows), run.mode


def turns(y: Floats, size: float) -> int:
    """How often a course turns after a way of ``size``."""
    count, rises, extreme = 0, True, -inf
    for value in y:
        if (value > extreme) if rises else (value < extreme):
            extreme = value
        elif abs(value - extreme) > size:
            count, rises, extreme = count + 1, not rises, value
    return count


def require_sound(rig: Rig, rows: Floats) -> None:
    """Range and slew of all commands; oscillations are reported; what was learned is within its bounds.

    Around ticks in which the flow is not achievable, which is reported as well, a command may turn as often as it does.
    """
    t, running = rig.layout.values(rows, "cycle_time"), headers(rows)["mode"] == Mode.RUNNING
    for valve in rig.layout.valves:
        of = {w: rig.layout.values(rows, f"valve.{valve}.{w}") for w in (*LEARNED, "command", "demand", "saturation")}
        assert np.abs(of["command"]).max() <= 1.0
        assert np.abs(np.diff(of["command"])).max() <= SLEW * 1e-3 + 1e-12
        missing = (of["saturation"].astype(np.int64) & (Saturation.NO_DROP | Saturation.CAPACITY)) > 0
        achievable = np.convolve(missing, np.ones(50), "same") < 0.5
        for begin, end in HELD:
            held = (t >= begin) & (t < end) & running & achievable
            told = (of["saturation"][held].astype(np.int64) & Saturation.OSCILLATION).any()
            assert told or turns(of["demand"][held], 0.1) < TURNS * (end - begin), (valve, begin)
        assert np.abs(of["null"]).max() <= NULL_RANGE
        assert -1e-12 <= of["overlap"].min() <= of["overlap"].max() <= OVERLAP_RANGE
        assert max(np.abs(of[word] - 1.0).max() for word in ("gain_PA", "gain_AT")) <= GAIN_RANGE + 1e-12


def last_learned(rig: Rig, rows: Floats) -> Floats:
    """float64[valves, LEARNED] at the end."""
    return np.array([[rig.layout.values(rows, f"valve.{v}.{w}")[-1] for w in LEARNED] for v in rig.layout.valves])


ALIKE = np.array([0.05, 0.05, 1.5e-3, 0.01, 0.01])
"""By how much a hazard may change what is learned in the same cycle: gains, delay (s), null, overlap."""


@pytest.mark.parametrize("seconds", [0.1, 0.8])
def test_a_supply_that_fails_while_the_load_is_lifted(seconds: float) -> None:
    """It is reported, and nothing is learned of it. After 0.2 s the rig stops; after less, the load goes on.

    The rod then swings on the elastic frame: up to half faster than before.
    """
    rig = wild(SEEDS[0], both(failure(seconds), of_valves(bridge={"strategy": "adaptive"})))
    rows, mode = whole_cycle(rig)
    assert mode == ("RUNNING" if seconds < 0.2 else "ARMED")
    require_sound(rig, rows)
    t, flags = (rig.layout.values(rows, word) for word in ("cycle_time", "valve.A.saturation"))
    away = (headers(rows)["mode"] == Mode.RUNNING) & (t > 1.53) & (t < 1.55 + seconds)
    missing = (flags.astype(np.int64) & (Saturation.NO_DROP | Saturation.CAPACITY)) > 0
    assert np.mean(missing[away]) > 0.9
    later = np.append(False, (away & missing)[:-1])  # the bridge learns before it sees this tick's flow
    assert not (rig.layout.values(rows, "valve.A.learning")[later & missing] == Learning.TRACKED).any()
    before, after = (last_learned(rig, rows[(t >= 0.0) & (t < end)][-1:]) for end in (1.5, 1.9))
    assert np.all(np.abs(after - before) < ALIKE)
    x = rig.layout.values(rows, "channel.x")
    speed = np.abs(np.gradient(np.convolve(x, np.full(50, 0.02), "same"), 1e-3))
    assert speed[(t > 1.6 + seconds) & (t < 2.4)].max(initial=0.0) < 1.6 * speed[(t > 1.0) & (t < 1.4)].max()


@pytest.mark.parametrize(("name", "per_second"), [("p_A", 0.008), ("x", 0.002)])
def test_a_sensor_that_drifts_slowly(name: str, per_second: float) -> None:
    """By 6 % of its range in a cycle, pressures by 16 bar (x: 1.6 %): half as much again may change."""
    end = {}
    for drifts in (False, True):
        rig = wild(SEEDS[0], of_valves(bridge={"strategy": "adaptive"}))
        place = list(rig.devices[0].inputs).index(name)

        def drift(run: LockstepRun, step: float = 10.0 * 0.1 * per_second * drifts, place: int = place) -> None:
            sensors_on(run.plants["rig"].sensor)[place].raw_zero += step

        rows, mode = whole_cycle(rig, drift)
        assert mode == "RUNNING"
        require_sound(rig, rows)
        end[drifts] = last_learned(rig, rows)
    assert np.all(np.abs(end[True] - end[False]) < 1.5 * ALIKE)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("strategy", BOTH)
def test_one_servo_valve_for_both_ports(seed: int, strategy: str) -> None:
    rig = wild(seed, both(ONE_VALVE, {"rig": {"valves": {"A": {"bridge": {"strategy": strategy}}}}}))
    rows, mode = whole_cycle(rig)
    assert mode == "RUNNING"
    require_sound(rig, rows)


@pytest.mark.parametrize(("seed", "rate"), [(SEEDS[0], 200), (SEEDS[1], 50)])
def test_slow_input_and_output(seed: int, rate: int) -> None:
    """Behind a device of 200 Hz, and of 50 Hz; the first part of the cycle."""
    rig = slow_lift(rate, "adaptive")
    run = SlowLift(rig, machine=wild(seed, {}))
    run.start()
    run.step(CommandKind.CYCLE, 1.0)
    rows = np.empty((3500, rig.layout.width))
    for row in rows:
        run.step()
        row[:] = run.row[: rig.layout.width]
    assert run.mode == "RUNNING"
    require_sound(rig, rows)
