"""What the benchmark says of a sustained rate, and how it compares its reports over time."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_inputs import TRIAL, figures, rig_with_modbus

from hilserver.bench.bench import Change, compare, differences, read_report
from hilserver.cli.bench import _rates_table
from hilserver.commissioning import rates
from hilserver.commissioning.rates import WARMING_UP, highest_rate, judged, refuse_hardware, rig_at, try_rates
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.realtime.segment_folder import segment_path
from hilserver.record.format import Event
from hilserver.record.reader import LogReader
from hilserver.record.run import run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.supervisor import ServerRun, Supervisor
from hilserver.tick.codes import Mode
from hilserver.tick.row import header, headers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(ROOT / "config/rigs/demo.toml")


# --- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sustained"),
    [({}, True), ({"missed": 0.011}, False), ({"lost": 1}, False), ({"work_p99": 1001.0}, False)],
)
def test_a_rate_without_missed_ticks_is_sustained(change: dict[str, Any], sustained: bool) -> None:
    trial = replace(TRIAL, **change)
    assert trial.sustained is sustained
    assert highest_rate([trial]) == (1000.0 if sustained else None)
    assert highest_rate([trial, replace(TRIAL, rate=500.0)]) == (1000.0 if sustained else 500.0)


def test_sustained_rate_from_a_log(rig: Rig, tmp_path: Path) -> None:
    """Only what ran, without its beginning, counts; missed ticks and lost rows are counted, work is summed."""
    rate, width = 1000.0, rig.layout.width
    warming = int(WARMING_UP * rate)
    rows = np.zeros((100 + warming + 1000, width))
    headers(rows)["tick"] = np.arange(len(rows))
    headers(rows)["wake_error"], headers(rows)["compute_time"] = 20e-6, 10e-6
    headers(rows)["mode"][100:] = Mode.RUNNING
    headers(rows)["compute_time"][100 : 100 + warming] = 1.0  # not judged
    judged_rows = rows[100 + warming :]
    headers(judged_rows)["read_time"], headers(judged_rows)["write_time"], headers(judged_rows)["publish_time"] = (
        1e-6,
        2e-6,
        4e-6,
    )
    headers(judged_rows)["compute_time"][:20], header(judged_rows[5]).missed = 100e-6, 3
    writer = LogWriter(tmp_path / "run.arrow", run_header(rig, "bench", "lockstep"))
    lost: Event = {"kind": "lost", "rows": 7}
    writer.append(rows, {50: [lost]})
    writer.close()
    trial = judged(LogReader(tmp_path / "run.arrow"), rate)
    assert (trial.rate, trial.ticks, trial.lost) == (rate, 1000, 7)
    assert trial.missed == pytest.approx(3 / 1003)
    assert (trial.work_median, trial.work_p99, trial.work_p999) == pytest.approx((17.0, 107.0, 107.0))
    assert (trial.wake_up_median, trial.wake_up_p99) == pytest.approx((20.0, 20.0))
    assert not trial.sustained


def test_a_log_of_a_rig_that_never_ran(rig: Rig, tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "run.arrow", run_header(rig, "bench", "lockstep"))
    writer.append(np.zeros((10, rig.layout.width)))
    writer.close()
    with pytest.raises(HilserverError, match="did not reach RUNNING"):
        judged(LogReader(tmp_path / "run.arrow"), 1000.0)


def test_the_rig_at_another_rate_has_all_else_as_it_was(rig: Rig, tmp_path: Path) -> None:
    other = rig_at(rig, 2500.0, tmp_path)
    assert other.settings.loop.rate == 2500.0
    assert other.settings.name == f"demo-rates-{os.getpid()}"
    assert other.settings.limits == {}
    assert other.settings.valves == rig.settings.valves
    assert other.circuit.solver == rig.circuit.solver
    assert rig.settings.loop.rate == 1000.0


def test_hardware_is_not_run_for_a_benchmark() -> None:
    with pytest.raises(ConfigurationError, match=r"devices\.card: not simulated"):
        refuse_hardware(rig_with_modbus(1))


@pytest.mark.realtime
@pytest.mark.slow
def test_the_server_itself_is_run(rig: Rig) -> None:
    """At a rate of a person's patience, RUNNING, with its log read; and nothing is left of it."""
    said: list[str] = []
    (trial,) = try_rates(rig, [200.0], 0.5, said.append)
    assert said == ["the server at 200 Hz for 0.5 s"]
    assert trial.rate == 200.0
    assert 20 <= trial.ticks + trial.missed <= 400
    assert trial.work_median > 0.0
    assert trial.lost == 0
    assert not list(segment_path("").glob(f"demo-rates-{os.getpid()}*"))


def test_a_server_that_ends_by_itself_is_a_row_of_the_table(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 14 kHz on two busy processors the supervisor had no time for its heartbeat, and all results were lost."""

    class Overloaded(Supervisor):
        async def run(self) -> int:
            return 1

        async def until_it_can_be_armed(self) -> ServerRun:
            return await self.started()  # never

    monkeypatch.setattr(rates, "Supervisor", Overloaded)
    trials = try_rates(rig, [900.0, 1000.0])
    assert [(trial.rate, trial.sustained) for trial in trials] == [(900.0, False), (1000.0, False)]
    assert [*_rates_table(trials).columns[-1].cells] == ["no: server ended"] * 2


# --- comparison over time ---------------------------------------------------------------------------------------------


def test_comparison_finds_every_figure_and_its_direction() -> None:
    changes = {change.what: change for change in compare(figures(), figures(2.0, 2500.0))}
    assert changes == {
        "part: circuit": Change("part: circuit", "µs", 4.0, 8.0),
        "component: relief_valve": Change("component: relief_valve", "µs", 0.3, 0.6),
        "device card (loop): read": Change("device card (loop): read", "µs", 3.0, 6.0),
        "server at 1000 Hz: wake-up": Change("server at 1000 Hz: wake-up", "µs", 20.0, 20.0),
        "server at 1000 Hz: work": Change("server at 1000 Hz: work", "µs", 30.0, 30.0),
        "highest rate": Change("highest rate", "Hz", 5000.0, 2500.0),
    }
    slower = {what: change.slower for what, change in changes.items()}
    assert slower["highest rate"] == slower["part: circuit"] == 2.0
    assert slower["server at 1000 Hz: work"] == 1.0


def test_the_ratio_of_times_that_are_hardly_measurable_counts_for_nothing() -> None:
    """Parts are differences of times: on a busy machine, 0.0007 µs before, and 0.09 µs now."""
    assert Change("part: outputs", "µs", 0.0007, 0.09).slower == 1.0
    assert Change("part: outputs", "µs", 0.0007, 0.3).slower == pytest.approx(3.0)
    assert Change("part: outputs", "µs", 0.4, 0.0007).slower == pytest.approx(0.25)


def test_figures_in_one_report_only_are_not_compared() -> None:
    assert [change.what for change in compare({"parts": figures()["parts"]}, figures())] == ["part: circuit"]


def test_other_machines_and_versions_are_named() -> None:
    old, new = figures(), figures()
    assert differences(old, new) == []
    old["machine"] = {**old["machine"], "processor": "abacus", "kernel": "none"}
    assert differences(old, new) == [
        f"processor: abacus before, {new['machine']['processor']} now.",
        f"kernel: none before, {new['machine']['kernel']} now.",
    ]


def test_a_report_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(figures()))
    assert read_report(file) == figures()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"parts": [{"name": "circuit"}]}', '{"rates": 3}', "{}"])
def test_an_invalid_report_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(HilserverError, match=r"report\.json is not a result of hilserver bench --json"):
        read_report(file)
    with pytest.raises(HilserverError, match=r"none\.json: can't be read: No such file"):
        read_report(tmp_path / "none.json")
