"""Wrong parameters: no strategy makes a stable rig unstable while they are within 10 %; with 30 % limits still hold.

The lift rig, with overlap, leakage, noise and a flow sensor at each port. What the bridge knows of it is off in all
corners: flow coefficient, how late sensors and valve are (frequency and delay together), and the machine (chambers,
oil and mass together, which make it soft or stiff).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, hard, lift, of_valves
from numpy.typing import NDArray

from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import Mode, Saturation
from hilserver.tick.row import header, headers

pytestmark = pytest.mark.slow

STRATEGIES = STRATEGY_NAMES[1:]
CORNERS = tuple(product((-1, 1), repeat=3))
POINTS = [[0.0, 0], [0.1, 0], [0.15, 0.5], [0.6, 0.5], [0.65, -0.4], [1.2, -0.4], [1.25, 0.05], [1.6, 0.05], [1.65, 0],
          [2.1, 0]]  # fmt: skip
CYCLE = {"cycle": {"inputs": {"joystick": {"shape": "step", "points": [[f"{t} s", u] for t, u in POINTS]}}}}
HOLDS = ((0.45, 0.6), (1.05, 1.2), (1.45, 1.6), (1.9, 2.1))
"""s, the ends of the times in which the joystick is held; the last at rest."""
RANGE, SLEW = 0.8, 200.0
FLOW_SCALE = {"raw": [-10, 10], "value": ["-100 l/min", "100 l/min"]}


def flow_sensors() -> dict[str, Any]:
    sensors = {f"Q_{v}": {"of": f"valve_{v}.q_A", **FLOW_SCALE} for v in "AB"}
    channels = {f"Q_{v}": {"device": "rig", "source": f"Q_{v}", "scale": FLOW_SCALE} for v in "AB"}
    valves = {v: {"flow": f"Q_{v}"} for v in "AB"}
    return {"rig": {"devices": {"rig": {"sensors": sensors}}, "channels": channels, "valves": valves}}


def known(flow: float, late: float, soft: float) -> dict[str, Any]:
    """What the bridge believes, as shares of what is true."""
    channels = {name: {"delay": f"{late} ms"} for name in ("p_A", "p_B", "p_S", "p_T", "x")}
    dead = f"{0.4 * soft} l"
    cylinder = {"mass": f"{400 * soft} kg", "bulk_modulus": f"{1.5e9 / soft} Pa"}
    cylinder |= {"dead_volume_A": dead, "dead_volume_B": dead}
    valves = of_valves(
        nominal_flow={"flow": f"{60 * flow} l/min", "drop": "35 bar", "per": "edge"},
        f90=f"{80 / late} Hz",
        delay=f"{late} ms",
        range=[-RANGE, RANGE],
        slew=f"{SLEW} 1/s",
    )
    return both({"rig": {"channels": channels, "cylinders": {"lift": cylinder}}}, valves)


def rig_with(strategy: str, off: float, corner: tuple[int, ...]) -> Rig:
    shares = [1.0 + off * sign for sign in corner]
    return lift(both(hard(1.0, 80.0), flow_sensors(), CYCLE, known(*shares), of_valves(bridge={"strategy": strategy})))


def run(rig: Rig) -> tuple[Floats, str]:
    with LockstepRun(rig, program=program()) as lockstep:
        rows = lockstep.run_cycle()
        return rows, lockstep.mode


def column(rig: Rig, rows: Floats, valve: str, word: str) -> NDArray[Any]:
    return rig.layout.values(rows, f"valve.{valve}.{word}")


def oscillation_at_hold(rig: Rig, rows: Floats) -> float:
    """The largest amplitude of a demand around a smooth course while the joystick is held."""
    largest, t = 0.0, headers(rows)["time"] - header(rows[0]).time
    for begin, end in HOLDS:
        part = (t >= begin) & (t < end)
        for valve in "AB":
            y = column(rig, rows, valve, "demand")[part]
            smooth = np.polyval(np.polyfit(t[part], y, 2), t[part])
            largest = max(largest, float(np.sqrt(2.0) * np.std(y - smooth)))
    return largest


def turns(y: Floats, size: float) -> int:
    """How often a course turns around after a way of ``size``."""
    count, direction, extreme = 0, 0, y[0]
    for value in y:
        if (value - extreme) * direction >= 0.0 and direction:
            extreme = value
        elif abs(value - extreme) > size:
            count, direction, extreme = count + 1, 1 if value > extreme else -1, value
    return count


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_oscillates_with_parameters_within_10_percent(strategy: str) -> None:
    """Over the work cycle and at rest, in all corners: no more than noise and creeping of 1 % while nothing moves."""
    for corner in CORNERS:
        rig = rig_with(strategy, 0.1, corner)
        rows, mode = run(rig)
        assert mode == "RUNNING", corner
        assert oscillation_at_hold(rig, rows) < 0.01, corner
        for valve in "AB":
            assert not (column(rig, rows, valve, "saturation") & Saturation.OSCILLATION).any(), corner


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_limits_hold_and_oscillation_is_reported_with_parameters_30_percent_off(strategy: str) -> None:
    """Range and slew of every command; the rig's limits trip at once; what turns on and on is told."""
    for corner in CORNERS:
        rig = rig_with(strategy, 0.3, corner)
        rows, mode = run(rig)
        beyond = (rows[:, rig.layout.column("limit.p_A_high")] + rows[:, rig.layout.column("limit.p_B_high")]) > 0.0
        assert np.all(headers(rows)["mode"][beyond] == Mode.FAULT), corner
        assert mode == ("FAULT" if beyond.any() else "RUNNING"), corner
        for valve in "AB":
            command = column(rig, rows, valve, "command")
            assert np.abs(command).max() <= RANGE, corner
            assert np.abs(np.diff(command)).max() <= SLEW * 1e-3 + 1e-12, corner
            told = column(rig, rows, valve, "saturation") & Saturation.OSCILLATION > 0
            t = headers(rows)["time"] - header(rows[0]).time
            for begin, end in ((0.2, 0.6), (0.7, 1.2), (1.3, 1.6), (1.7, 2.1)):
                held = (t >= begin) & (t < end) & (headers(rows)["mode"] == Mode.RUNNING)
                if held.any() and turns(column(rig, rows, valve, "demand")[held], 0.1) > 16:
                    assert told[held].any(), (corner, valve, begin)
