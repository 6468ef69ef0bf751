"""Triggered recordings: the cut has the window around its trigger, bit for bit as the log, and can be replayed.

Those of a server: tests/sequences/test_sequence_reactions.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from log_bench import make_files
from numpy.typing import NDArray
from pages import only
from service_harness import rig_text

import hilserver.record.cuts
from hilserver.circuit.change import with_values
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.record.cuts import AT_ONCE, FOLDER, MOST_LEAVING, CutTrigger, TriggeredCuts
from hilserver.record.folder import files_of
from hilserver.record.format import Event, LogHeader
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.repair import check_log
from hilserver.rig.build import load_rig
from hilserver.service.triggers import cut_triggers
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import Mode

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"


@dataclass
class Recorded:
    """A run of 1000 ticks with two switches, and its log: rows as the ring has them, and events."""

    path: Path
    header: LogHeader
    rows: Floats
    events: dict[int, list[Event]]
    log: LogTable

    def batches(self, sizes: Sequence[int]) -> Iterator[tuple[Floats, dict[int, list[Event]]]]:
        """The rows in batches of these sizes, again and again."""
        at = 0
        for size in itertools.cycle(sizes):
            if at >= len(self.rows):
                return
            own = {row - at: list(events) for row, events in self.events.items() if at <= row < at + size}
            yield self.rows[at : at + size], own
            at += size


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("run") / "run.arrow"
    rig = load_rig(DEMO)
    with LockstepRun(rig, path) as machine:
        rows = [machine.start(), machine.run(400)]
        for pressure in ("120 bar", "90 bar"):
            machine.swap(rig.read_circuit(with_values(rig.circuit.written, "relief", {"opening_pressure": pressure})))
            rows.append(machine.run(300))
    reader = LogReader(path)
    log = reader.read_all()
    events: dict[int, list[Event]] = {}
    for row, event in log.events:
        events.setdefault(row, []).append(event)
    return Recorded(path, reader.header, np.concatenate(rows), events, log)


def cuts_of(run: Recorded, folder: Path, sizes: Sequence[int], *triggers: CutTrigger) -> list[Path]:
    cuts = TriggeredCuts(folder, run.header, triggers)
    for number, (rows, events) in enumerate(run.batches(sizes)):
        cuts.take(rows, events, run.path)
        if number % 10 == 0:
            cuts.flush()
    cuts.close()
    assert cuts.trouble == ""
    assert sorted(cuts.written) == sorted(map(str, folder.glob("*.arrow")))
    return [Path(file) for file in cuts.written]


def assert_cut(path: Path, run: Recorded, begin: int, end: int) -> None:
    """A cut has the rows from ``begin`` to ``end`` of the run, and replays from its first row without a difference."""
    cut, whole = LogReader(path).read_all(), run.log
    assert check_log(path).ok
    assert not cut.torn
    for name, values in whole.columns.items():
        assert cut.columns[name].tobytes() == values[begin:end].tobytes(), name
    circuit = [row for part in cut.circuits for row in part.values.tolist()]
    assert circuit == [row for part in whole.circuits for row in part.values.tolist()][begin:end]
    replayed = replay_log(path)
    assert replayed.differences == ()
    assert [start.row for start in replayed.starts] == [0]
    assert replayed.compared == end - begin - 1


@pytest.mark.parametrize("sizes", [(1,), (7, 20, 1), (2000,)])
def test_a_level_cuts_its_window(run: Recorded, tmp_path: Path, sizes: tuple[int, ...]) -> None:
    joystick = run.log.columns["input.joystick"]
    level = 0.5 * joystick.max()
    rising = 1 + np.flatnonzero((joystick[1:] > level) & (joystick[:-1] <= level))
    trigger = CutTrigger("moved", "input.joystick > 0.5", 100, 250, "input.joystick", "rising", level)
    (path,) = cuts_of(run, tmp_path, sizes, trigger)
    assert len(rising) == 1
    at = int(rising[0])
    assert_cut(path, run, at - 100, at + 251)
    cut = LogReader(path)
    assert cut.header.extra["cut"] == {"trigger": "moved", "tick": int(run.log.columns["tick"][at])}
    assert cut.header.previous == run.path.name
    found = [row for row, event in cut.read_all().events if event["kind"] == "trigger"]
    assert found == [100]


def test_a_window_across_two_switches(run: Recorded, tmp_path: Path) -> None:
    """The second switch lies in the window of the first one, which becomes longer; the circuits change in the cut."""
    first, second = (row for row, events in run.events.items() if any(e["kind"] == "circuit" for e in events))
    trigger = CutTrigger("switch", "switch", 50, 1000, event="switch")
    (path,) = cuts_of(run, tmp_path, (20, 33), trigger)
    assert_cut(path, run, first - 50, min(second + 1001, len(run.rows)))
    assert len(LogReader(path).read_all().circuits) == 3


def test_two_windows_that_do_not_touch_are_two_cuts(run: Recorded, tmp_path: Path) -> None:
    first, second = (row for row, events in run.events.items() if any(e["kind"] == "circuit" for e in events))
    paths = cuts_of(run, tmp_path, (2000,), CutTrigger("switch", "switch", 0, 10, event="switch"))
    for path, row in zip(paths, (first, second), strict=True):
        assert_cut(path, run, row, row + 11)


def test_a_mode_at_the_beginning_has_what_there_is(run: Recorded, tmp_path: Path) -> None:
    at = int(np.argmax(run.log.columns["mode"] == Mode.RUNNING))
    trigger = CutTrigger("start", "RUNNING", 1000, 5, mode=Mode.RUNNING)
    (path,) = cuts_of(run, tmp_path, (1, 2, 3), trigger)
    assert_cut_from_start(path, at)


def assert_cut_from_start(path: Path, at: int) -> None:
    ticks = LogReader(path).read_all().columns["tick"]
    assert ticks.tolist() == list(range(at + 6))


def test_the_hysteresis_and_a_value_of_the_circuit(run: Recorded, tmp_path: Path) -> None:
    """With a hysteresis larger than the signal's range it never returns: it is triggered once at most."""
    where = run.log.circuits[0].version.names.index("supply.p")
    supply = np.concatenate([part.values[:, where] for part in run.log.circuits])
    level = float(np.median(supply))
    falling = 1 + np.flatnonzero((supply[1:] < level) & (supply[:-1] >= level))
    assert len(falling) > 0
    narrow = CutTrigger("low", "", 0, 0, "circuit.supply.p", "falling", level)
    assert len(cuts_of(run, tmp_path / "narrow", (100,), narrow)) == len(falling)
    wide = CutTrigger("low", "", 0, 0, "circuit.supply.p", "falling", level, hysteresis=1e9)
    assert len(cuts_of(run, tmp_path / "wide", (100,), wide)) <= 1


def test_a_cut_that_can_not_be_written_does_not_end_the_recording(run: Recorded, tmp_path: Path) -> None:
    (tmp_path / "cuts").write_text("in the way")
    cuts = TriggeredCuts(tmp_path / "cuts", run.header, [CutTrigger("start", "", 1, 1, mode=Mode.RUNNING)])
    for rows, events in run.batches((100,)):
        cuts.take(rows, events, run.path)
    cuts.close()
    assert cuts.trouble.startswith("trigger start: its recordings end here: ")
    assert cuts.written == []


def taken(run: Recorded, folder: Path, places: list[int], values: Floats, trigger: CutTrigger) -> list[LogTable]:
    """The cuts of the run, with other values in these columns."""
    rows, cuts = run.rows.copy(), TriggeredCuts(folder, run.header, [trigger])
    rows[:, places] = values
    for begin in range(0, len(rows), 50):
        cuts.take(rows[begin : begin + 50], {}, run.path)
    cuts.close()
    assert cuts.trouble == ""
    return [LogReader(Path(file)).read_all() for file in cuts.written]


def test_a_value_that_chatters_makes_no_endless_cut(run: Recorded, tmp_path: Path) -> None:
    """A crossing in every second row: each cut ends after ten windows of 21 rows, and the next one begins."""
    values = np.tile([0.0, 1.0], len(run.rows) // 2 + 1)[: len(run.rows)].astype(np.float64)
    place = run.header.columns.index("input.joystick")
    trigger = CutTrigger("chatter", "", 10, 10, "input.joystick", "rising", 0.5)
    logs = taken(run, tmp_path, [place], values[:, np.newaxis], trigger)
    lengths = [len(log.columns["tick"]) for log in logs]
    assert set(lengths[:-1]) == {210}
    ticks = np.unique(np.concatenate([log.columns["tick"] for log in logs]))
    assert len(ticks) == len(run.rows)  # nothing is left out


def test_a_limit_that_is_violated_when_another_one_ends(run: Recorded, tmp_path: Path) -> None:
    places = [place for place, name in enumerate(run.header.columns) if name.startswith("limit.")][:2]
    row = np.arange(len(run.rows))
    values = np.column_stack([(row >= 500) & (row < 600), (row >= 600) & (row < 700)]).astype(np.float64)
    logs = taken(run, tmp_path, places, values, CutTrigger("limits", "", 0, 0, event="limit"))
    assert [log.columns["tick"].tolist() for log in logs] == [[tick] for tick in run.log.columns["tick"][[500, 600]]]


def test_triggers_that_are_armed_later(run: Recorded, tmp_path: Path) -> None:
    """Once: only the first crossing, until it is armed anew; what was kept before is in the window."""
    place, rows = run.header.columns.index("input.joystick"), run.rows.copy()
    rows[:, place] = np.arange(len(rows)) // 100 % 2  # 1 from rows 100, 300, 500, …
    single = CutTrigger("up", "", 50, 20, "input.joystick", "rising", 0.5, once=True, armed=1)
    other = CutTrigger("down", "", 5, 5, "input.joystick", "falling", 0.5, armed=2)
    given = {150: [single], 400: [single, other], 600: [replace(single, armed=3), other], 760: []}
    cuts = TriggeredCuts(tmp_path, run.header, [])
    states = {}
    for begin in range(0, len(rows), 10):
        if begin in given:
            cuts.watch(given[begin])
        cuts.take(rows[begin : begin + 10], {}, run.path)
        states[begin] = cuts.states()
    cuts.close()
    assert cuts.trouble == ""
    ticks = run.log.columns["tick"]
    logs = [LogReader(Path(file)).read_all() for file in cuts.written]
    expected = [(250, 320), (595, 605), (650, 720)]
    assert [(log.columns["tick"][0], log.columns["tick"][-1]) for log in logs] == [
        (ticks[begin], ticks[end]) for begin, end in expected
    ]
    begun = {"armed": 1, "count": 1, "writing": True, "file": "", "kept": 0, "since": 0, "trouble": ""}
    after = int(ticks[300]) + 1
    assert states[310]["up"] == begun
    assert states[590]["up"] == {**begun, "writing": False, "file": cuts.written[0], "kept": 1, "since": after}
    assert states[590]["down"]["count"] == 0
    assert states[760] == {}


def with_joystick(run: Recorded, values: NDArray[Any]) -> Floats:
    rows = run.rows.copy()
    rows[:, run.header.columns.index("input.joystick")] = values
    return rows


def joystick(name: str, before: int, after: int, **more: Any) -> CutTrigger:
    """A trigger at each step of the joystick from 0 to 1."""
    return CutTrigger(name, "", before, after, **{"column": "input.joystick", "level": 0.5, **more})


def test_a_long_window_disturbs_no_other_trigger(run: Recorded, tmp_path: Path) -> None:
    """Each trigger has its own window, also within that of another one; with its own event only."""
    rows = with_joystick(run, np.arange(len(run.rows)) >= 300)
    rows[:, run.header.columns.index("channel.p_A")] = np.arange(len(rows)) >= 200
    long = CutTrigger("long", "", 10, 700, column="channel.p_A", level=0.5)
    cuts = TriggeredCuts(tmp_path, run.header, [long, joystick("short", 150, 20)])
    for begin in range(0, len(rows), 50):
        cuts.take(rows[begin : begin + 50], {}, run.path)
        if begin == 350:
            (short,) = cuts.written
    cuts.close()
    ticks = run.log.columns["tick"]
    for file, name, begin, at, end in ((short, "short", 150, 300, 320), (cuts.written[1], "long", 190, 200, 900)):
        log = LogReader(Path(file)).read_all()
        assert (log.columns["tick"][0], log.columns["tick"][-1]) == (ticks[begin], ticks[end])
        assert [(row, event["name"]) for row, event in log.events] == [(at - begin, name)]
        assert Path(file).name.endswith(f"_{name}.arrow")


def test_a_trigger_writes_no_row_twice_and_not_too_many_files(run: Recorded, tmp_path: Path) -> None:
    """A crossing in every second row, and a long time before each: as many files as the recorder can write."""
    rows = with_joystick(run, np.arange(len(run.rows)) % 2)
    cuts = TriggeredCuts(tmp_path, run.header, [joystick("chatter", 900, 0, hysteresis=0.1)])
    cuts.take(rows, {}, run.path)
    cuts.watch([joystick("tick", 0, 0)])
    cuts.take(rows, {}, run.path)
    cuts.close()
    ticks = [LogReader(path).read_all().columns["tick"] for path in tmp_path.glob("*_chatter.arrow")]
    assert len(ticks) > 1
    assert len(np.unique(np.concatenate(ticks))) == sum(map(len, ticks))
    assert AT_ONCE <= len([*tmp_path.glob("*_tick.arrow")]) <= AT_ONCE + 2, "in one second"
    assert cuts.states()["tick"]["count"] == len(rows) // 2


def test_one_trigger_that_has_enough_does_not_end_the_others(
    run: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hilserver.record.cuts, "MOST", 2)
    rows = with_joystick(run, np.arange(len(run.rows)) // 50 % 2)
    rare = joystick("rare", 0, 0, edge="falling", once=True, since=int(run.log.columns["tick"][700]))
    often = joystick("often", 0, 0)
    cuts = TriggeredCuts(tmp_path, run.header, [often, rare])
    for begin in range(0, 600, 50):
        cuts.take(rows[begin : begin + 50], {}, run.path)
    assert cuts.trouble == "trigger often: it has 2 recordings; no more are written"
    assert (cuts.states()["often"]["trouble"], cuts.states()["rare"]["count"]) == (cuts.trouble[15:], 0)
    cuts.watch([replace(often, armed=1), rare])
    assert cuts.trouble == ""
    cuts.take(rows[600:], {}, run.path)
    assert [Path(file).name.split("_")[-1] for file in cuts.written] == [
        f"{n}.arrow" for n in ("often",) * 4 + ("rare",)
    ]


def test_cuts_give_way_to_the_log(run: Recorded, tmp_path: Path) -> None:
    """While something hinders them, the one that is being written ends, and none begins; then they go on."""
    rows = with_joystick(run, np.arange(len(run.rows)) // 100 % 2)  # 1 from rows 100, 300, 500, …
    cuts = TriggeredCuts(tmp_path, run.header, [joystick("up", 0, 50)])
    for begin in range(0, 600, 20):
        cuts.hindrance = "the disk is full" if 120 <= begin < 400 else ""
        cuts.take(rows[begin : begin + 20], {}, run.path)
        stopped = "there are no triggered recordings at present: the disk is full"
        assert cuts.trouble == (stopped if cuts.hindrance else "")
    counts = [len(LogReader(Path(file)).read_all().columns["tick"]) for file in cuts.written]
    assert counts == [40, 51]
    assert cuts.states()["up"]["count"] == 3


def test_triggers_that_end_leave_few_windows_to_be_completed(run: Recorded, tmp_path: Path) -> None:
    rows = with_joystick(run, np.arange(len(run.rows)) // 10 % 2)
    cuts = TriggeredCuts(tmp_path, run.header, [])
    for number in range(MOST_LEAVING + 4):
        cuts.watch([joystick("again", 0, 900, armed=number)])
        cuts.take(rows[20 * number : 20 * number + 20], {}, run.path)
    assert len(cuts.written) == 3
    cuts.close()
    assert len(cuts.written) == MOST_LEAVING + 4


# --- the rig file ----------------------------------------------------------------------------------------------------


def test_triggers_of_a_rig_file(tmp_path: Path) -> None:
    documented = only("tested: tests/record/test_cuts.py::test_triggers_of_a_rig_file").text
    (tmp_path / "rig.toml").write_text(rig_text("cut", tmp_path, {"rate =": 'rate = "1 kHz"'}) + documented)
    overload, fault = cut_triggers(load_rig(tmp_path / "rig.toml"))
    assert (overload.column, overload.edge) == ("channel.p_A", "rising")
    assert (overload.level, overload.hysteresis) == (2e7, 5e5)
    assert (overload.before, overload.after, fault.mode, fault.before) == (1000, 2000, Mode.FAULT, 3000)


def test_only_the_windows_are_kept(tmp_path: Path) -> None:
    """The settings of the page are right; `keep` looks at no file of the cuts."""
    documented = only("tested: tests/record/test_cuts.py::test_only_the_windows_are_kept").text
    (tmp_path / "rig.toml").write_text(rig_text("cut", tmp_path, {"[recording]": documented}))
    settings = load_rig(tmp_path / "rig.toml").settings.recording
    assert (settings.max_duration, settings.keep.age, settings.keep.running) == (600.0, 3600.0, False)
    (tmp_path / "logs" / FOLDER).mkdir(parents=True)
    make_files(tmp_path / "logs" / FOLDER, "2026-11-20T01-00-00_cut_overload.arrow")
    assert files_of(tmp_path / "logs", "cut") == []


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('when = "p > 1 bar"', 'recording.triggers.bad.when: "p" is not a channel'),
        ('when = "p_A > 1 mm"', "bad.when: p_A is measured in Pa, not in m"),
        ('when = "p_A = 1 bar"', "is not a condition"),
        ('mode = "FAULTS"', "FAULT"),
        ('when = "p_A > 1 bar"\nmode = "FAULT"', "give exactly one of when, mode and event"),
        ('mode = "FAULT"\nhysteresis = "1 bar"', "hysteresis can only be used together with when"),
        ('when = "p_A > 1 bar"\nhysteresis = "1 mm"', "must be in the unit of the level"),
        ('event = "switch"\nbefore = "1 h"', "before"),
        ('event = "switch"\nbefore = "7 s"', "bad.before: 7 s are more than 60000 ticks, .* at most 6 s"),
    ],
)
def test_wrong_triggers_are_reported(table: str, problem: str, tmp_path: Path) -> None:
    rate = {"rate =": 'rate = "10 kHz"'} if "7 s" in table else {}
    text = rig_text("cut", tmp_path, rate)
    (tmp_path / "rig.toml").write_text(text + f"\n[recording.triggers.bad]\n{table}\n")
    with pytest.raises(ConfigurationError, match=problem):
        load_rig(tmp_path / "rig.toml")
