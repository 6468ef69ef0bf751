"""What the bridge of an actuator tracks, by its names: in an export and in the viewer; the log itself has numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from frame_bench import FRAME

from hilserver.record.export import export
from hilserver.record.reader import LogReader
from hilserver.record.shown_columns import shown_columns
from hilserver.rig.build import load_rig
from hilserver.service.actuator_status import parameter_columns
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind
from hilserver.viewer.arrow_log import ArrowLog


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The frame in the first two seconds of the earthquake."""
    path = tmp_path_factory.mktemp("frame") / "frame.arrow"
    with LockstepRun(load_rig(FRAME), path) as run:
        run.arm_and_start()
        run.command(CommandKind.CYCLE, 1.0)
        run.run(7 * 4096)
    return path


def test_names_are_those_of_the_telemetry_and_nothing_is_lost(log: Path) -> None:
    header = LogReader(log).header
    shown = shown_columns(header)
    assert tuple(shown.values()) == header.columns
    tracked = {name: column for name, column in shown.items() if name != column}
    assert tracked == parameter_columns(load_rig(FRAME))
    assert "actuator.table.memory_7" in header.columns


def test_a_name_that_is_taken_remains_as_it_is(log: Path) -> None:
    header = LogReader(log).header
    rig = {"actuators": {"table": {"uncertainty": {"error": 0.1, "f90": 0.1}}, "other": 3}}
    shown = shown_columns(header.model_copy(update={"configuration": {"rig": rig}}))
    assert tuple(shown.values()) == header.columns
    assert [name for name, column in shown.items() if name != column] == ["actuator.table.f90"]


def test_export_and_viewer_have_the_names(log: Path, tmp_path: Path) -> None:
    column, name = "actuator.table.memory_7", "actuator.table.specimen_stiffness"
    logged = LogReader(log).read_all().columns
    right = logged[column]
    assert np.ptp(right) > 0.1
    for number, pattern in enumerate((name, column, "*")):
        out = tmp_path / f"{number}.parquet"
        export(log, out, columns=[pattern])
        table = pyarrow.parquet.read_table(out)
        assert column not in table.column_names
        assert np.array_equal(table.column(name).to_numpy(), right)
    viewed = ArrowLog(log)
    assert column not in viewed.units
    assert np.array_equal(viewed.read(name, 0, len(right)), right)
    assert np.array_equal(viewed.read("actuator.table.error", 0, 9), logged["actuator.table.error"][:9])
