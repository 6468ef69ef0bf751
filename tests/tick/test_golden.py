"""Golden runs: recorded once, computed again by every version since, bit for bit.

``tests/golden`` holds test sequences with the logs of their simulated runs: every strategy, live switches, missed
ticks, sensors that fail, trips. Each is replayed from the recorded inputs, and simulated once more with the rig's
simulated machine. A difference is a fault, or a wanted change of the physics; then, with the reason in the commit:

    python tests/tick/test_golden.py
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hilserver.compiler.levels import levels
from hilserver.compiler.loading import LEVEL_VARIABLE
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.simulation.replay import replay_log

FOLDER = Path(__file__).parents[1] / "golden"
RUNS = ("demo", "lift", "boom", "workshop", "frame")


def simulate(name: str, log: Path) -> None:
    """Run a golden sequence; every tick is recorded in ``log``."""
    sequence = load_sequence(FOLDER / f"{name}.toml")
    assert sequence.rig_file is not None
    rig = load_rig(sequence.rig_file)
    recording = rig.settings.recording.model_copy(update={"compression": "none"})  # xz makes of it a smaller file
    rig = replace(rig, settings=rig.settings.model_copy(update={"recording": recording}))
    done = simulate_sequence(sequence, rig, log)
    assert done.ok, [str(verdict) for verdict in done.verdicts]


@pytest.fixture(params=RUNS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The log of a golden run."""
    log = tmp_path / f"{request.param}.arrow"
    log.write_bytes(lzma.decompress((FOLDER / f"{request.param}.arrow.xz").read_bytes()))
    return log


def test_replay_gives_the_same_bits(golden: Path) -> None:
    result = replay_log(golden, tolerance=0.0)
    assert (result.differences, result.starts, result.only_in_log, result.damages) == ((), (), (), ())
    assert result.compared == result.rows > 1000
    assert result.switches >= 1


ELSEWHERE = """
import sys
from pathlib import Path

from hilserver.simulation.replay import replay_log

result = replay_log(Path(sys.argv[1]), tolerance=0.0)
assert (result.differences, result.starts, result.only_in_log, result.damages) == ((), (), (), ()), result
"""


def test_another_processor_gives_the_same_bits(golden: Path) -> None:
    """One whose linear algebra uses other instructions and one thread, and that runs the program of the lower level.

    The gains of the estimator, which are calculated when a rig is loaded, once depended on it.
    """
    other = {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1", LEVEL_VARIABLE: levels()[0]}
    command = [sys.executable, "-c", ELSEWHERE, str(golden)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **other})
    assert done.returncode == 0, done.stderr


def test_simulation_gives_the_same_bits(golden: Path) -> None:
    again = golden.with_name("again.arrow")
    simulate(golden.stem, again)
    before, now = LogReader(golden).read_all(), LogReader(again).read_all()
    assert before.columns.keys() == now.columns.keys()
    assert len(before.circuits) == len(now.circuits)
    values = {**before.columns, **{f"circuit {k}": s.values for k, s in enumerate(before.circuits)}}
    computed = {**now.columns, **{f"circuit {k}": s.values for k, s in enumerate(now.circuits)}}
    same = {name: v.astype(computed[name].dtype) for name, v in values.items()}  # in logs of format 1 all are floats
    assert [name for name in values if same[name].tobytes() != computed[name].tobytes()] == []
    assert np.isin((1, 2, 3, 4), before.columns["mode"]).all()


if __name__ == "__main__":
    for name in RUNS:
        log = FOLDER / f"{name}.arrow"
        simulate(name, log)
        log.with_suffix(".arrow.xz").write_bytes(lzma.compress(log.read_bytes(), preset=9))
        log.unlink()
