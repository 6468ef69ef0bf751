"""The experiments on closed chains: runs by BDF and by two threads, and the reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bench import bar_chain, mechanism

from hilserver.bench.chain_runs import run_bdf, run_fixed, run_halves
from hilserver.bench.closed_chains import generated_loops, slider_crank
from hilserver.bench.generated_loop import generated_loop
from hilserver.compiler import standard_program
from hilserver.errors import HilserverError
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.initial import start_of
from hilserver.report.document import Grid

pytestmark = pytest.mark.slow
CRANK = Path(__file__).parents[2] / "config/mechanisms/spatial_slider_crank.toml"


@pytest.fixture(scope="module")
def program() -> Any:
    return standard_program()


def test_two_threads_share_a_loop(program: Any) -> None:
    """The halves of a loop at the same time: what one thread finds, to rounding."""
    tree = tree_of(generated_loop(16))
    one = run_fixed(program, tree, start_of(tree), 0.02, 1e-3, 5)
    two = run_halves(program, tree, start_of(tree), 0.02, 1e-3, 5)
    assert np.abs(one.states[-1]).max() > 0.001
    assert two.states == pytest.approx(one.states, abs=1e-9)
    assert two.time == pytest.approx(one.time)


def test_a_mechanism_without_two_branches_is_not_shared(program: Any) -> None:
    tree = tree_of(mechanism(*bar_chain("a", "b", length=0.5, mass=1.0)))
    with pytest.raises(HilserverError, match="only one branch from the ground"):
        run_halves(program, tree, tree.drawn(), 0.1, 1e-3)


def test_bdf_agrees_with_runge_kutta(program: Any) -> None:
    """Offline integration of variable order, the loop of five, 1 s: both within what is asked of BDF."""
    tree = tree_of(generated_loop(5))
    fixed = run_fixed(program, tree, start_of(tree), 1.0, 1e-3, 100)
    bdf = run_bdf(program, tree, start_of(tree), 1.0, 0.1, rtol=1e-7, atol=1e-9)
    assert bdf.states == pytest.approx(fixed.states, abs=1e-4)
    assert bdf.gap < 1e-6
    assert bdf.time == pytest.approx(fixed.time)


def test_a_run_that_diverges_is_an_error(program: Any) -> None:
    tree = tree_of(generated_loop(151))
    with pytest.raises(HilserverError, match="choose a smaller step"):
        run_fixed(program, tree, start_of(tree), 5.0, 2e-2)


def test_the_experiments_of_the_source(tmp_path: Path) -> None:
    """Small ones: a row per size with costs and accuracy, beside those of the source; and they are written."""
    crank = slider_crank(CRANK, (1, 5))
    cost, accuracy = (block for block in crank.blocks if isinstance(block, Grid))
    assert [row[:3] for row in cost.rows] == [("1", "0.058", "0.165"), ("5", "0.368", "0.912")]
    assert all(float(cell) > 0.0 for row in cost.rows for cell in row[3:])
    errors = [float(row[2]) for row in accuracy.rows]
    assert errors[1] < 1e-4 < errors[0]
    assert errors[3] < errors[2] < 0.1
    loops = generated_loops((5, 61), 0.2, bursts=1)
    cost, threads = (block for block in loops.blocks if isinstance(block, Grid))
    assert [row[0] for row in cost.rows] == ["5", "61"]
    assert all(float(row[4]) < 1e-5 for row in cost.rows)
    assert float(cost.rows[0][5]) < 1e-4
    assert cost.rows[1][5] == "–"
    assert all(float(cell) > 0.0 for row in threads.rows for cell in row[:3])
    assert {path.suffix for path in loops.write(tmp_path, "loop")} == {".html", ".md", ".png"}
