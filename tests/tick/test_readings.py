"""Implausible readings: out of range, jumping, stuck, against the estimate, a supply that is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rig_bench import BAR, Bench, bench_rig

from hilserver.record.reader import LogReader, LogTable
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode, ResultCode
from hilserver.tick.row import header

ROOT = Path(__file__).parents[2]
WATCHED = (".jumps", ".stuck", ".frozen", ".estimate", ".supply")


def ticks(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.tick()


# --- the range --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "is_sample"),
    [(0.0, True), (109.9, True), (110.1, False), (-2.0, True), (-2.1, False), (-5000.0, False), (1e301, False)],
)
def test_a_pressure_outside_its_scale_or_below_vacuum_is_no_sample(bar: float, is_sample: bool) -> None:
    """0 … 100 bar: 10 % above it, and 1.013 bar below atmosphere with 1 % of the range for the sensor's own error."""
    bench = Bench()
    bench.raw |= {"p_A": 5.0, "p_S": 8.0}
    ticks(bench, 5)
    bench.raw["p_A"] = bar / 10.0
    ticks(bench, 2)
    assert bench["channel.p_A"] == pytest.approx(bar * BAR if is_sample else 50.0 * BAR)
    assert (bench["stale.p_A"] == 0.0) == is_sample


def test_impossible_pressures_trip_as_missing_samples_do() -> None:
    bench = Bench()
    bench.raw |= {"p_A": 5.0, "p_S": 8.0}
    bench.run_to(Mode.RUNNING)
    bench.raw["p_A"] = 1e300
    ticks(bench, 30)
    assert bench.mode == "FAULT"


def test_the_range_can_be_switched_off_by_name() -> None:
    bench = Bench(bench_rig({"channels": {"p_A": {"watch": {"range": False}}}}))
    bench.raw |= {"p_A": 50.0, "p_S": 8.0}
    ticks(bench, 2)
    assert bench["channel.p_A"] == pytest.approx(500.0 * BAR)


# --- jumps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", ["0 s", "20 ms"])
def test_one_impossible_jump_is_reported_and_passes_at_once(lag: str) -> None:
    """0 … 100 bar at 1 kHz: 10 bar always and 50 bar per tick are possible. Before the filter, which would hide it."""
    bench = Bench(bench_rig({"channels": {"p_A": {"filter": lag}}}))
    bench.raw |= {"p_A": 1.0, "p_S": 8.0}
    bench.run_to(Mode.RUNNING)
    ticks(bench, 100)
    bench.raw["p_A"] += 5.9
    ticks(bench, 100)
    assert bench["limit.p_A.jumps"] == 0.0
    bench.raw["p_A"] -= 6.1
    ticks(bench, 1)
    assert bench["limit.p_A.jumps"] == 1.0
    assert lag != "0 s" or bench["channel.p_A"] == pytest.approx(8.0 * BAR), "a limit must see it at once"
    ticks(bench, 500)
    assert bench["limit.p_A.jumps"] == 1.0, "long enough to be seen"
    ticks(bench, 500)
    assert bench["limit.p_A.jumps"] == bench["limit.p_S.jumps"] == 0.0


def test_a_sample_of_a_slow_device_may_differ_by_what_was_possible_meanwhile() -> None:
    """Read every 20 ms: a pressure may change completely, as far as the rig file says."""
    bench = Bench()
    bench.raw |= {"p_A": 1.0, "p_S": 8.0}
    bench.run_to(Mode.RUNNING)
    for k in range(200):
        if k and k % 20 == 0:
            bench.raw["p_A"] = 10.0 - bench.raw["p_A"]
        bench.ages["p_A"] = (k % 20) * 1e-3
        bench.tick()
    assert bench["limit.p_A.jumps"] == 0.0


def test_noise_is_no_jump() -> None:
    """1 % of the range, as much as a bad sensor has: 2·10⁴ differences, of which the largest is expected at 5.6 %."""
    bench, random = Bench(), np.random.default_rng(1)
    bench.raw |= {"p_S": 8.0}
    bench.run_to(Mode.RUNNING)
    jumps = bench.rig.layout.column("limit.p_A.jumps")
    for noise in random.normal(5.0, 0.1, 20_000):
        bench.raw["p_A"] = noise
        bench.tick()
        assert bench.row[jumps] == 0.0


# --- a rig with its machine -------------------------------------------------------------------------------------------

SEQUENCE = """
rig = "{rig}"
length = "{duration} s"

[inputs.joystick]
shape = "step"
points = [["0.03 s", 0], ["0.09 s", {command}], ["{duration} s", {command}]]

[[step]]
at = "0.01 s"
send = "arm"

[[step]]
at = "0.02 s"
send = "start"

[[expect]]
channel = "mode"
value = "RUNNING"
at = "0.1 s"
until = "0.2 s"
"""


def simulated(folder: Path, faults: str = "", command: float = 0.4, duration: float = 1.0, watch: str = "") -> LogTable:
    """The log of a run of the demo's rig with faults; ``watch``: more of its channel x."""
    file, log, place = folder / "sequence.toml", folder / "run.arrow", folder / "rig.toml"
    config = ROOT / "config"
    text = (config / "rigs" / "demo.toml").read_text().replace('"../', f'"{config}/')
    range_of_x = 'value = ["0 mm", "1000 mm"] }'
    assert text.count(f"scale = {{ raw = [0, 10], {range_of_x}") == 1
    place.write_text(
        text.replace(f"scale = {{ raw = [0, 10], {range_of_x}", f"scale = {{ raw = [0, 10], {range_of_x}{watch}")
    )
    file.write_text(SEQUENCE.format(rig=place, command=command, duration=duration) + faults)
    simulate_sequence(load_sequence(file), load_rig(place), log)
    return LogReader(log).read_all()


def violated(table: LogTable) -> set[str]:
    return {
        name.removeprefix("limit.")
        for name, column in table.columns.items()
        if name.startswith("limit.") and name.endswith(WATCHED) and (column > 0).any()
    }


def fault(at: float, kind: str, sensor: str, more: str = "") -> str:
    return f'\n[[fault]]\nat = "{at} s"\nfault = "{kind}"\nsensor = "{sensor}"\n{more}\n'


def test_a_lost_supply_requires_a_restart_by_a_person(tmp_path: Path) -> None:
    """As when a pump stops for 3 s: once, the valve opened again by itself when the pressure came back."""
    table = simulated(tmp_path, fault(0.3, "reads", "p_S", "raw = 0.0") + fault(0.9, "healed", "p_S"), duration=1.5)
    columns, tick = table.columns, table.columns["tick"] - table.columns["tick"][0]
    assert violated(table) == {"p_S.supply"}
    mode, command = columns["mode"], columns["valve.main.command"]
    gone = int(np.flatnonzero(mode == Mode.RUNNING)[-1]) + 1
    assert 0.45 < tick[gone] * 1e-3 < 0.6, "0.2 s after it is missing, and after the filter of the channel"
    assert (mode[gone:] == Mode.ARMED).all(), "it does not start by itself"
    assert np.abs(command[tick > 800]).max() == 0.0
    assert columns["channel.p_S"][-1] > 100 * BAR, "the pressure is back"


def test_without_a_supply_a_rig_does_not_start_and_is_reported_when_armed() -> None:
    bench = Bench()
    bench.raw |= {"p_A": 5.0, "p_S": 0.1}
    bench.run_to(Mode.SAFE)
    ticks(bench, 1000)
    assert bench["limit.p_S.supply"] == 0.0, "in SAFE the pump may be off"
    assert bench.tick(CommandKind.ARM) == ResultCode.DONE
    assert bench.tick(CommandKind.START) == ResultCode.NO_SUPPLY
    ticks(bench, 250)
    assert bench["limit.p_S.supply"] == 1.0
    assert bench.tick(CommandKind.START) == ResultCode.NO_SUPPLY
    assert bench.mode == "ARMED"
    bench.raw["p_S"] = 8.0
    ticks(bench, 1000)
    assert (bench.mode, bench["limit.p_S.supply"]) == ("ARMED", 0.0), "a person must start"
    assert bench.tick(CommandKind.START) == ResultCode.DONE


@pytest.mark.parametrize("action", ["off", "warn", "ramp", "trip"])
def test_what_the_rig_file_says_of_a_supply_holds_at_start_too(action: str) -> None:
    bench = Bench(bench_rig({"channels": {"p_S": {"watch": {"supply": action}}}}))
    bench.raw |= {"p_A": 5.0, "p_S": 0.1}
    bench.run_to(Mode.ARMED)
    ticks(bench, 250)
    assert bench.mode == "ARMED", "nothing is open: no trip"
    refused = action in ("ramp", "trip")
    assert bench.tick(CommandKind.START) == (ResultCode.NO_SUPPLY if refused else ResultCode.DONE)


@pytest.mark.parametrize("comes_after", [4.9, 5.1])
def test_a_supply_that_running_switches_on_may_build_up_for_a_while(comes_after: float) -> None:
    pump = {"pump": {"device": "card", "output": "pump", "raw": [0, 1], "on": "running"}}
    bench = Bench(bench_rig({"outputs": pump, "devices": {"card": {"outputs": ["valve", "pump"]}}}))
    bench.raw |= {"p_A": 5.0, "p_S": 0.1}
    bench.run_to(Mode.RUNNING)
    ticks(bench, round(comes_after * 1000))
    assert bench.mode == "RUNNING"
    ticks(bench, 150)
    bench.raw["p_S"] = 8.0
    ticks(bench, 300)
    assert bench.mode == ("RUNNING" if comes_after < 5.0 else "ARMED")
    if bench.mode == "RUNNING":
        bench.raw["p_S"] = 0.1
        ticks(bench, 250)
        assert bench.mode == "ARMED", "once it has been there, its loss counts at once"


def test_a_supply_may_be_missing_for_a_moment(tmp_path: Path) -> None:
    table = simulated(tmp_path, fault(0.3, "reads", "p_S", "raw = 0.0") + fault(0.45, "healed", "p_S"))
    assert violated(table) == set()
    assert table.columns["mode"][-1] == Mode.RUNNING


@pytest.mark.parametrize("sensor", ["x", "p_A", "p_B", "Q_A"])
def test_a_sensor_that_is_stuck_while_the_machine_moves_trips(tmp_path: Path, sensor: str) -> None:
    table = simulated(tmp_path, fault(0.4, "stuck", sensor), command=0.5, duration=6.0)
    assert f"{sensor}.stuck" in violated(table)
    assert table.columns["mode"][-1] == Mode.FAULT


@pytest.mark.parametrize("sensor", ["p_A", "p_B"])
def test_a_pressure_sensor_without_a_supply_trips_while_the_machine_moves(tmp_path: Path, sensor: str) -> None:
    """It reads 0 V: 0 bar, the end of its range, beyond which a true pressure may lie too."""
    table = simulated(tmp_path, fault(0.4, "reads", sensor, "raw = 0.0"), command=0.5, duration=6.0)
    assert f"{sensor}.stuck" in violated(table)
    assert table.columns["mode"][-1] == Mode.FAULT


def test_a_position_that_is_stuck_is_found_within_a_twentieth_of_the_stroke(tmp_path: Path) -> None:
    """By the volume that the simulated valve has really passed: 5 % of 63 mm bore, 1 m stroke, and 10 % of its flow."""
    table = simulated(tmp_path, fault(0.4, "stuck", "x"), command=0.5, duration=3.0)
    columns = table.columns
    stuck = columns["raw.x"] == columns["raw.x"][-1]
    first, last = int(np.flatnonzero(stuck)[0]), int(np.flatnonzero(columns["mode"] == Mode.RUNNING)[-1])
    passed = columns["channel.Q_A"][first:last].sum() * 1e-3
    assert passed == pytest.approx(0.05 * np.pi / 4 * 0.063**2 * 1.0, rel=0.5)


@pytest.mark.parametrize("samples_come", [True, False])
def test_only_new_samples_show_that_a_sensor_is_stuck(samples_come: bool) -> None:
    """Without any, as of a device that is dead, their age tells, and the limit on it names the cause."""
    bench = Bench(load_rig(ROOT / "config" / "rigs" / "demo.toml"))
    bench.raw |= {"p_A": 2.0, "p_B": 2.0, "p_S": 5.6, "p_T": 0.02, "Q_A": 0.0, "x": 5.0}
    bench.run_to(Mode.RUNNING)
    bench.tick(CommandKind.SET_INPUT, 0, 0.6)
    ticks(bench, 30)
    before = bench["channel_moved.x"]
    for k in range(100):
        if not samples_come:
            bench.ages |= dict.fromkeys(bench.ages, (k + 1) * 1e-3)
        bench.tick()
    assert bench["channel_same.x"] > 10
    assert (bench["channel_moved.x"] > before) == samples_come


def test_a_stuck_sensor_is_found_although_some_of_its_samples_are_missing() -> None:
    """As of a device whose connection is lost now and then: the next one shows the same, and the piston has moved."""
    bench = Bench(load_rig(ROOT / "config" / "rigs" / "demo.toml"))
    bench.raw |= {"p_A": 2.0, "p_B": 2.0, "p_S": 5.6, "p_T": 0.02, "Q_A": 0.0, "x": 5.0}
    bench.run_to(Mode.RUNNING)
    bench.tick(CommandKind.SET_INPUT, 0, 0.6)
    for k in range(2000):
        bench.raw["x"] = np.nan if k % 8 == 0 else 5.0
        bench.tick()
        if bench["limit.x.stuck"]:
            break
    assert bench["limit.x.stuck"] == 1.0
    assert k > 50


def test_a_machine_at_rest_has_constant_readings_and_no_alarm(tmp_path: Path) -> None:
    table = simulated(tmp_path, fault(0.3, "stuck", "x") + fault(0.3, "stuck", "p_A"), command=0.0, duration=5.0)
    assert violated(table) == set()
    assert table.columns["mode"][-1] == Mode.RUNNING


def test_a_measurement_against_the_estimate_is_reported(tmp_path: Path) -> None:
    """The position reads 0.9 m at once, where the model expects less."""
    table = simulated(tmp_path, fault(0.5, "reads", "x", "raw = 9.0"))
    assert "x.estimate" in violated(table)


@pytest.mark.parametrize(("action", "ends"), [("warn", "RUNNING"), ("ramp", "ARMED"), ("trip", "FAULT")])
def test_a_difference_from_the_estimate_has_the_action_of_the_rig_file(tmp_path: Path, action: str, ends: str) -> None:
    watch = f', watch = {{ estimate = "{action}", estimate_limit = "50 mm", stuck = "off" }}'
    table = simulated(tmp_path, fault(0.5, "reads", "x", "raw = 9.0"), watch=watch)
    assert "x.estimate" in violated(table)
    assert Mode(int(table.columns["mode"][-1])).name == ends


@pytest.mark.parametrize(("sensor", "raw"), [("x", 8.0), ("p_A", 9.5), ("Q_A", -10.0)])
def test_a_spike_of_one_tick_is_reported(tmp_path: Path, sensor: str, raw: float) -> None:
    table = simulated(tmp_path, fault(0.5, "reads", sensor, f"raw = {raw}") + fault(0.501, "healed", sensor))
    assert f"{sensor}.jumps" in violated(table)
    assert table.columns["mode"][-1] == Mode.RUNNING


def test_a_piston_can_not_move_faster_than_its_valve_lets_it(tmp_path: Path) -> None:
    """x jumps by 20 % of its stroke, less than the half of its range that a pressure may change in a millisecond."""
    table = simulated(tmp_path, fault(0.5, "reads", "x", "raw = 7.5"))
    assert abs(table.columns["channel.x"] - 0.75).min() < 0.01
    assert np.abs(np.diff(table.columns["channel.x"])).max() < 0.5
    assert "x.jumps" in violated(table)


def run_for(rig: Rig, seconds: float) -> tuple[set[str], str]:
    """Violated watches and the last mode of the rig's work cycle, over and over, at other times in each."""
    watched = {name: rig.layout.column(f"limit.{name}") for name in rig.layout.limits if name.endswith(WATCHED)}
    found: set[str] = set()
    with LockstepRun(rig) as run:
        run.start()
        for _ in range(round(seconds / run.dt / 1000)):
            if header(run.row).cycle_time < 0.0:
                run.command(CommandKind.CYCLE, 1.0)
            rows = run.run(1000)
            found |= {name for name, column in watched.items() if (rows[:, column] > 0).any()}
    assert watched
    return found, run.mode


@pytest.mark.parametrize("name", ["demo", "lift", "boom"])
def test_no_false_alarm_in_minutes_of_each_simulated_rig(name: str) -> None:
    """Longer runs were made once: see decision 0030."""
    rig = load_rig(ROOT / "config" / "rigs" / f"{name}.toml")
    assert run_for(rig, 60.0) == (set(), "RUNNING")
