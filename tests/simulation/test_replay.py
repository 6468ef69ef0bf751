"""Replay: of hilserver's own logs, bit for bit; and of other people's logs as sensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged_log import rewritten

from hilserver.circuit.change import with_values
from hilserver.errors import ConfigurationError
from hilserver.record.format import Event, RecordError, is_circuit
from hilserver.record.reader import LogReader
from hilserver.record.tables import read_table
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import Replayed, replay_log
from hilserver.simulation.report import replay_sentences
from hilserver.simulation.samples import TickSamples
from hilserver.simulation.third_party_log import replay_samples, rig_with_file, third_party_sentences
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import CommandKind
from hilserver.tick.columns import is_whole
from hilserver.tick.row import command_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REAL_LOGS = ROOT.parent / "shared" / "data" / "actuator_logs"
SWITCHES = (602, 1103, 1304)
STRATEGY_ROW = 501
ROWS = 2304
ORIFICE = {
    "type": "orifice",
    "ports": {"A": "supply", "B": "tank"},
    "nominal_flow": {"flow": "20 l/min", "drop": "140 bar"},
}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(ROOT / "config/rigs/demo.toml")


def record(rig: Rig, log: Path) -> None:
    """A run with everything that may happen: strategies, a jog, switches, missed ticks, a stop and a new start."""
    source: dict[str, Any] = dict(rig.circuit.source)
    weaker = with_values(source, "relief", {"opening_pressure": "100 bar"})
    other = {**source, "components": {**source["components"], "relief": ORIFICE}}
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(497)
        run.select("inverse_static", "main")
        run.run(101)
        run.swap(rig.read_circuit(weaker))
        run.run(300)
        run.miss(3)
        run.run(100)
        run.command(CommandKind.CYCLE, 0.0)
        run.set_input("joystick", 0.4)
        run.run(101)
        run.swap(rig.read_circuit(other))
        run.run(100)
        run.select("flow_servo", "main")
        run.miss(1)
        run.run(101)
        run.swap(rig.circuit)
        run.run(200)
        run.select("manual", "main")
        run.command(CommandKind.JOG, 0.0, 0.05)
        run.run(300)
        run.command(CommandKind.STOP)
        run.command(CommandKind.START)
        run.run(500)
        assert run.mode == "RUNNING"


@pytest.fixture(scope="module")
def log(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "run.arrow"
    record(rig, path)
    return path


def assert_identical(result: Replayed, compared: int) -> None:
    assert result.ok
    assert result.differences == ()
    assert result.compared == compared
    assert not result.torn


# --- own logs ---------------------------------------------------------------------------------------------------------


def test_replay_of_a_recorded_run_is_bit_identical(log: Path) -> None:
    result = replay_log(log)
    assert result.same_program
    assert result.starts == ()
    assert result.switches == 3
    assert_identical(result, ROWS)
    assert "identical, bit for bit" in replay_sentences(result)[-1]


def test_the_recorded_run_is_representative(rig: Rig, log: Path) -> None:
    """The valve moved, strategies and circuits changed, ticks were missed, commands were refused by none."""
    table = LogReader(log).read_all()
    assert [segment.version.start for segment in table.circuits] == [0, *SWITCHES]
    assert len({segment.version.names for segment in table.circuits}) == 2
    assert np.ptp(table.columns["valve.main.command"]) > 0.3
    assert set(table.columns["valve.main.strategy"]) == {
        Strategy.manual,
        Strategy.inverse_static,
        Strategy.feedback,
        Strategy.flow_servo,
    }
    assert table.columns["missed"].sum() == 4.0
    assert set(table.columns["result"]) == {0.0}
    assert len([event for _, event in table.events if event["kind"] == "command"]) == 14


def test_a_log_of_format_1_is_replayed_bit_for_bit(rig: Rig, log: Path, tmp_path: Path) -> None:
    """In it, whole numbers are float64, in columns and in the records of commands."""
    places = [place for place, name in enumerate(rig.layout.names) if is_whole(name)]

    def as_floats(values: np.ndarray[Any, Any], row: int) -> None:
        values[places] = values.view(np.int64)[places]

    def with_floats(row: int, event: Event) -> Event:
        if event["kind"] != "command":
            return event
        record = np.array(event["record"])
        order = command_in(record.copy())
        record[0], record[-1] = order.kind, order.sequence
        return {**event, "record": record}

    header = {"format": 1, "whole": ()}
    old = rewritten(log, tmp_path / "old.arrow", rows=as_floats, header=header, event=with_floats)
    table = LogReader(old).read_all()
    assert table.columns["mode"].dtype == np.float64
    assert set(table.columns["mode"]) == {1.0, 2.0, 3.0}
    assert_identical(replay_log(old), ROWS)


@pytest.mark.parametrize("row", [1, 2, 3, STRATEGY_ROW, 601, *SWITCHES, 603, 900, 1500, ROWS - 2])
def test_replay_may_start_at_any_row(log: Path, row: int) -> None:
    result = replay_log(log, from_row=row)
    assert [start.row for start in result.starts] == [row]
    assert_identical(result, ROWS - row - 1)


def test_replay_from_beyond_the_end_is_refused(log: Path) -> None:
    with pytest.raises(RecordError, match=f"has {ROWS} rows: row {ROWS} is not one of them"):
        replay_log(log, from_row=ROWS)


def test_rotated_parts_replay_as_one_run_and_alone(rig: Rig, tmp_path: Path) -> None:
    recording = rig.settings.recording.model_copy(update={"max_megabytes": 0.5})
    small = replace(rig, settings=rig.settings.model_copy(update={"recording": recording}))
    record(small, tmp_path / "run.arrow")
    parts = sorted(tmp_path.glob("*.arrow"))
    assert len(parts) == 3
    assert_identical(replay_log(tmp_path / "run.arrow"), ROWS)
    later = replay_log(tmp_path / "run.002.arrow")
    assert [start.row for start in later.starts] == [0]
    assert later.starts[0].tick > 0
    assert_identical(later, later.rows - 1)


def test_a_torn_log_is_replayed_up_to_the_damage(log: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.arrow"
    torn.write_bytes(log.read_bytes()[:-5000])
    result = replay_log(torn)
    assert result.torn
    assert result.ok
    assert 1000 < result.compared < ROWS
    assert "damaged: torn.arrow, byte" in "\n".join(replay_sentences(result))


def test_replay_restarts_after_lost_rows(log: Path, tmp_path: Path) -> None:
    """Among the lost rows is one of a switch: the circuit behind the gap is another one."""
    result = replay_log(
        rewritten(
            log,
            tmp_path / "gaps.arrow",
            keep=lambda row: not (300 <= row < 340 or SWITCHES[0] - 5 <= row < SWITCHES[0] + 5),
        )
    )
    assert [(start.row, start.tick) for start in result.starts] == [(300, 340), (SWITCHES[0] - 45, SWITCHES[0] + 5)]
    assert result.switches == len(SWITCHES) - 1
    assert_identical(result, ROWS - 50 - 2)


def test_lost_commands_are_not_replayed(log: Path, tmp_path: Path) -> None:
    def lost(row: int, event: Event) -> Event | None:
        return {"kind": "lost", "command": 5} if row == STRATEGY_ROW and event["kind"] == "command" else event

    result = replay_log(rewritten(log, tmp_path / "lost.arrow", event=lost))
    assert [(start.row, start.reason) for start in result.starts] == [(STRATEGY_ROW, "its command is lost")]
    assert_identical(result, ROWS - 1)


def test_a_tampered_output_is_named_with_its_tick(rig: Rig, log: Path, tmp_path: Path) -> None:
    column = rig.layout.column("valve.main.command")

    def tamper(values: np.ndarray[Any, Any], row: int) -> None:
        values[column] += 0.01 * (row == 800)

    result = replay_log(rewritten(log, tmp_path / "tampered.arrow", rows=tamper))
    assert not result.ok
    (difference,) = result.beyond
    assert (difference.column, difference.first_row, difference.first_tick) == ("valve.main.command", 800, 800)
    assert difference.largest == pytest.approx(0.01)
    assert "1 exceed the tolerance" in replay_sentences(result)[-1]


def test_a_tampered_input_shows_in_all_that_follows_from_it(rig: Rig, log: Path, tmp_path: Path) -> None:
    column = rig.layout.column("raw.p_A")

    def tamper(values: np.ndarray[Any, Any], row: int) -> None:
        values[column] += 0.5 * (row == 800)

    result = replay_log(rewritten(log, tmp_path / "tampered.arrow", rows=tamper))
    found = {difference.column for difference in result.beyond}
    assert {"channel.p_A", "valve.main.command", "circuit.rig.A.p", "circuit.main_valve.q_A"} <= found
    assert min(difference.first_row for difference in result.differences) == 800


def test_a_tampered_circuit_value_and_a_value_that_became_nan_are_found(rig: Rig, log: Path, tmp_path: Path) -> None:
    first, pressure = len(rig.layout.names), rig.packed.names.index("supply.p")

    def tamper(values: np.ndarray[Any, Any], row: int) -> None:
        if row == 50:
            values[first + pressure] = np.nan

    result = replay_log(rewritten(log, tmp_path / "tampered.arrow", rows=tamper), tolerance=1.0)
    assert [(d.column, d.first_row, d.largest) for d in result.beyond] == [("circuit.supply.p", 50, np.inf)]


def test_tolerance_is_by_the_range_of_the_column(rig: Rig, log: Path, tmp_path: Path) -> None:
    column = rig.layout.column("channel.p_B")
    span = float(np.ptp(LogReader(log).read_all().columns["channel.p_B"]))

    def tamper(values: np.ndarray[Any, Any], row: int) -> None:
        values[column] += 1e-4 * span * (row == 100)

    path = rewritten(log, tmp_path / "tampered.arrow", rows=tamper)
    assert not replay_log(path).ok
    assert not replay_log(path, tolerance=0.9e-4).ok
    within = replay_log(path, tolerance=1.1e-4)
    assert within.ok
    assert within.differences[0].relative == pytest.approx(1e-4, rel=1e-3)
    assert "within the tolerance" in replay_sentences(within)[-1]


def test_log_of_another_program_is_packed_anew_and_compared_within_a_tolerance(log: Path, tmp_path: Path) -> None:
    def without_arrays(row: int, event: Event) -> Event:
        """What another version packed is of no use to this one."""
        return {**event, "packed": {"source": event["packed"]["source"]}} if is_circuit(event) else event

    header = LogReader(log).header
    other = {
        "extra": {"program": "another"},
        "packed": {"source": header.packed["source"]},
        "software": "hilserver 0.0",
    }
    result = replay_log(rewritten(log, tmp_path / "other.arrow", header=other, event=without_arrays))
    assert not result.same_program
    assert result.tolerance == 1e-6
    assert (result.switches, result.compared) == (3, ROWS)
    assert result.ok
    assert "another program" in replay_sentences(result)[0]


def test_columns_that_only_the_log_has_are_listed(rig: Rig, log: Path, tmp_path: Path) -> None:
    names = list(rig.layout.names)
    names[rig.layout.column("limit.stroke")] = "limit.of_another_version"
    header = {"columns": tuple(names), "extra": {"program": "another"}}
    result = replay_log(rewritten(log, tmp_path / "other.arrow", header=header))
    assert result.only_in_log == ("limit.of_another_version",)
    assert result.ok
    assert "limit.of_another_version" in "\n".join(replay_sentences(result))


def test_a_log_with_an_invalid_configuration_is_reported(log: Path, tmp_path: Path) -> None:
    configuration = dict(LogReader(log).header.configuration)
    configuration["rig"] = {**configuration["rig"], "loop": {"rate": "1 furlong"}}
    path = rewritten(log, tmp_path / "other.arrow", header={"configuration": configuration})
    with pytest.raises(RecordError, match=r"does not accept its configuration:\n.*loop\.rate"):
        replay_log(path)
    path = rewritten(log, tmp_path / "none.arrow", header={"configuration": {}})
    with pytest.raises(RecordError, match="does not contain the configuration of its rig"):
        replay_log(path)


# --- logs of other people ---------------------------------------------------------------------------------------------


def table_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "record.txt"
    path.write_text("PG_1\tPG_2\tAngle\n" + "\n".join(lines) + "\n")
    return path


def ramp(count: int) -> list[str]:
    """Counts of a machine that is moved from A: some 50 bar at A, falling pressure at B."""
    return [f"{3300 + k % 7}\t{2000 - k}\t{k}" for k in range(count)]


@pytest.fixture
def actuator() -> Path:
    return ROOT / "config/rigs/actuator_log.toml"


def test_slower_samples_are_held_and_grow_old(tmp_path: Path) -> None:
    table = read_table(
        table_file(tmp_path, ["1\t10\t0", "2\t20\t0", "3\t30\t0"]), ["PG_1", "PG_2"], sample_rate_hz=100.0
    )
    samples = TickSamples.on_grid(table, ("PG_2", "PG_1"), 0.004)
    assert samples.values.tolist() == [[10, 1], [10, 1], [10, 1], [20, 2], [20, 2], [30, 3]]
    assert samples.ages == pytest.approx([0.0, 0.004, 0.008, 0.002, 0.006, 0.0], abs=1e-12)
    assert "each sample is held until the next" in samples.described(0.004)
    values, ages = np.zeros(2), np.zeros(2)
    assert [samples.next(values, ages) for _ in range(7)] == [True] * 6 + [False]


def test_of_faster_samples_the_last_one_counts(tmp_path: Path) -> None:
    lines = [f"{k}\t0\t0" for k in range(11)]
    table = read_table(table_file(tmp_path, lines), ["PG_1"], sample_rate_hz=1000.0)
    samples = TickSamples.on_grid(table, ("PG_1",), 0.005)
    assert samples.values.ravel().tolist() == [0, 5, 10]
    assert samples.ages.tolist() == [0.0, 0.0, 0.0]
    assert "the last one is used" in samples.described(0.005)


def test_samples_at_the_rate_of_the_ticks_come_one_by_one(tmp_path: Path) -> None:
    lines = [f"{k}\t0\t0" for k in range(1000)]
    table = read_table(table_file(tmp_path, lines), ["PG_1"], sample_rate_hz=1000.0)
    assert TickSamples.on_grid(table, ("PG_1",), 0.001).values.ravel().tolist() == list(range(1000))


def test_foreign_log_drives_the_circuit_for_its_whole_length(actuator: Path, tmp_path: Path) -> None:
    lines = ramp(300)
    lines[150] = "\t\t"  # a gap in the record: the last sample is held
    rig = rig_with_file(actuator, table_file(tmp_path, lines))
    result = replay_samples(rig, tmp_path / "run.arrow")
    assert (result.ticks, result.mode, result.fault) == (2991, "RUNNING", "")
    assert result.series["channel.p_A"][0] == pytest.approx(3300 / 16383 * 250e5)
    assert result.series["channel.p_B"][-1] == pytest.approx((2000 - 299) / 16383 * 250e5)
    assert result.series["channel.p_B"][1505] == pytest.approx((2000 - 149) / 16383 * 250e5)
    moving = result.series["input.operator"] == 0.5
    assert moving.sum() > 2000
    assert np.all(result.series["valve.main.flow_virtual"][moving] > 10 / 6e4)
    assert np.all(result.series["valve.main.command"][moving] > 0.1)
    table = LogReader(result.log).read_all()
    assert len(table.columns["valve.main.command"]) == 2991
    assert "300 samples, 10 ms apart" in third_party_sentences(result)[0]
    assert_identical(replay_log(result.log), 2991)


def test_virtual_flow_follows_from_the_recorded_pressure(actuator: Path, tmp_path: Path) -> None:
    """The higher the pressure recorded at A, the less the virtual valve passes into it: the orifice law."""
    flows = {}
    for counts in (2000, 6000):
        folder = tmp_path / str(counts)
        folder.mkdir()
        rig = rig_with_file(actuator, table_file(folder, [f"{counts}\t1000\t0"] * 200))
        series = replay_samples(rig, folder / "run.arrow").series
        flows[counts] = series["valve.main.flow_virtual"][-1], series["channel.p_A"][-1]
    (q_low, p_low), (q_high, p_high) = flows[2000], flows[6000]
    C_v, supply = 0.5 * 20e-3 / 60 / 35e5**0.5, 140e5
    assert q_low > 1.2 * q_high > 0.0
    for q, p in ((q_low, p_low), (q_high, p_high)):
        assert q == pytest.approx(C_v * (supply - p) ** 0.5, rel=0.05)


def test_a_missing_recording_is_named_with_its_key(actuator: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replay_samples(rig_with_file(actuator, tmp_path / "none.txt"), tmp_path / "run.arrow")
    assert "devices.log.file" in str(caught.value)
    assert "none.txt" in str(caught.value)
    assert not (tmp_path / "run.arrow").exists()


def test_a_rig_without_a_replay_device_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no device has the driver replay"):
        rig_with_file(ROOT / "config/rigs/demo.toml", None)


@pytest.mark.parametrize("name", ["healthy_a", "healthy_b", "seal_defect"])
def test_real_logs_give_a_command_for_the_whole_record(name: str, actuator: Path, tmp_path: Path) -> None:
    record = REAL_LOGS / f"{name}.txt"
    if not record.is_file():
        pytest.skip(f"the recorded actuator log {name}.txt is not beside the repository (../shared/data/actuator_logs)")
    rig = rig_with_file(actuator, record)
    result = replay_samples(rig, tmp_path / "run.arrow")
    counts = read_table(record, ["PG_1", "PG_2"], sample_rate_hz=100.0).values
    assert (result.ticks, result.mode) == ((len(counts) - 1) * 10 + 1, "RUNNING")
    for port, column in (("channel.p_A", 0), ("channel.p_B", 1)):
        assert result.series[port][::10] == pytest.approx(counts[:, column] / 16383 * 250e5)
    command = result.series["valve.main.command"]
    assert np.isfinite(command).all()
    assert np.abs(command).max() > 0.1
    assert_identical(replay_log(result.log), result.ticks)
