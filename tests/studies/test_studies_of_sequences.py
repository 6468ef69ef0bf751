"""Studies of a test sequence: each variant has the verdicts of the sequence on a rig of files with these values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hilserver.errors import ConfigurationError
from hilserver.rig.build import load_rig
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.studies.settings import load_study
from hilserver.studies.study import StudyResult, is_worse_low, repeat, run_study

CONFIG = Path(__file__).parents[2] / "config"
BAR = 1e5
SEQUENCE = f"""
rig = "{CONFIG}/rigs/lift.toml"
length = "0.6 s"
[[step]]
at = "0.1 s"
send = "arm"
[[step]]
at = "0.2 s"
name = "start"
send = "start"
[[expect]]
name = "running"
channel = "mode"
value = "RUNNING"
after = "start"
delay = "20 ms"
[[expect]]
name = "supply"
channel = "circuit.supply.p"
at = "0.4 s"
max = "145 bar"
"""
STUDY = """
sequence = "sequence.toml"
plan = "grid"
levels = 5
[vary]
"circuit.pump.set_pressure" = { from = "135 bar", to = "155 bar" }
"""


def run(folder: Path, text: str = STUDY, workers: int = 0) -> StudyResult:
    (folder / "sequence.toml").write_text(SEQUENCE)
    (folder / "study.toml").write_text(text)
    return run_study(load_study(folder / "study.toml"), folder / "out", workers)


def test_verdicts_are_those_of_the_recorded_channel(tmp_path: Path) -> None:
    """Some pass, some do not: exactly those whose supply exceeds 145 bar in the time of the expectation."""
    figures = """
[figures]
all = { figure = "passed(all)", above = 1.0 }
supply = "passed(supply)"
running = "passed(running)"
highest = { figure = "max(circuit.supply.p)", start = "0.4 s" }
"""
    result = run(tmp_path, STUDY + figures)
    assert result.failures() == {}
    kept = result.column("highest") <= 145.0 * BAR
    assert 0 < kept.sum() < len(kept)
    assert result.column("supply").tolist() == kept.astype(float).tolist()
    assert result.column("running").tolist() == [1.0] * 5
    assert result.column("all") == pytest.approx(np.where(kept, 1.0, 0.75))  # two steps and two expectations
    assert result.share_within(result.study.figures[0]) == kept.mean()
    assert all(map(is_worse_low, result.study.figures[:3]))
    assert not kept[result.worst(result.study.figures[1], 1)[0]]


def test_a_variant_has_the_verdicts_of_the_rig_with_these_values(tmp_path: Path) -> None:
    """Against `hilserver test` on a copy of the files."""
    result = run(tmp_path)
    names = [figure.name for figure in result.study.figures]
    assert names == ["passed", "running", "supply"]
    circuit = (CONFIG / "circuits/lift.toml").read_text()
    rig = (CONFIG / "rigs/lift.toml").read_text().replace("../circuits/lift.toml", str(tmp_path / "lift.toml"))
    rig = rig.replace('"../', f'"{CONFIG}/')
    (tmp_path / "rig.toml").write_text(rig)
    for x, *expected in zip(
        result.column("circuit.pump.set_pressure"), *(result.column(name) for name in names), strict=True
    ):
        assert 'set_pressure = "140 bar"' in circuit
        text = circuit.replace('set_pressure = "140 bar"', f'set_pressure = "{float(x)!r} Pa"')
        (tmp_path / "lift.toml").write_text(text)
        found = simulate_sequence(load_sequence(tmp_path / "sequence.toml"), load_rig(tmp_path / "rig.toml"))
        outcomes = {verdict.name: float(verdict.outcome == "passed") for verdict in found.verdicts}
        assert expected == [np.mean(list(outcomes.values())), outcomes["running"], outcomes["supply"]]


def test_a_rig_that_trips_has_verdicts(tmp_path: Path) -> None:
    """A load of 5 t exceeds the pressure limit: the sequence does not fail to run, but its expectation fails."""
    text = STUDY.replace('"circuit.pump.set_pressure" = { from = "135 bar", to = "155 bar" }',
                         '"machine.load.mass" = { from = "390 kg", to = "5000 kg" }')  # fmt: skip
    result = run(tmp_path, text.replace("levels = 5", "levels = 2"))
    assert result.failures() == {}
    assert result.column("running").tolist() == [1.0, 0.0]


def test_processes_and_strategies(tmp_path: Path) -> None:
    result = run(tmp_path, STUDY.replace("levels = 5", "levels = 2") + 'strategy = ["feedback", "second_order"]\n')
    assert run_study(result.study, tmp_path / "two", workers=2).table.equals(result.table)
    assert result.table.num_rows == 4
    assert sorted(set(result.table["strategy"].to_pylist())) == ["feedback", "second_order"]


def test_a_run_is_repeated_with_its_report_and_log(tmp_path: Path) -> None:
    result = run(tmp_path)
    found = repeat(result.study, {"circuit.pump.set_pressure": 155.0 * BAR}, "again", tmp_path / "out")
    assert found.figures.tolist() == [0.75, 1.0, 0.0]
    assert {path.name for path in found.files} >= {"again.html", "again.arrow"}


@pytest.mark.parametrize(
    ("added", "key", "said"),
    [
        ('[figures]\nit = "passed(suply)"', "figures.it", "supply"),
        ('[figures]\nit = { figure = "passed(supply)", start = "0.1 s" }', "figures.it", "verdicts"),
        ('[figures]\nit = "fidelity(flow A)"', "figures.it", "not a reduction of this study"),
    ],
)
def test_a_wrong_study_file_is_refused(added: str, key: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "sequence.toml").write_text(SEQUENCE)
    (tmp_path / "study.toml").write_text(STUDY + added)
    with pytest.raises(ConfigurationError) as refused:
        load_study(tmp_path / "study.toml")
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message
