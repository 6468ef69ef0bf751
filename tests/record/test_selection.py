"""Logs from which signals are left out: replayed bit for bit, also after lost rows; what is missing is named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from pages import only
from service_harness import rig_text

from hilserver.circuit.change import with_values
from hilserver.commissioning.replication import last_period
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.from_log import fidelity_of_log
from hilserver.numerics.arrays import Floats
from hilserver.record.cuts import CutTrigger, TriggeredCuts
from hilserver.record.export import export
from hilserver.record.forecast import log_rate
from hilserver.record.format import SNAPSHOT, Event, LogHeader, RecordError
from hilserver.record.reader import Batch, LogReader, LogTable
from hilserver.record.repair import check_log, repair_log
from hilserver.record.run import run_header
from hilserver.record.selection import ALWAYS, SNAPSHOT_EVERY, ChosenColumns, is_recorded
from hilserver.record.summary import summarise
from hilserver.record.writer import LogWriter
from hilserver.report.run_report import write_run_report
from hilserver.rig.build import load_rig
from hilserver.rig.notes import notes
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log
from hilserver.simulation.report import replay_sentences
from hilserver.studies.measured import LogColumns, read_measured
from hilserver.tick.row import input_columns
from hilserver.viewer.opening import open_log

CONFIG = Path(__file__).parents[2] / "config"
SIGNALS = ("channel.p_*", "valve.*.command", "circuit.relief.*")


@dataclass
class Recorded:
    """A run of 3401 ticks with two switches, recorded with all signals and with some; its rows as the ring has them."""

    folder: Path
    rows: Floats
    header: LogHeader
    log: LogTable

    @property
    def path(self) -> Path:
        """The log from which signals are left out."""
        return self.folder / "some.arrow"


def choosing(rig: Rig, signals: Sequence[str]) -> Rig:
    recording = rig.settings.recording.model_copy(update={"signals": tuple(signals)})
    return replace(rig, settings=rig.settings.model_copy(update={"recording": recording}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder, rig = tmp_path_factory.mktemp("run"), load_rig(CONFIG / "rigs/demo.toml")
    rows: list[Floats] = []
    for name, signals in (("all", ()), ("some", SIGNALS)):
        with LockstepRun(choosing(rig, signals), folder / f"{name}.arrow") as machine:
            rows = [machine.start(), machine.run(1400)]
            for pressure in ("120 bar", "90 bar"):
                table = with_values(rig.circuit.written, "relief", {"opening_pressure": pressure})
                machine.swap(rig.read_circuit(table))
                rows.append(machine.run(1000))
    whole = LogReader(folder / "all.arrow")
    return Recorded(folder, np.concatenate(rows), whole.header, whole.read_all())


def with_events(reader: LogReader) -> Iterator[tuple[Batch, dict[int, list[Event]]]]:
    """The batches with all their events, also the snapshots, by row of the batch."""
    for batch in reader.batches():
        events: dict[int, list[Event]] = {}
        for row, event in batch.events:
            events.setdefault(row - batch.start, []).append(event)
        for row, whole in batch.snapshots.items():
            events.setdefault(row - batch.start, []).append({"kind": SNAPSHOT, "row": whole})
        yield batch, events


def test_what_is_recorded_is_as_in_the_whole_log(run: Recorded) -> None:
    table, whole = LogReader(run.path).read_all(), run.log
    assert (table.header.format, run.header.format) == (3, 2), "older versions refuse the one, and read the other"
    names = [name for name in whole.columns if is_recorded(name, SIGNALS)]
    assert list(table.columns) == names
    assert 60 < len(names) < 0.4 * len(whole.columns)
    for name in names:
        assert table.columns[name].tobytes() == whole.columns[name].tobytes(), name
    assert [(row, event["kind"]) for row, event in table.events] == [(row, each["kind"]) for row, each in whole.events]
    for one, other in zip(table.circuits, whole.circuits, strict=True):
        places = [k for k, name in enumerate(other.version.names) if name.startswith("relief.")]
        assert one.version.names == tuple(other.version.names[k] for k in places) != ()
        assert one.values.tobytes() == np.ascontiguousarray(other.values[:, places]).tobytes()
    assert run.path.stat().st_size < 0.5 * (run.folder / "all.arrow").stat().st_size


@pytest.mark.parametrize("rig_file", sorted((CONFIG / "rigs").glob("*.toml")), ids=lambda path: path.stem)
def test_all_that_the_tick_gets_from_outside_is_recorded_in_any_case(rig_file: Path) -> None:
    rig = load_rig(rig_file)
    names = [rig.layout.names[column] for column in input_columns(rig.plan)]
    assert len(names) > 10
    assert [name for name in names if not is_recorded(name, ["nothing.*"])] == []
    assert log_rate(choosing(rig, ["valve.*.command"])) < 0.6 * log_rate(rig)


@pytest.mark.parametrize("size", [1, 20, 700, 5000])
def test_snapshots_are_of_the_first_row_every_thousandth_and_those_behind_lost_ones(run: Recorded, size: int) -> None:
    """However the rows arrive; bit for bit the rows of the ring, without the room behind the circuit's values."""
    selection = ChosenColumns(run.header.model_copy(update={"signals": SIGNALS}))
    found: dict[int, Floats] = {}
    for begin in range(0, 2500, size):
        rows = run.rows[begin : min(begin + size, 2500)]
        lost = {1234 - begin: [{"kind": "lost", "rows": 7}]} if begin <= 1234 < begin + len(rows) else {}
        taken, events = selection.take(rows, lost)
        assert taken[:, 0].tobytes() == rows[:, 0].tobytes()
        found |= {begin + row: each["row"] for row in events for each in events[row] if each["kind"] == SNAPSHOT}
    assert sorted(found) == [0, SNAPSHOT_EVERY, 1234, 2 * SNAPSHOT_EVERY]
    width = len(run.header.columns) + len(run.header.circuit_names)
    assert all(whole.tobytes() == run.rows[row, :width].tobytes() for row, whole in found.items())


def test_a_replay_computes_all_rows_and_compares_what_there_is(run: Recorded) -> None:
    rows: list[Floats] = []
    result = replay_log(run.path, watch=lambda computed: rows.append(computed.rows.copy()))
    assert (result.differences, result.starts, result.damages, result.switches) == ((), (), (), 2)
    assert result.compared == result.rows == len(run.rows)
    fixed = len(run.header.columns)
    assert np.concatenate([part[:, :fixed] for part in rows]).tobytes() == run.rows[:, :fixed].tobytes()


def test_a_changed_value_is_found(run: Recorded, tmp_path: Path) -> None:
    """Written with the right checksums, in one row: the pressure that the tick has filtered, and what it was given."""
    for number, name in enumerate(("channel.p_A", "raw.p_A")):
        path, reader = tmp_path / f"{number}.arrow", LogReader(run.path)
        with LogWriter(path, reader.header) as writer:
            for batch, events in with_events(reader):
                rows = batch.rows()
                if batch.start <= 1700 < batch.start + len(batch):
                    rows[1700 - batch.start, reader.header.columns.index(name)] += 1.0
                writer.append(rows, events)
        found = [(each.column, each.first_row) for each in replay_log(path).differences]
        assert ("channel.p_A", 1700) in found
        assert (len(found) == 1) == (name == "channel.p_A")


def test_what_was_left_out_is_compared_at_the_snapshots(run: Recorded, tmp_path: Path) -> None:
    """A value of a valve and one of the circuit, each altered in a snapshot, with a deviation relative to its range."""
    path, reader, names = tmp_path / "run.arrow", LogReader(run.path), [*run.header.columns, *run.header.circuit_names]
    flow = "valve.main.flow_virtual"
    with LogWriter(path, reader.header) as writer:
        for batch, events in with_events(reader):
            whole = batch.snapshots.get(SNAPSHOT_EVERY)
            if whole is not None:
                whole[names.index(flow)] += 1e-4
                whole[names.index("supply.p")] += 1e5
            writer.append(batch.rows(), events)
    found = {each.column: (each.first_row, each.relative) for each in replay_log(path).differences}
    assert found.keys() == {flow, "circuit.supply.p"}
    assert all(row == SNAPSHOT_EVERY and 0.0 < relative < 10.0 for row, relative in found.values())
    assert found["circuit.supply.p"][1] < 1.0, "of its range, not 1e5"


def test_after_lost_rows_it_starts_again_from_a_snapshot(run: Recorded, tmp_path: Path) -> None:
    """A damaged block before the first switch; the repaired log; the later of two files on its own; a chosen row."""
    path, reader, count = tmp_path / "run.arrow", LogReader(run.path), len(run.rows)
    with LogWriter(path, reader.header, batch_rows=100, max_rows=2500) as writer:
        for batch, events in with_events(reader):
            writer.append(batch.rows(), events)
    later = tmp_path / "run.001.arrow"
    content = bytearray(path.read_bytes())
    head = 8 + int.from_bytes(content[4:8], "little")
    content[-int(0.55 * (len(content) - 2 * head))] ^= 1  # behind the header and its copy: about row 1200 of 2500
    path.write_bytes(content)
    (damage,) = check_log(path).damages
    assert damage.lost == 100
    assert 1000 < damage.row < 1400
    repaired = repair_log(path)
    assert repaired is not None
    for file in (path, repaired.files[0]):
        result = replay_log(file)
        assert (result.differences, [start.tick for start in result.starts]) == ((), [2000])
        assert result.compared == damage.row + (count - 2000 - 1)
        assert result.unverified == 2000 - damage.row - 100
        assert f"{result.unverified} rows could not be compared" in " ".join(replay_sentences(result))
    result = replay_log(later)
    assert (result.differences, [start.tick for start in result.starts]) == ((), [3000])
    assert result.compared == count - 3000 - 1
    result = replay_log(path, from_row=2200)
    assert (result.differences, [start.tick for start in result.starts]) == ((), [3000])


def test_a_cut_begins_with_a_snapshot_and_can_be_replayed(run: Recorded, tmp_path: Path) -> None:
    header = run.header.model_copy(update={"signals": SIGNALS})
    cuts = TriggeredCuts(tmp_path, header, [CutTrigger("moved", "", 50, 60, "valve.main.flow_virtual", "rising", 1e-5)])
    for begin in range(0, 1400, 20):
        cuts.take(run.rows[begin : begin + 20], {}, run.path)
    cuts.close()
    assert cuts.trouble == ""
    cut = Path(cuts.written[0])
    result = replay_log(cut)
    assert (result.differences, [start.row for start in result.starts]) == ((), [0])
    assert result.compared == result.rows - 1 >= 60
    assert "valve.main.flow_virtual" in LogReader(cut).header.left_out


def test_what_is_missing_is_named_and_the_rest_works(run: Recorded, tmp_path: Path) -> None:
    missing = "valve.main.flow_virtual"
    table = LogReader(run.path).read_all()
    with pytest.raises(RecordError, match=rf"some\.arrow: {missing} was not recorded: recording\.signals"):
        table.columns[missing]
    with pytest.raises(KeyError):
        table.columns["valve.none.flow_virtual"]
    batch = next(iter(LogReader(run.path).batches()))
    with pytest.raises(HilserverError, match=f"{missing} was not recorded"):
        batch.column(missing)
    log = open_log(run.path)
    np.testing.assert_array_equal(log.read("channel.p_A", 0, len(run.rows)), run.log.columns["channel.p_A"])
    for name in (missing, "circuit.supply.p"):
        with pytest.raises(RecordError, match=f"has no signal {name}. {name} was not recorded"):
            log.read(name, 0, 10)
    for name in ("valve.main.flow_virtul", "circuit.relief.flow_x"):
        with pytest.raises(RecordError, match=r"Did you mean"):
            log.read(name, 0, 10)
    with pytest.raises(HilserverError, match=r"some\.arrow: signals were left out of this log"):
        fidelity_of_log(load_rig(CONFIG / "rigs/demo.toml"), run.path)
    assert [moment.kind for moment in log.moments] == [m.kind for m in open_log(run.folder / "all.arrow").moments]
    assert summarise(run.path).valves == ()
    assert summarise(run.path).ticks == len(run.rows)
    assert "channel.p_*, valve.*.command" in write_run_report(run.path, tmp_path).read_text()
    exported = export(run.path, tmp_path / "run.csv")
    assert exported.rows == len(run.rows)
    assert "snapshot" not in (tmp_path / "run.csv").read_text()


def test_with_the_replay_set_alone_there_is_a_report_and_what_needs_more_says_so(tmp_path: Path) -> None:
    with LockstepRun(choosing(load_rig(CONFIG / "rigs/demo.toml"), ["tick"]), tmp_path / "run.arrow") as machine:
        machine.start()
        machine.run(100)
    assert set(LogReader(tmp_path / "run.arrow").header.columns) == {
        name for name in machine.rig.layout.names if is_recorded(name, ALWAYS)
    }
    assert write_run_report(tmp_path / "run.arrow", tmp_path).is_file()
    assert replay_log(tmp_path / "run.arrow").ok
    measured = LogColumns.model_validate({"columns": {"p": "channel.p_A"}})
    with pytest.raises(RecordError, match=r"channel\.p_A was not recorded"):
        read_measured(tmp_path / "run.arrow", (), ("p",), measured)
    with pytest.raises(RecordError, match=r"channel\.p_A was not recorded"):
        last_period(tmp_path / "run.arrow", "joystick", "p_A")


def test_the_choice_of_the_page(tmp_path: Path) -> None:
    documented = only("tested: tests/record/test_selection.py::test_the_choice_of_the_page").text
    (tmp_path / "rig.toml").write_text(rig_text("choice", tmp_path, {"[recording]": documented}))
    rig = load_rig(tmp_path / "rig.toml")
    assert log_rate(rig) < 0.5 * log_rate(choosing(rig, ()))
    assert SNAPSHOT_EVERY == 1000, "as the page says"


def test_a_choice_of_everything_leaves_nothing_out() -> None:
    """The log is in the format that older versions read."""
    header = run_header(choosing(load_rig(CONFIG / "rigs/demo.toml"), ["valve.*", "*"]), "", "lockstep")
    assert header.signals == ()


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("chanel.*", r"Did you mean channel\.\*\?"),
        ("valve.*.comand", r"Did you mean valve\.main\.command\?"),
        ("pressure", r"Allowed: age\.\*, [a-z_.*, ]*circuit\.\*, [a-z_.*, ]*valve\.\*\.$"),
    ],
)
def test_a_choice_that_matches_nothing_is_reported(tmp_path: Path, pattern: str, hint: str) -> None:
    """With a column of its section, or with the sections, which are few."""
    text = f'[recording]\nsignals = ["{pattern}", "valve.*", "circuit.x"]'
    (tmp_path / "rig.toml").write_text(rig_text("choice", tmp_path, {"[recording]": text}))
    with pytest.raises(ConfigurationError) as error:
        load_rig(tmp_path / "rig.toml")
    (problem,) = error.value.problems
    assert problem.key == "recording.signals"
    assert re.search(rf'"{re.escape(pattern)}" matches no column of the log\. {hint}', problem.message)


def test_values_that_the_circuit_lacks_are_a_note(tmp_path: Path) -> None:
    """No error: another circuit, which is switched to, may have them."""
    text = '[recording]\nsignals = ["circuit.releif.*", "circuit.relief.*"]'
    (tmp_path / "rig.toml").write_text(rig_text("choice", tmp_path, {"[recording]": text}))
    (note,) = (note for note in notes(load_rig(tmp_path / "rig.toml")) if "signals" in note)
    assert '"circuit.releif.*" matches no value of the circuit. Did you mean circuit.relief.' in note
