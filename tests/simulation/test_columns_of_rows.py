"""Of the rows of a run, only some columns are stored: the same numbers as in whole rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.rows import RowMemory
from hilserver.simulation.steps import completed
from hilserver.tick.codes import CommandKind

RIG = Path(__file__).parents[2] / "config/rigs/demo.toml"


@pytest.mark.parametrize("more", ["", "reactions = 2", "log"])
def test_columns_are_those_of_whole_rows(more: str, tmp_path: Path) -> None:
    """With a log and with reactions, too, for which whole rows are needed; and whole rows after them."""
    file = tmp_path / "rig.toml"
    text = RIG.read_text().replace('"../', f'"{RIG.parents[1]}/')
    file.write_text(text.replace("[loop]\n", f"[loop]\n{more if more != 'log' else ''}\n"))
    rig = load_rig(file)
    columns = np.array([rig.layout.column("channel.p_A"), 0, rig.layout.width - 1, rig.layout.column("mode")])
    found = []
    for wanted in (False, True):
        log = tmp_path / f"{wanted}.arrow" if more == "log" else None
        with LockstepRun(rig, log) as run:
            memory, parts = RowMemory(), list[bytes]()
            for kind, ticks in ((CommandKind.ARM, 40), (CommandKind.START, 60), (CommandKind.CYCLE, 300)):
                run.command(kind, 1.0)
                if wanted:
                    rows = completed(run.running(ticks, memory=memory, columns=columns))
                else:
                    rows = run.run(ticks)[:, columns]
                parts.append(rows.tobytes())
            parts.append(run.run(5).tobytes())
        found.append(parts)
    assert found[0] == found[1]
    assert len(set(found[0])) == 4
