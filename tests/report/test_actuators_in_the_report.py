"""The report on a run of a position-controlled actuator: its figures are those of the log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frame_bench import FRAME

from hilserver.record.reader import LogReader
from hilserver.record.summary import summarise
from hilserver.report.document import Grid
from hilserver.report.run_report import run_report
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.hybrid.displacement import DisplacementStrategy
from hilserver.viewer.moments import MomentList


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first seconds of the earthquake, another strategy on the way, an end with the trip of an operator."""
    path = tmp_path_factory.mktemp("log") / "frame.arrow"
    with LockstepRun(load_rig(FRAME), path) as run:
        run.arm_and_start()
        run.command(CommandKind.CYCLE, 1.0)
        run.run(4 * 4096)
        run.command(CommandKind.STRATEGY, 0.0, float(DisplacementStrategy.adaptive))
        run.run(4 * 4096)
        run.command(CommandKind.TRIP)
        run.run(100)
    return path


def test_figures_are_those_of_the_log(log: Path) -> None:
    columns = LogReader(log).read_all().columns
    running = columns["mode"] == Mode.RUNNING
    position, force = (columns[f"actuator.table.{word}"][running] for word in ("position", "force_measured"))
    error = columns["actuator.table.measured"][running] - position
    rms, largest = np.sqrt(np.nanmean(error**2)), np.nanmax(np.abs(error))
    limited = np.mean(columns["actuator.table.saturation"][running] > 0)
    tables = {block.head[0]: block for block in run_report(log).blocks if isinstance(block, Grid)}
    (row,) = tables["actuator"].rows
    assert row == (
        "table",
        f"{np.count_nonzero(running) / 4096:.4g}",
        f"{1e3 * np.ptp(position):.3g}",
        f"{1e3 * rms:.3g}",
        f"{100 * rms / np.ptp(position):.2g} %",
        f"{1e3 * largest:.3g}",
        f"{np.nanmax(np.abs(force)):.4g}",
        f"{100 * limited:.2g} %",
    )
    assert np.ptp(position) > 0.5e-3, "the frame has moved"
    sums = summarise(log).actuators["table"]
    assert [sums.rms, sums.largest] == pytest.approx([rms, largest])


def test_the_share_at_limits_counts_ticks_at_either_limit(tmp_path: Path) -> None:
    """With a slew limit that the approach exceeds."""
    text = FRAME.read_text().replace('"../', f'"{FRAME.parent.parent}/').replace('slew = "1 m/s"', 'slew = "2 mm/s"')
    rig, path = tmp_path / "frame.toml", tmp_path / "frame.arrow"
    rig.write_text(text.replace('max_error = "2 mm"', 'max_error = "40 mm"'))
    with LockstepRun(load_rig(rig), path) as run:
        run.arm_and_start()
        run.command(CommandKind.CYCLE, 1.0)
        run.run(8 * 4096)
    columns = LogReader(path).read_all().columns
    flags = columns["actuator.table.saturation"][columns["mode"] == Mode.RUNNING]
    assert summarise(path).actuators["table"].share_limited == np.mean(flags > 0) > 0.05


def test_a_selected_strategy_is_listed_with_its_name(log: Path) -> None:
    """In the report and among the moments of the viewer."""
    said = "command strategy adaptive of actuator table"
    (events,) = [b for b in run_report(log).blocks if isinstance(b, Grid) and b.head[-1] == "event"]
    assert said in [event for _, _, event in events.rows]
    table = LogReader(log).read_all()
    moments = MomentList(table.header)
    moments.add_events((0.0, event) for _, event in table.events)
    assert said in [moment.text for moment in moments.found]
