"""Studies against what is known exactly: an exponential response, Ishigami's function; the same bits in any order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from study_bench import (
    CONDUCTANCE,
    EMPTYING,
    LEAKING,
    STUDY,
    FunctionSubject,
    TogetherSubject,
    deadly,
    ishigami,
    leak,
    pressure,
    written_study,
)

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.report.studies import StoredStudy, studies_in
from hilserver.studies import table, worst
from hilserver.studies.execution import DIED, evaluate, evaluating
from hilserver.studies.plans import values_of_plan
from hilserver.studies.report import failures_grid, write_study
from hilserver.studies.sensitivity import sensitivity
from hilserver.studies.settings import load_study
from hilserver.studies.study import plan_of, repeat, run_study, values_of_variant
from hilserver.studies.table import complete_batches
from hilserver.studies.worst import worst_case
from hilserver.tolerances import STEPS, Tolerance

FLOW = 2.0 / 6e4


def test_every_run_is_the_exact_response(tmp_path: Path) -> None:
    """Within 100 Pa of 100 bar, over the sampled tolerances of volume, restrictor and initial pressure."""
    study = load_study(written_study(tmp_path))
    result = run_study(study, tmp_path / "out")
    assert [each.key for each in study.varied] == [
        "vessel.volume", "capillary.nominal_flow.flow", "nodes.vessel.pressure"
    ]  # fmt: skip
    volume, flow, start = result.values.T
    conductance = flow / 100e5
    assert (volume.min(), volume.max()) == pytest.approx((0.0018, 0.0022), rel=0.01)
    exact = pressure(0.5, volume, conductance, start)
    assert np.ptp(exact) > 10e5
    np.testing.assert_allclose(result.column("end"), exact, atol=100.0)
    t: Floats = np.linspace(1e-3, 0.5, 500)[:, None]
    mean = pressure(t, volume, conductance, start).mean(axis=0)
    assert np.abs(result.column("mean") - mean).max() < 100.0
    assert result.failures() == {}
    assert result.nominal["end"] == pytest.approx(float(pressure(0.5, 2e-3, CONDUCTANCE, 100e5)), abs=100.0)


def test_ishigami() -> None:
    """First order and total within ± 0.02 at n = 2^14 (analytic: Ishigami and Homma; Sobol and Levitan 1999)."""
    tolerance = Tolerance(0.0, -np.pi, np.pi)
    n = 2**14
    values = values_of_plan("sobol", [tolerance] * 3, n, 0, seed=1)
    figures = np.concatenate([each.figures for each in evaluate(FunctionSubject(ishigami), values, 1)])
    found = sensitivity("sobol", values, figures[:, 0], np.ones(3), seed=1)
    assert found is not None
    np.testing.assert_allclose(found.first, [0.3139, 0.4424, 0.0], atol=0.02)
    np.testing.assert_allclose(found.second, [0.5576, 0.4424, 0.2437], atol=0.02)
    assert np.all(np.abs(found.first - [0.3139, 0.4424, 0.0]) <= 1.5 * found.first_interval)


def test_failed_runs_are_left_out_of_sensitivities() -> None:
    tolerance = Tolerance(0.0, -np.pi, np.pi)
    values = values_of_plan("sobol", [tolerance] * 3, 2**12, 0, seed=1)
    figure = np.array([ishigami(row) for row in values])
    figure[[7, 8, 5000]] = np.nan
    found = sensitivity("sobol", values, figure, np.ones(3), seed=1)
    assert found is not None
    assert found.dropped == 2
    np.testing.assert_allclose(found.first, [0.3139, 0.4424, 0.0], atol=0.04)


def test_morris_effects_of_a_linear_function() -> None:
    """Each effect is the coefficient times the range of its quantity, without deviation, whatever its distribution."""
    steps = {number: tuple(np.linspace(0.0, 2.0, number) ** 2 / 2.0) for number in (2, 3, 5)}
    tolerances = [Tolerance(1.0, 0.0, 2.0, "", kind) for kind in ("uniform", "normal", "triangular")]
    tolerances += [Tolerance(2.0, 0.0, 2.0, "", STEPS, each) for each in steps.values()]
    coefficients = np.array([3.0, -1.0, 0.5, 2.0, 2.0, -2.0])
    values = values_of_plan("morris", tolerances, 20, 0, seed=2)
    found = sensitivity("morris", values, values @ coefficients, np.full(6, 2.0), seed=2)
    assert found is not None
    np.testing.assert_allclose(found.first, 2.0 * np.abs(coefficients), atol=1e-9)
    np.testing.assert_allclose(found.second, 0.0, atol=1e-9)
    for column, each in zip(values.T[3:], steps.values(), strict=True):
        assert set(column) <= set(each)
    assert np.unique(values[:, 4], return_counts=True)[1].min() > 0.15 * len(values)  # of three steps, each


@pytest.mark.parametrize(
    ("distribution", "deviation"), [("uniform", 4.0 / 12**0.5), ("normal", 0.8796), ("triangular", 4.0 / 24**0.5)]
)
def test_distributions(distribution: str, deviation: float) -> None:
    """Of -2 … 2; normal: σ = 1 cut off at ± 2 σ, which leaves 0.8796 (Johnson, Kotz, Balakrishnan, vol. 1, 13.10)."""
    values = values_of_plan("latin_hypercube", [Tolerance(0.0, -2.0, 2.0, "", distribution)], 20_000, 0, seed=1)
    assert values.mean() == pytest.approx(0.0, abs=0.01)
    assert values.std() == pytest.approx(deviation, rel=0.01)
    assert np.abs(values).max() <= 2.0


def test_steps_are_equally_probable_and_a_grid_has_all() -> None:
    steps = Tolerance(2.0, 1.0, 4.0, "", "steps", (1.0, 2.0, 4.0))
    values = values_of_plan("latin_hypercube", [steps], 300, 0, seed=1)
    assert np.unique(values, return_counts=True)[1].tolist() == [100, 100, 100]
    grid = values_of_plan("grid", [steps, Tolerance(0.0, -1.0, 1.0)], 0, 3, seed=1)
    assert sorted(map(tuple, grid.tolist())) == [(s, x) for s in (1.0, 2.0, 4.0) for x in (-1.0, 0.0, 1.0)]


# --- the same bits, whoever computes them and when --------------------------------------------------------------------


def test_one_and_two_processes_give_the_same_table(tmp_path: Path) -> None:
    study = load_study(written_study(tmp_path))
    one, two = (run_study(study, tmp_path / str(n), workers=n) for n in (0, 2))
    assert one.table.equals(two.table)
    assert one.table.num_rows == 40


class _Stop(Exception):
    pass


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    """And a batch at its end that was only half written is computed again."""
    study = load_study(written_study(tmp_path))
    whole = run_study(study, tmp_path / "whole").table

    def stop(done: int, total: int, remaining: float) -> None:
        if done >= 20:
            raise _Stop

    out = tmp_path / "out"
    with pytest.raises(_Stop):
        run_study(study, out, progress=stop)
    stream = out / "tolerances.part.arrows"
    assert sum(batch.num_rows for batch in complete_batches(stream, whole.schema)) == 20
    stream.write_bytes(stream.read_bytes()[:-60])
    told = list[int]()
    result = run_study(study, out, resume=True, progress=lambda done, total, remaining: told.append(done))
    assert result.table.equals(whole)
    assert 0 < result.runs < 40
    assert told[-1] == 40
    assert not stream.exists()


def test_a_study_states_its_progress_and_runs_only_once(tmp_path: Path) -> None:
    """In its folder, for the panel; whoever runs the same study into the same folder meanwhile is refused."""
    lag = WITH_A_LAG.replace('"100 ms"', '{ value = "0.5 s", steps = ["0.1 ms", "0.5 s"] }')
    text = STUDY.replace("[vary]", 'tick = "10 ms"\n[vary]')
    study, out = load_study(written_study(tmp_path, text, lag)), tmp_path / "out"
    seen = list[StoredStudy]()

    def look(done: int, total: int, remaining: float) -> None:
        seen.extend(studies_in(out))
        with pytest.raises(HilserverError, match="another process runs this study"):
            run_study(study, out)
        if done == 20:
            raise _Stop

    with pytest.raises(_Stop):
        run_study(study, out, progress=look)
    assert [(each.is_running, each.page) for each in seen] == [(True, None)] * 2
    (stopped,) = studies_in(out)
    assert stopped.state is not None
    assert not stopped.is_running
    assert (stopped.state.done, stopped.state.runs, stopped.state.finished) == (20, 40, False)
    result = run_study(study, out, resume=True)
    write_study(result, out)
    (ended,) = studies_in(out)
    assert ended.state is not None
    assert (ended.state.done, ended.state.failed, ended.state.finished) == (40, 20, True)
    assert ended.page == out / "tolerances.html"
    assert ended.table == result.file


def test_a_study_that_is_complete_is_not_computed_again_when_resumed(tmp_path: Path) -> None:
    study = load_study(written_study(tmp_path))
    first = run_study(study, tmp_path)
    again = run_study(study, tmp_path, resume=True)
    assert again.runs == 0
    assert again.table.equals(first.table)
    changed = load_study(written_study(tmp_path, STUDY.replace("± 20 %", "± 10 %")))
    assert run_study(changed, tmp_path, resume=True).runs == 40
    assert run_study(changed, tmp_path).runs == 40


def test_a_damaged_table_is_not_resumed(tmp_path: Path) -> None:
    study = load_study(written_study(tmp_path))
    found = run_study(study, tmp_path)
    whole = found.file.read_bytes()
    found.file.write_bytes(whole[:-500])
    for _ in range(2):
        with pytest.raises(HilserverError, match="is damaged, so that the study can't be resumed"):
            run_study(study, tmp_path, resume=True)
    assert run_study(study, tmp_path).runs == 40


@pytest.mark.parametrize(
    ("figure", "problem"),
    [
        ('"nodes.vessel.pressure" = "max(vessel.p)"', "is varied, and has a column of the table already"),
        ('late = { figure = "max(vessel.p)", end = "2 s" }', "end: 2 s is after the end of the run, 0.5 s"),
    ],
)
def test_figures_that_cannot_be(tmp_path: Path, figure: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_study(written_study(tmp_path, f"{STUDY}{figure}\n"))


def test_the_table_has_large_groups_of_rows_whatever_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows in groups of a task each took a gigabyte to read."""
    monkeypatch.setattr(table, "GROUP", 25)
    found = run_study(load_study(written_study(tmp_path)), tmp_path)  # in tasks of 10
    with pq.ParquetFile(found.file) as file:
        rows = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    assert rows == [30, 10]
    assert found.table["variant"].to_pylist() == list(range(40))


def test_another_study_is_not_continued(tmp_path: Path) -> None:
    file = written_study(tmp_path)

    def stop(done: int, total: int, remaining: float) -> None:
        raise _Stop

    with pytest.raises(_Stop):
        run_study(load_study(file), tmp_path, progress=stop)
    other = load_study(written_study(tmp_path, STUDY.replace("± 20 %", "± 10 %")))
    with pytest.raises(HilserverError, match="another study"):
        run_study(other, tmp_path, resume=True)
    assert run_study(load_study(written_study(tmp_path)), tmp_path, resume=True).runs == 30


def test_a_variant_that_ends_its_process_or_hangs_is_named_and_the_others_are_computed() -> None:
    values = np.arange(-2.0, 30.0)[:, None]
    values[[20, 31]] = [[8.5], [9.5]]
    found = list(evaluate(FunctionSubject(deadly), values, 1, workers=2, batch=5, patience=(0.3, inf)))
    assert [each.first for each in found] == list(range(0, 32, 5))
    failures = {number: reason for each in found for number, reason in each.failures.items()}
    assert failures == {0: "is negative", 1: "is negative", 9: DIED, 20: DIED, 31: "KeyError: 'nine'"}
    figures = np.concatenate([each.figures[:, 0] for each in found])
    expected = np.where(np.isin(np.arange(32), list(failures)), np.nan, values[:, 0] ** 2)
    np.testing.assert_array_equal(figures, expected)


def test_a_variant_that_hangs_is_given_up_by_a_single_process_too() -> None:
    found = list(evaluate(FunctionSubject(deadly), np.array([[8.5], [3.0]]), 1, workers=1, patience=(0.3, inf)))
    assert [each.failures for each in found] == [{0: DIED}]
    np.testing.assert_array_equal(found[0].figures, [[np.nan], [9.0]])


def test_each_of_the_variants_that_are_run_together_has_its_own_patience() -> None:
    """Eight of 0.1 s take longer than the patience of 0.4 s; the one that hangs is found, and the others have figures.

    In the first task, nobody hangs: its variants are not run again one by one, each in 0.1 s by its own process.
    """
    values = np.arange(16.0)[:, None] + 10.0
    values[12] = 8.5
    subject = TogetherSubject(deadly, 0.1)
    found = list(evaluate(subject, values, 1, workers=1, batch=8, patience=(0.4, inf)))
    assert [each.failures for each in found] == [{}, {12: DIED}]
    expected = np.where(np.arange(16) == 12, np.nan, values[:, 0] ** 2)
    np.testing.assert_array_equal(np.concatenate([each.figures[:, 0] for each in found]), expected)


def test_a_run_for_which_nobody_waits_ends_even_if_it_hangs() -> None:
    """Otherwise Ctrl-C would have to wait for as long as a run may hang."""
    with evaluating(FunctionSubject(deadly), 1, workers=1) as run:
        assert next(run(np.array([[3.0], [8.5]]), 0, 1)).figures == [[9.0]]
    assert multiprocessing.active_children() == []


KILLED = """
import multiprocessing, os, signal
import numpy as np
from study_bench import FunctionSubject, slow
from hilserver.studies.execution import evaluate

if __name__ == "__main__":
    for _ in evaluate(FunctionSubject(slow), np.zeros((400, 1)), 1, workers=2, batch=1):
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_the_one_that_waits_for_them_even_if_it_is_killed(tmp_path: Path) -> None:
    """They hold its standard output: it ends with the last of them."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    support = str(Path(__file__).parents[1] / "support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([support, str(Path(__file__).parents[2])])}
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=30.0,
    )
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2


# --- runs that fail ---------------------------------------------------------------------------------------------------

WITH_A_LAG = f"""{EMPTYING}
[components.filter]
type = "lag"
input = 1.0
signal = "filtered"
time_constant = "100 ms"
"""


def test_a_variant_that_diverges_is_named_and_counted(tmp_path: Path) -> None:
    """RK4 is unstable where a step is longer than 2.785 time constants: here from 0.18 ms downwards."""
    text = STUDY.replace("[vary]", 'tick = "10 ms"\n[vary]\n"filter.time_constant" = { from = "0.1 ms", to = "1 s" }')
    text = text.replace("latin_hypercube", "grid").replace("samples = 40", "levels = 2")
    study = load_study(written_study(tmp_path, text, WITH_A_LAG))
    result = run_study(study, tmp_path / "out")
    unstable = result.column("filter.time_constant") < 1e-3
    assert unstable.sum() == 8
    assert result.failures().keys() == set(np.flatnonzero(unstable).tolist())
    assert all(reason.startswith("diverged: filter") for reason in result.failures().values())
    assert np.isfinite(result.column("end")[~unstable]).all()
    pages = write_study(result, tmp_path / "out")
    assert "8 (50.0%)" in pages[0].read_text()
    assert "diverged: filter" in pages[0].read_text()


def test_a_variant_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    text = STUDY.replace('"0.5 s"', '"5 s"').replace("[vary]", 'time_limit = "1 us"\n[vary]')
    text = text.replace("samples = 40", "samples = 2")
    result = run_study(load_study(written_study(tmp_path, text)), tmp_path / "out")
    assert set(result.failures()) == {0, 1}
    assert all("aborted" in reason for reason in result.failures().values())


def test_impossible_values_and_errors_of_one_s_own_python_are_named_and_counted(tmp_path: Path) -> None:
    """Of a study in one process, which goes on; reasons that differ in numbers only are one. A repetition names it."""
    (tmp_path / "own.py").write_text(leak('return {"G": 1e-12 / (self.odd - 2.0)}'))
    vary = '"leak.odd" = { value = 1.0, steps = [1.0, 2.0] }\n"vessel.volume" = { from = "-1 l", to = "4 l" }'
    text = STUDY[: STUDY.index("[vary]")].replace("latin_hypercube", "grid").replace("samples = 40", "levels = 6")
    text += f'[vary]\n{vary}\n[figures]\nend = "final(vessel.p)"\n'
    study = load_study(written_study(tmp_path, text, LEAKING))
    result = run_study(study, tmp_path / "out")
    odd, volume = result.column("leak.odd"), result.column("vessel.volume")
    assert result.failures().keys() == set(np.flatnonzero((odd == 2.0) | (volume <= 0.0)).tolist())
    assert np.isfinite(result.column("end")).sum() == 4
    grid = failures_grid(result)
    assert grid is not None
    assert {(row[0], row[1]) for row in grid.rows} == {
        ("this variant can't be built: ZeroDivisionError: float division by zero", "4"),
        ("this variant can't be built: vessel.volume: -0.001 is out of range: must be > 0", "4"),
    }
    (number,) = np.flatnonzero((odd == 2.0) & (volume == 1e-3))
    with pytest.raises(HilserverError, match="with these values the run failed: ZeroDivisionError"):
        repeat(study, values_of_variant(study, int(number)), "again", tmp_path / "out")
    found = worst_case(study, "end", tmp_path / "out")
    assert found.values["leak.odd"] == 1.0
    assert found.values["vessel.volume"] == pytest.approx(4e-3, rel=0.02)
    assert found.failures["this variant can't be built: ZeroDivisionError: float division by zero"] > 0
    rows = pq.read_table(found.table).to_pandas()
    assert len(rows) == found.runs
    assert rows["failure"].notna().sum() == sum(found.failures.values())


# --- what is made of it -----------------------------------------------------------------------------------------------


def test_the_worst_case_is_at_the_corner_where_it_is_known_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The highest pressure at the end: the largest volume and start, the smallest conductance."""
    study = load_study(written_study(tmp_path))
    found = worst_case(study, "end", tmp_path)
    exact = float(pressure(0.5, 2.2e-3, 0.8 * CONDUCTANCE, 110e5))
    assert found.worst == pytest.approx(exact, rel=2e-3)
    assert set(found.at_limits) == {each.key for each in study.varied}
    assert found.command.startswith("hilserver study ")
    table = found.table.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(worst, "GENERATIONS", 2)
        assert worst_case(study, "mean", tmp_path).table != found.table
    assert found.table.read_bytes() == table, "the search for another figure leaves it alone"
    lowest = load_study(
        written_study(tmp_path, STUDY.replace('"final(vessel.p)"', '{ figure = "final(vessel.p)", above = "30 bar" }'))
    )
    assert worst_case(lowest, "end", tmp_path).worst == pytest.approx(
        float(pressure(0.5, 1.8e-3, 1.2 * CONDUCTANCE, 90e5)), rel=5e-3
    )


def test_every_candidate_of_the_worst_case_is_in_a_table_for_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the values of a row, its run is repeated."""
    monkeypatch.setattr(worst, "GENERATIONS", 4)
    study = load_study(written_study(tmp_path))
    one, two = (worst_case(study, "end", tmp_path / str(n), workers=n) for n in (0, 2))
    assert pq.read_table(one.table).equals(pq.read_table(two.table))
    assert (one.worst, one.values, one.runs) == (two.worst, two.values, two.runs)
    rows = pq.read_table(one.table).to_pandas()
    assert rows["variant"].tolist() == list(range(one.runs))
    assert rows["end"].max() == one.worst
    values = {each.key: float(rows[each.key].iloc[7]) for each in study.varied}
    again = repeat(study, values, "again", tmp_path / "out")
    assert again.figures[0] == pytest.approx(rows["end"].iloc[7], rel=1e-9)


def test_a_run_is_repeated_as_a_circuit_run(tmp_path: Path) -> None:
    """To 1e-9: numbers written in place are rounded otherwise."""
    study = load_study(written_study(tmp_path))
    result = run_study(study, tmp_path / "out")
    number = result.worst(study.figures[0], 1)[0]
    assert result.column("end")[number] == result.column("end").max()
    run = repeat(study, values_of_variant(study, number), "again", tmp_path / "out")
    assert run.figures[0] == pytest.approx(result.column("end")[number], rel=1e-9)
    assert (tmp_path / "out/again.csv") in run.files
    assert result.command(number).endswith(f"--repeat {number}")


def test_page_and_table(tmp_path: Path) -> None:
    text = STUDY.replace('"final(vessel.p)"', '{ figure = "final(vessel.p)", below = "28 bar" }')
    result = run_study(load_study(written_study(tmp_path, text)), tmp_path / "out")
    written = write_study(result, tmp_path / "out")
    page = written[0].read_text()
    share = np.mean(result.column("end") <= 28e5)
    assert 0.0 < share < 1.0
    assert f"{share:.1%} of all runs are within the limits" in page
    assert "--repeat" in page
    assert "What end depends on" in page
    table = pq.read_table(tmp_path / "out/tolerances.parquet")
    assert table.column_names == [
        "variant", "vessel.volume", "capillary.nominal_flow.flow", "nodes.vessel.pressure", "end", "mean", "failure"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("latin_hypercube", "lhs", "plan", "latin_hypercube"),
        ('"± 20 %"', '"± 20 bar"', "vary.capillary.nominal_flow.flow", "measured in"),
        ('"± 20 %"', "5", "vary.capillary.nominal_flow.flow", '"± 5 %"'),
        ('"± 20 %"', '"99 l/min ± 5 %"', "vary.capillary.nominal_flow.flow", "outside this tolerance"),
        (
            '"capillary.nominal_flow.flow"',
            '"capilary.nominal_flow.flow"',
            "vary.capilary.nominal_flow.flow",
            "Did you mean",
        ),
        (
            "[vary]",
            '[vary]\n"components.capillary.nominal_flow.flow" = "± 5 %"',
            "vary.capillary.nominal_flow.flow",
            "is the same as components.capillary.nominal_flow.flow",
        ),
        ('plan = "latin_hypercube"', 'plan = "sobol"', "samples", "32 or 64"),
        ('plan = "latin_hypercube"', 'fixed = ["capillary.type"]', "fixed", "has no tolerance"),
        ('circuit = "emptying.toml"', 'circuit = "none.toml"', "", "no such file"),
        ('duration = "0.5 s"', 'cycle = "none.toml"', "", "no such file"),
        ("final(vessel.p)", "final(vesel.p)", "figures.end", "vessel.p"),
    ],
)
def test_a_wrong_study_file_is_refused(old: str, new: str, key: str, said: str, tmp_path: Path) -> None:
    assert old in STUDY
    with pytest.raises(ConfigurationError) as refused:
        load_study(written_study(tmp_path, STUDY.replace(old, new)))
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message


def test_too_many_runs_are_refused(tmp_path: Path) -> None:
    text = STUDY.replace("latin_hypercube", "grid").replace("samples = 40", "levels = 1000")
    with pytest.raises(HilserverError, match="fewer levels"):
        plan_of(load_study(written_study(tmp_path, text)))
