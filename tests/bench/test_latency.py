"""hilserver latency: every wake-up is measured, by processes that end; cyclictest beside it does the same as the loop.

How late anything is, is not tested.
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.bench import latency
from hilserver.bench.latency import (
    BATCH,
    CYCLICTEST,
    EDGES,
    HILSERVER,
    PERIODIC,
    SEMAPHORE,
    Conditions,
    Durations,
    LatencyMeasurement,
    LatencyReport,
    batches,
    cyclictest_command,
    measure,
    read_cyclictest,
)
from hilserver.bench.latency_report import latency_figures, latency_sentences, plot_latency
from hilserver.cli import main
from hilserver.cli.latency import latency_histograms, latency_table
from hilserver.errors import HilserverError
from hilserver.realtime.latency import HandOver, periodic, waiting
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.segment_folder import segment_path

SHORT = Conditions(rate=500.0, duration=0.3, busy=0.5)
THREAD = {"histogram": {"2000": 5, "9000": 3, "40000": 1}, "cycles": 10, "min": 2000, "max": 5_000_000, "avg": 508000.0}
"""What cyclictest --nsecs --json says of a thread: here one of ten was longer than its histogram."""

# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_of_samples_are_order_statistics() -> None:
    durations = np.random.default_rng(5).exponential(1e-5, 3000)
    figures, in_order = Durations.of(durations).figures(), np.sort(durations)
    assert (figures.count, figures.min, figures.max) == (3000, in_order[0], in_order[-1])
    assert (figures.median, figures.p99, figures.p999) == (in_order[1499], in_order[2969], in_order[2996])
    assert figures.mean == pytest.approx(durations.mean())


def test_output_of_cyclictest_is_read_with_its_overflows() -> None:
    samples = read_cyclictest(json.dumps({"thread": {"0": THREAD}}))
    figures = samples.figures()
    assert (figures.count, figures.min, figures.max, figures.mean) == (10, 2e-6, 5e-3, 508e-6)
    assert (samples.percentile(50), samples.percentile(51), samples.percentile(90)) == (2e-6, 9e-6, 40e-6)
    assert math.isinf(samples.percentile(91))  # among those that it could not tell apart
    edges = np.array([1e-6, 5e-6, 1e-4, 1e-3, 1e-2])
    assert samples.histogram(edges).tolist() == [5, 4, 0, 1]


def test_a_histogram_holds_every_sample() -> None:
    durations = np.array([0.0, 1e-9, 3e-6, 3e-6, 2e-2, 50.0])
    counts = Durations.of(durations).histogram(EDGES)
    assert counts.sum() == len(durations)
    assert (counts[0], counts[-1]) == (2, 1)
    assert counts[np.searchsorted(EDGES, 3e-6) - 1] == 2


def test_smallest_and_largest_value_of_every_batch() -> None:
    durations = np.arange(2 * BATCH + 3, dtype=np.float64)
    assert batches(durations).tolist() == [[0, BATCH - 1], [BATCH, 2 * BATCH - 1], [2 * BATCH, 2 * BATCH + 2]]


def report(**others: Any) -> LatencyReport:
    ten, twenty = (Durations.of(np.full(600, 1e-6 * value)) for value in (10, 20))
    measured = [
        LatencyMeasurement(PERIODIC, HILSERVER, False, twenty, batches(twenty.values)),
        LatencyMeasurement(PERIODIC, CYCLICTEST, False, ten),
        LatencyMeasurement(SEMAPHORE, HILSERVER, False, ten, batches(ten.values)),
        LatencyMeasurement(PERIODIC, HILSERVER, True, ten, batches(ten.values)),
    ]
    return LatencyReport(Conditions(), ("memory lock: refused. It costs. Do this.",), tuple(measured), **others)


def test_the_loop_is_compared_with_cyclictest_beside_it() -> None:
    assert report().ratio(loaded=False) == 2.0
    assert report().ratio(loaded=True) is None
    first, *others = latency_sentences(report(notes=("a note",)))
    assert first == "no load: the loop's median is 2.00 times that of cyclictest."
    assert others == ["a note", "memory lock: refused. It costs. Do this."]


def test_report_as_data_is_json_and_as_pictures_can_be_seen(tmp_path: Path) -> None:
    figures = json.loads(json.dumps(latency_figures(report())))
    assert figures["median_over_cyclictest"] == {"no load": 2.0, "with load": None}
    assert figures["conditions"]["scheduling"]["priority"] == 80
    assert len(figures["histogram_edges"]) == len(figures["measured"][0]["histogram"]) + 1
    assert figures["measured"][1]["batches"] is None
    assert figures["machine"]["hilserver"]
    assert latency_table(report()).row_count == 4
    assert [table.row_count for table in latency_histograms(report())] == [2, 1]
    assert plot_latency(report(), tmp_path / "latency.png").read_bytes()[:4] == b"\x89PNG"


# --- the tests themselves ---------------------------------------------------------------------------------------------


@pytest.mark.realtime
def test_a_periodic_thread_notes_every_wake_and_the_missed_ticks_in_it() -> None:
    late = periodic(0.002, 100)
    assert 1 <= len(late) <= 100
    assert (late >= 0.0).all()
    missed = np.floor(late / 0.002).sum()
    assert len(late) + missed >= 100  # every tick was either waited for or missed


def test_a_hand_over_is_timed_from_its_post(tmp_path: Path) -> None:
    hand_over = HandOver.create(tmp_path / "segment", 20)
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(waiting(hand_over)))
    waiter.start()
    other = HandOver.attach(tmp_path / "segment")
    for number in range(20):
        other.post(number)
        time.sleep(0.001)
    waiter.join(10.0)
    hand_over.close()
    (latencies,) = found
    assert len(latencies) == 20
    assert (latencies > 0.0).all()
    assert (np.diff(hand_over.posted_at) > 0).all()


# --- cyclictest -------------------------------------------------------------------------------------------------------


def test_cyclictest_runs_with_the_settings_of_the_loop(tmp_path: Path) -> None:
    conditions = Conditions(2000.0, 4.2, Scheduling(70, frozenset({3, 1})))
    new = "--default-system --secaligned"
    command = cyclictest_command("cyclictest", conditions, True, True, tmp_path / "out.json", new)
    wanted = ("interval=500", "duration=5", "policy=fifo", "priority=70", "affinity=1,3", "threads=1", "nsecs")
    assert {f"--{option}" for option in (*wanted, "mlockall", "default-system", "secaligned")} <= set(command)


def test_cyclictest_gets_no_more_resources_than_the_loop(tmp_path: Path) -> None:
    command = cyclictest_command("cyclictest", Conditions(), False, False, tmp_path / "out.json")
    assert {"--policy=other", "--priority=0"} <= set(command)
    assert not {"--mlockall", "--default-system", "--secaligned"} & set(command)


def fake_cyclictest(folder: Path, script: str) -> None:
    """A program of that name, first on the path."""
    program = folder / "cyclictest"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(latency, "CYCLICTEST_PLACES", (str(tmp_path),))
    return tmp_path


@pytest.mark.realtime
def test_results_of_cyclictest_are_in_the_report(on_path: Path) -> None:
    text = json.dumps({"thread": {"0": THREAD}})
    script = f"""
files = [a.removeprefix("--json=") for a in sys.argv if a.startswith("--json=")]
for file in files:
    open(file, "w").write({text!r})
"""
    fake_cyclictest(on_path, script)
    result = measure(replace(SHORT, busy=0.0))
    assert [(m.test, m.by, m.loaded) for m in result.measured] == [
        (PERIODIC, HILSERVER, False),
        (PERIODIC, CYCLICTEST, False),
        (SEMAPHORE, HILSERVER, False),
    ]
    other = result.find(PERIODIC, CYCLICTEST, False)
    assert other is not None
    assert other.samples.figures().median == 2e-6
    assert result.notes == ()


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.exit('--help' not in sys.argv and 'unknown option --json')", "unknown option --json"),
        ("pass", "cyclictest failed (0)"),
        (None, "not installed"),
    ],
)
def test_without_cyclictest_the_loop_is_measured_and_the_reason_noted(
    script: str | None, reason: str, on_path: Path
) -> None:
    if script is not None:
        fake_cyclictest(on_path, script)
    result = measure(replace(SHORT, busy=0.0))
    assert {m.by for m in result.measured} == {HILSERVER}
    (note,) = result.notes
    assert reason in note


# --- a whole run ------------------------------------------------------------------------------------------------------


def left_behind() -> set[str]:
    """Shared memory and processes of latency measurements."""
    found = {path.name for path in segment_path("").glob(f"latency-{os.getpid()}*")}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat_line, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except OSError:
            continue
        parent = int(stat_line.rpartition(")")[2].split()[1])
        if parent == os.getpid() and "hilserver.realtime.latency" in command:
            found.add(command)
    return found


@pytest.mark.realtime
def test_both_tests_run_with_and_without_load_and_leave_no_process(on_path: Path) -> None:
    told: list[str] = []
    result = measure(SHORT, cyclictest=False, tell=told.append)
    kinds = [(PERIODIC, False), (SEMAPHORE, False), (PERIODIC, True), (SEMAPHORE, True)]
    assert [(m.test, m.loaded) for m in result.measured] == kinds
    assert len(told) == 4
    assert result.notes == ()
    for m in result.measured:
        figures = m.samples.figures()
        assert 0.0 < figures.min <= figures.median <= figures.p99 <= figures.p999 <= figures.max
        if m.test == SEMAPHORE:
            assert figures.count == 150  # every post was answered
        else:
            missed = np.floor(m.samples.values * SHORT.rate).sum()
            assert figures.count <= 150 <= figures.count + missed
        assert m.batches is not None
        assert (m.batches.min(), m.batches.max()) == (figures.min, figures.max)
    assert left_behind() == set()


def test_a_measurement_that_does_not_end_is_an_error_and_leaves_no_process() -> None:
    with latency._Process(Scheduling(priority=None, lock_memory=False)) as process:
        process.order(do="periodic", into="/nonexistent", period=10.0, ticks=100)
        with pytest.raises(HilserverError, match=r"took longer than 0\.1 s"):
            process.answer(0.1)
    ordinary = Scheduling(priority=None, lock_memory=False)
    with latency._Process(ordinary) as process, pytest.raises(HilserverError, match="no such shared memory"):
        process.measure(SHORT, Path("unused"), do="wait", segment="/dev/shm/hilserver-nobody")
    assert left_behind() == set()


@pytest.mark.realtime
def test_command_takes_the_rigs_loop_and_options_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
    options = ["--rate", "200", "--priority", "0", "--no-lock", "-d", "0.1", "--busy", "0", "--no-cyclictest"]
    monkeypatch.setattr(sys, "argv", ["hilserver", "latency", str(rig), *options, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    figures = json.loads(capsys.readouterr().out)
    assert figures["conditions"]["rate"] == 200.0
    assert figures["conditions"]["scheduling"] == {
        "priority": None,
        "cpus": None,
        "lock_memory": False,
        "freeze_gc": True,
    }
    monkeypatch.setattr(sys, "argv", ["hilserver", "latency", *options, "-o", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "wake-up at 200 Hz, ordinary scheduler" in out
    assert {path.name for path in tmp_path.iterdir()} == {"latency.png", "latency.json"}
