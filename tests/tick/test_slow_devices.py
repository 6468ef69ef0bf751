"""A slow device between bridge and machine: how late it makes them, what the bridge makes of it, when it is refused.

Judged by the simulated machine itself, which is read and commanded only every few ticks (`slow_lift`).
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, cast

import numpy as np
import pytest
from component_bench import program
from lift_bench import lift, ratio, sines
from slow_lift import DT, SlowLift, slow_lift

from hilserver.circuit.library import standard_library
from hilserver.margins.margins import RigMargins, margins
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Arm
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.rig.sampling_lag import SamplingLag, SlowDevices
from hilserver.service.executor import Executor
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.cylinder import expected

pytestmark = pytest.mark.slow


def cycle(rig: Rig, phase: int = 0) -> tuple[str, dict[str, Floats]]:
    """The rig's work cycle: the mode at its end, measured pressures, and where the piston really was."""
    run = SlowLift(rig, phase)
    run.start()
    run.step(CommandKind.CYCLE, 1.0)
    rows = run.run(8.0, ("channel.p_A", "channel.p_B"))
    return run.mode, {**rows, "x": np.array(run.positions[-len(rows["channel.p_A"]) :])}


@pytest.fixture(scope="module")
def undelayed() -> dict[str, Floats]:
    """What the machine does behind a device that keeps up with the loop."""
    mode, rows = cycle(slow_lift(1000, "feedback"))
    assert mode == Mode.RUNNING.name
    return rows


def off(rows: dict[str, Floats], right: dict[str, Floats], name: str) -> float:
    """Normalised root-mean-square difference."""
    return float(np.sqrt(np.mean((rows[name] - right[name]) ** 2)) / np.ptp(right[name]))


def found(rig: Rig) -> RigMargins:
    return margins(rig, program())


@functools.cache
def behind(rate: float) -> tuple[Rig, RigMargins]:
    """The rig with feedback behind a device of this rate, and its margins, which are those of every strategy."""
    rig = slow_lift(rate, "feedback")
    return rig, found(rig)


def test_a_value_is_held_for_a_period_instead_of_a_tick() -> None:
    held = SlowDevices({"plc": 200.0}, 1000.0).lag("plc")
    assert (held.mean, held.largest) == pytest.approx((2e-3, 4e-3))
    assert SlowDevices({"plc": 5000.0}, 1000.0).lag("plc") == SamplingLag()  # the loop takes the latest
    assert SlowDevices({"plc": 200.0}, 1000.0).lag("card") == SlowDevices({}, 1000.0).lag(None) == SamplingLag()


def test_command_delay_is_that_of_the_margins() -> None:
    """Phase of the piston's speed behind the virtual flow, at 2 Hz, by the period of the device: half of it."""
    f, delays = 2.0, {}
    wave, ((first, last),) = sines((f,), amplitude=0.1)
    for rate in (1000, 50):
        run = SlowLift(slow_lift(rate, "inverse_static", wave))
        run.start()
        run.step(CommandKind.CYCLE, 1.0)
        rows = run.run((last + 10) * DT, ("valve.A.flow_virtual",))
        speed = np.gradient(np.array(run.positions), DT)[-len(rows["valve.A.flow_virtual"]) :]
        delays[rate] = -np.angle(ratio(speed[first:last], rows["valve.A.flow_virtual"][first:last], f)) / (
            2 * np.pi * f
        )
    assert delays[50] - delays[1000] == pytest.approx(SlowDevices({"rig": 50.0}, 1000.0).lag("rig").mean, abs=1.5e-3)


@pytest.mark.parametrize(("rate", "phase", "x", "p"), [(200, 0, 1e-4, 0.01), (100, 4, 1e-4, 0.02), (50, 7, 1e-3, 0.06)])
def test_prediction_compensates_known_delays(
    undelayed: dict[str, Floats], rate: float, phase: int, x: float, p: float
) -> None:
    """Where the ages of samples and the lag of commands are not known, the rig trips at 50 Hz.

    The measured pressures differ by their own lag too.
    """
    rig, of_rig = behind(rate)
    mode, rows = cycle(rig, phase)
    assert mode == Mode.RUNNING.name
    assert off(rows, undelayed, "x") < x
    assert max(off(rows, undelayed, "channel.p_A"), off(rows, undelayed, "channel.p_B")) < p
    assert not list(of_rig.refusals(rig, ["feedback"]))


def test_an_oscillating_strategy_is_refused(undelayed: dict[str, Floats]) -> None:
    rig, of_rig = behind(20)
    (text,) = of_rig.refusals(rig, ["feedback"])
    assert text.startswith("rig (20 Hz) is too slow for this circuit: with strategy feedback the delay")
    assert "Required: at least" in text
    _, rows = cycle(rig)
    assert max(off(rows, undelayed, "channel.p_A"), off(rows, undelayed, "channel.p_B")) > 0.1  # as on the rig


def test_only_devices_between_pressure_and_valve_count() -> None:
    """A slow device for something else is neither blamed nor asked to be faster, whatever the strategy."""
    rig = slow_lift(1000, "feedback")
    other = {"driver": "modbus", "tcp": {"host": "127.0.0.2"}, "rate": "2 Hz"}
    other["inputs"] = {"oil": {"table": "input", "address": 0, "type": "int16"}}
    table = {**rig.sources["rig"], "devices": {**rig.sources["rig"]["devices"], "tank": other}}
    scale = {"raw": [0, 100], "value": [0, 100]}
    table["channels"] = {**table["channels"], "oil": {"device": "tank", "source": "oil", "scale": scale}}
    both_devices = assemble({**rig.sources, "rig": table}, rig.file, standard_library())
    assert both_devices.slow_devices.rates == {"rig": 1000.0, "tank": 2.0}
    assert not list(found(both_devices).refusals(both_devices, ["inverse_static", "feedback"]))


def test_the_stated_remedy_is_effective() -> None:
    rig, of_rig = behind(20)
    (text,) = of_rig.refusals(rig, ["feedback"])
    rate = float(text.split("at least ")[1].split(" Hz")[0])
    rig = slow_lift(1.05 * rate, "feedback")
    assert not list(found(rig).refusals(rig, ["feedback"]))
    rig = slow_lift(0.95 * rate, "feedback")
    assert list(found(rig).refusals(rig, ["feedback"]))


def test_margins_shrink_with_the_rate() -> None:
    for strategy in ("inverse_static", "feedback"):
        at = [behind(rate)[1].delay.of(strategy) for rate in (1000, 200, 50, 20)]
        shrinking = [m.margin for m in at if m is not None]
        assert shrinking == sorted(shrinking, reverse=True)
        assert len(set(shrinking)) == 4
    fast = lift()
    assert not list(found(fast).refusals(fast, ["inverse_static", "feedback"]))


def test_arming_is_refused_with_the_reason() -> None:
    """Nothing is posted to the loop, so that no memory is needed."""
    rig, nothing = slow_lift(20, "feedback"), cast(Any, None)
    executor = Executor(rig, nothing, nothing, program())

    async def refusals(arm: Arm) -> tuple[str, ...]:
        return tuple(found(rig).refusals(rig, ["feedback"]))

    executor.arming_refusals = refusals
    answer = asyncio.run(executor.execute(Arm()))
    assert not answer.ok
    assert "too slow for this circuit" in answer.problems[0]


def test_a_sample_older_than_the_stored_past_is_ignored() -> None:
    past: Any = np.arange(12.0).reshape(3, 4)
    assert expected(past, 1, 2.5) == 6.5
    assert expected(past, 1, 3.0) == 7.0
    assert np.isnan(expected(past, 1, 3.01))
    assert np.isnan(expected(past, 1, np.inf))


def test_a_lost_sensor_does_not_freeze_the_estimate() -> None:
    """Its last value is not taken for a new one: the estimate goes on with the other sensors and the model."""
    run = SlowLift(slow_lift(1000, "feedback"))
    run.start()
    run.step(CommandKind.CYCLE, 1.0)
    run.run(2.4, ())
    begin, errors = run.positions[-1], []
    for _ in range(50):
        run.step(lost={"x": np.nan})
        errors.append(abs(run["cylinder.lift.x"] - run.positions[-2]))
    assert abs(run.positions[-1] - begin) > 5e-3
    assert max(errors) < 5e-4
