"""Studies of a test sequence: each variant has the verdicts of the sequence on a rig of files with these values."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import pytest
from command_line import Command
from service_harness import rig_text

from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import PreparedSequence, _Bench, simulate_sequence
from hilserver.simulation.lockstep import LockstepRun
from hilserver.studies import report, varied_rig
from hilserver.studies.execution import evaluate
from hilserver.studies.sequence_runs import SequenceRuns, in_turns
from hilserver.studies.settings import load_study
from hilserver.studies.study import StudyResult, is_worse_low, plan_of, prepared, repeat, run_study
from hilserver.studies.subject import EndedEarly
from hilserver.studies.varied_rig import RigValues

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


def run(folder: Path, text: str = STUDY, workers: int = 0, sequence: str = SEQUENCE) -> StudyResult:
    (folder / "sequence.toml").write_text(sequence)
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


FAST = """
sequence = "sequence.toml"
plan = "grid"
[vary]
"circuit.pump.set_pressure" = { steps = ["40 bar", "100 bar", "150 bar"] }
[figures]
highest = "max(x)"
"""
LIFTING = (
    SEQUENCE.replace(f"{CONFIG}/rigs/lift.toml", "rig.toml")
    + '[inputs.joystick]\nshape = "step"\npoints = [["0.25 s", 0], ["0.3 s", 0.8], ["0.5 s", 0.8]]\n'
)


def lifted(folder: Path, limit: str, sequence: str = LIFTING, action: str = "trip") -> StudyResult:
    """At 150 bar the load is lifted by 139 mm, nominally (140 bar) by 133 mm, at 100 bar by 108 mm, from 250 mm on."""
    rig = (CONFIG / "rigs/lift.toml").read_text().replace('"../', f'"{CONFIG}/')
    limits = f'[limits]\nhigh_up = {{ channel = "x", max = "{limit}", action = "{action}" }}\n'
    (folder / "rig.toml").write_text(rig.replace("[limits]\n", limits))
    return run(folder, FAST, sequence=sequence)


def test_runs_that_ended_early_are_counted_and_named(tmp_path: Path) -> None:
    """By their limit, though no verdict is among the figures. They have figures nevertheless."""
    result = lifted(tmp_path, "385 mm")
    assert result.failures() == {}
    assert np.isfinite(result.column("highest")).all()
    assert result.ends().keys() == {2}
    assert re.fullmatch(r"ended in mode FAULT \(limit high_up\) at 0\.\d+ s", result.ends()[2]), result.ends()
    assert result.table["ended"].to_pylist() == [None, None, result.ends()[2]]
    assert ("Ended early", "1 (33.3%)") in list(report.facts(result))
    grid = report.ends_grid(result)
    assert grid is not None
    assert grid.rows == ((result.ends()[2], "1", "2"),)
    assert report.study_figures(result)["ended_early"] == 1
    page, *_ = report.write_study(result, tmp_path / "out")
    assert "Runs that ended early" in page.read_text()
    assert "limit high_up" in page.read_text()
    assert run_study(result.study, tmp_path / "two", workers=2).table.equals(result.table)


def test_a_step_that_was_refused_is_why_a_run_ended_early(tmp_path: Path) -> None:
    """The rig stays ARMED, in which it can't be stopped."""
    stop = '[[step]]\nat = "0.6 s"\nname = "end"\nsend = "stop"\n'
    (why,) = lifted(tmp_path, "385 mm", LIFTING + stop, action="ramp").ends().values()
    assert why.startswith("ended in mode ARMED (limit high_up) at 0.")
    assert why.endswith(
        "s; ended with step end: refused: not possible in this mode (stop needs RUNNING, the mode is ARMED)"
    )


def test_a_study_whose_nominal_run_ends_early_says_so(tmp_path: Path) -> None:
    """A sequence can test that a rig trips; where no run ended early, that is stated too."""
    result = lifted(tmp_path, "340 mm")
    assert result.ends().keys() == {1, 2}
    (note,) = [note for note in report.study_notes(result) if "nominal" in note]
    assert note.startswith("The nominal run ended early, too: ended in mode FAULT (limit high_up) at 0.")
    none = lifted(tmp_path, "500 mm")
    assert none.ends() == {}
    assert none.table["ended"].null_count == 3
    assert ("Ended early", "none") in list(report.facts(none))
    assert report.ends_grid(none) is None
    assert not any("nominal" in note for note in report.study_notes(none))


def test_the_terminal_says_what_ended_a_run(tmp_path: Path, hilserver: Command) -> None:
    """Of a study, of one of its runs, and of the worst case."""
    lifted(tmp_path, "385 mm")
    arguments = ("study", tmp_path / "study.toml", "-o", tmp_path / "out")
    said = hilserver(*arguments, "-j", "0")
    assert said.code == 0, said.err
    assert "Ended early: 1 (33.3%)" in said.out
    assert "Runs that ended early" in said.out
    once = hilserver(*arguments, "--repeat", "2").out
    assert re.search(r"The run ended in mode FAULT \(limit high_up\) at 0\.\d+ s\.", once), once
    worst = hilserver(*arguments, "--worst", "highest", "-j", "0").out
    assert re.search(r"This run ended in mode FAULT \(limit high_up\) at 0\.\d+ s\.", worst), worst
    assert re.search(r"\d+ of all runs ended early\.", worst), worst


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


# --- nothing of a variant remains in the next one ---------------------------------------------------------------------

EVENTFUL = f"""
rig = "{CONFIG}/rigs/demo.toml"
length = "1.4 s"
[[step]]
at = "0.1 s"
send = "arm"
[[step]]
at = "0.15 s"
name = "start"
send = "start"
[[fault]]
at = "0.4 s"
fault = "stuck"
sensor = "x"
[[fault]]
at = "0.5 s"
fault = "missed"
ticks = 3
[[fault]]
at = "0.43 s"
fault = "healed"
sensor = "x"
[[step]]
at = "0.7 s"
send = "switch"
component = "relief"
set = {{ opening_pressure = "100 bar" }}
[[step]]
at = "0.8 s"
send = "switch"
component = "relief"
set = {{ opening_pressure = "20 l/min" }}
refused = true
[[step]]
at = "0.9 s"
send = "switch"
component = "pump"
set = {{ set_pressure = "130 bar" }}
[[step]]
at = "1.1 s"
send = "stop"
[[step]]
at = "1.15 s"
send = "start"
[inputs.joystick]
shape = "step"
points = [["0.2 s", 0.0], ["0.3 s", 0.6], ["1.3 s", 0.4]]
[[expect]]
name = "running"
channel = "mode"
value = "RUNNING"
after = "start"
until = "0.7 s"
"""
EVENTFUL_STUDY = """
sequence = "sequence.toml"
plan = "latin_hypercube"
samples = 6
[vary]
"machine.load.mass" = "± 20 %"
"machine.cylinder.bore" = "± 2 %"
"circuit.relief.opening_pressure" = "± 8 %"
"circuit.pump.set_pressure" = "± 15 %"
"sensors.x.delay" = { from = "0 ms", to = "4 ms" }
strategy = ["inverse_static", "feedback"]
[figures]
passed = "passed(all)"
supply = "max(circuit.supply.p)"
position = "final(x)"
command = "max(valve.main.command)"
"""


def test_a_variant_is_the_same_alone_in_any_order_and_in_any_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, and as it is where nothing is taken over: each rig assembled, each circuit read and packed anew.

    With switches, one of them refused, inputs, a sensor that fails, missed ticks and a stop.
    """
    (tmp_path / "sequence.toml").write_text(EVENTFUL)
    (tmp_path / "study.toml").write_text(EVENTFUL_STUDY)
    study = load_study(tmp_path / "study.toml")
    values, runs = plan_of(study), prepared(study)
    found = [runs(row).tobytes() for row in values]
    assert len(set(found)) == len(values)
    assert np.frombuffer(found[0])[0] == 8.0 / 9.0  # as expected; the input is at rest after the stop
    assert [runs(row).tobytes() for row in values[::-1]] == found[::-1]
    assert isinstance(runs, SequenceRuns)
    assert [as_bytes(each) for each in runs.together(values[::-1])] == found[::-1]
    assert prepared(study)(values[3]).tobytes() == found[3]
    batches = evaluate(study.subject, values, len(study.figures), workers=2, batch=2)
    assert [row.tobytes() for each in batches for row in each.figures] == found

    nothing_is_taken_over(monkeypatch)
    assert [prepared(study)(row).tobytes() for row in values] == found


def as_bytes(found: Floats | EndedEarly | Exception) -> bytes:
    """The figures of a variant; the reason if it has none."""
    found = found.figures if isinstance(found, EndedEarly) else found
    return found.tobytes() if isinstance(found, np.ndarray) else str(found).encode()


def nothing_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rig is assembled, each circuit read and packed, each sequence prepared, and each command given alone."""

    def pack_anew(rig: Rig, circuit: Circuit, file: str = "", like: PackedCircuit | None = None) -> PackedCircuit:
        return pack(circuit, rig.library, rig.layout.bindings, rig.layout.ports, file, rig.accounts)

    def read_anew(rig: Rig, source: Mapping[str, Any], file: str = "", before: Circuit | None = None) -> Circuit:
        return read_circuit(source, rig.library, file, rig.circuit_folder)

    monkeypatch.setattr(varied_rig, "assemble_variant", lambda rig, sources: assemble(sources, rig.file, rig.library))
    monkeypatch.setattr(RigValues, "_in_place", lambda values, wanted: None)
    monkeypatch.setattr(Rig, "pack", pack_anew)
    monkeypatch.setattr(Rig, "read_circuit", read_anew)
    monkeypatch.setattr(PreparedSequence, "serves", lambda sequence, rig: False)
    monkeypatch.setattr(_Bench, "_can_follow", lambda bench, action, play: False)


REACTING = """
length = "0.9 s"
[[step]]
at = "0.1 s"
send = "arm"
[[step]]
at = "0.2 s"
send = "start"
[[step]]
at = "0.3 s"
send = "react"
reaction = "high"
when = "x > 250 mm"
then = "stop"
[inputs.joystick]
shape = "step"
points = [["0.35 s", 0.0], ["0.4 s", 0.6]]
[[expect]]
channel = "mode"
after = "high"
value = "ARMED"
"""
REACTING_STUDY = """
sequence = "sequence.toml"
plan = "grid"
levels = 4
[vary]
"circuit.pump.set_pressure" = { from = "30 bar", to = "150 bar" }
[figures]
passed = "passed(all)"
position = "final(x)"
"""


def test_variants_whose_sequence_has_reactions_are_run_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit as alone, and as where whole rows are kept. The reaction fires in some of them only."""
    text = rig_text("reacting", tmp_path, {"rate =": 'rate = "1 kHz"\nreactions = 1'})
    (tmp_path / "rig.toml").write_text(text)
    (tmp_path / "sequence.toml").write_text(f'rig = "rig.toml"\n{REACTING}')
    (tmp_path / "study.toml").write_text(REACTING_STUDY)
    study = load_study(tmp_path / "study.toml")
    values, runs = plan_of(study), prepared(study)
    assert isinstance(runs, SequenceRuns)
    assert runs.most_together >= len(values)
    found = [as_bytes(each) for each in runs.together(values)]
    assert len({np.frombuffer(each)[0] for each in found}) == 2
    assert [runs(row).tobytes() for row in values] == found
    whole_rows = property(lambda run: False, lambda run, suffice: None)
    monkeypatch.setattr(LockstepRun, "_columns_suffice", whole_rows, raising=False)
    assert [prepared(study)(row).tobytes() for row in values] == found


SOME_FAIL = (
    EVENTFUL_STUDY.replace("samples = 6", "samples = 10")
    .replace(
        '"machine.load.mass" = "± 20 %"', '"machine.load.mass" = { steps = ["400 kg", "-1 kg", "3000 kg", "800 kg"] }'
    )
    .replace("strategy = [", '"circuit.relief" = ["relief_valve", "static_relief_valve"]\nstrategy = [')
)


def test_variants_that_fail_or_have_other_types_change_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turns, some with a mass that nothing has, some that trip, some with another relief valve: bit for bit."""
    (tmp_path / "sequence.toml").write_text(EVENTFUL)
    (tmp_path / "study.toml").write_text(SOME_FAIL)
    study = load_study(tmp_path / "study.toml")
    values, runs = plan_of(study), prepared(study)
    assert isinstance(runs, SequenceRuns)
    found = [as_bytes(each) for each in runs.together(values)]
    failed = [text for text in found if text.startswith(b"this variant can't be built: ")]
    assert 1 <= len(failed) <= 5
    assert len(set(found)) == len(values) - len(failed) + len(set(failed))
    assert [as_bytes(each) for each in runs.together(values[::-1])] == found[::-1]
    batches = list(evaluate(study.subject, values, len(study.figures), batch=4))
    reasons = {number: text for each in batches for number, text in each.failures.items()}
    rows = [row for each in batches for row in each.figures]
    assert [reasons[k].encode() if k in reasons else row.tobytes() for k, row in enumerate(rows)] == found
    nothing_is_taken_over(monkeypatch)
    for row, expected in zip(values, found, strict=True):
        anew = prepared(study)
        assert isinstance(anew, SequenceRuns)
        assert [as_bytes(each) for each in anew.together(row[None])] == [expected]


def test_a_run_in_turns_has_its_own_limit() -> None:
    """Of computing time: the others are not aborted, and do not count."""

    def run(seconds: float) -> Generator[int, None, str]:
        for tick in range(1, 4):
            end = thread_time() + seconds
            while thread_time() < end:
                pass
            yield tick
        return "done"

    slow, *others = in_turns([run(0.3), *(run(0.05) for _ in range(6))], 0.5)
    assert str(slow) == "aborted after 0.5 s of computing time, at tick 2"
    assert others == ["done"] * 6


def test_a_sequence_is_prepared_anew_for_a_rig_with_other_settings(tmp_path: Path) -> None:
    """Other inputs could refuse its commands; values of circuits and sensors change nothing of what was prepared."""
    (tmp_path / "sequence.toml").write_text(SEQUENCE)
    rig = load_rig(CONFIG / "rigs/lift.toml")
    values, prepared_once = RigValues(rig), PreparedSequence(load_sequence(tmp_path / "sequence.toml"), rig)
    for key in ("machine.load.mass", "circuit.relief.opening_pressure", "sensors.p_A.delay", "machine.fluid.density"):
        assert prepared_once.serves(values.changed({key: 1.01 * values.known[key].value + 1e-3})), key
    for key in ("told.valves.A.f90", "told.channels.p_A.filter"):
        assert not prepared_once.serves(values.changed({key: 1.01 * values.known[key].value + 1e-3})), key
    assert not prepared_once.serves(load_rig(CONFIG / "rigs/demo.toml"))
