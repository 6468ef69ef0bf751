"""Studies of logs: the recorded pressures through other circuits, against closed forms and the rig's own replay."""

from __future__ import annotations

import lzma
import pickle
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import Command
from forged_log import rewritten
from own_library import OWN
from study_bench import replace_in

from hilserver.circuit.library import library_of
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.simulation.third_party_log import replay_samples
from hilserver.studies.quantities import changeable, changed
from hilserver.studies.replay_runs import RunsOfLog
from hilserver.studies.replayed_log import ReplayedLog, read_replayed
from hilserver.studies.report import write_study
from hilserver.studies.settings import load_study
from hilserver.studies.study import StudyResult, repeat, run_study
from hilserver.studies.worst import worst_case
from hilserver.tick.columns import is_whole
from hilserver.tick.row import as_whole
from hilserver.units import CIRCUIT

TESTS = Path(__file__).parents[1]
CONFIG = TESTS.parent / "config"
BAR, DENSITY, C_D = 1e5, 870.0, 0.62
ORIFICE = """
[components.tank]
type = "tank"
ports = { T = "tank" }
[components.hole]
type = "orifice"
diameter = "3 mm ± 10 %"
ports = { A = "rig.A", B = "tank" }
"""
STUDY = """
replay = "run.arrow"
plan = "latin_hypercube"
samples = 5
[vary]
"circuit.hole.diameter" = "± 20 %"
[figures]
lowest = "min(valve.main.flow_virtual)"
mean = { figure = "mean(circuit.hole.q_A)", start = "0.2 s", end = "0.3 s" }
changed = "nrmse_recorded(valve.main.flow_virtual)"
"""
COUNTS = 6000.0 + np.round(3000.0 * np.sin(np.arange(500) / 40.0))
"""Raw readings at port A, one for each tick."""
PRESSURE = COUNTS / 16383.0 * 250.0 * BAR


def record(folder: Path, name: str, circuit: str = ORIFICE, strategy: str = "inverse_static") -> Path:
    """The log of a rig that gets these readings, with a circuit."""
    (folder / "circuits").mkdir(exist_ok=True)
    (folder / "circuits/actuator.toml").write_text(circuit)
    (folder / "rigs").mkdir(exist_ok=True)
    rig = folder / "rigs/rig.toml"
    rig.write_text((CONFIG / "rigs/actuator_log.toml").read_text())
    replace_in(rig, ("../cycles/", f"{CONFIG}/cycles/"), ("100 Hz", "1 kHz"), ("inverse_lag_leakage", strategy))
    lines = [f"{count:.0f}\t2000" for count in COUNTS]
    (folder / "rigs/healthy_a.txt").write_text("\n".join(["PG_1\tPG_2", *lines, ""]))
    return replay_samples(load_rig(rig), folder / f"{name}.arrow").log


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log of the orifice."""
    folder = tmp_path_factory.mktemp("recorded")
    record(folder, "run")
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a golden run, with switches, missed ticks and changes of strategy."""
    log = tmp_path_factory.mktemp("golden") / "lift.arrow"
    log.write_bytes(lzma.decompress((TESTS / "golden/lift.arrow.xz").read_bytes()))
    return log


def run(folder: Path, text: str = STUDY, name: str = "study") -> StudyResult:
    (folder / f"{name}.toml").write_text(text)
    return run_study(load_study(folder / f"{name}.toml"), folder / "out")


def refused(folder: Path, text: str) -> str:
    (folder / "refused.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_study(folder / "refused.toml")
    return str(error.value)


def flow_of(diameter: float | Floats, pressure: float | Floats) -> Any:
    r"""Out of port A, m³/s: :math:`C_d\,\pi d^2/4\,\sqrt{2 p/\rho}` (Merritt 1967, eq. 3-20)."""
    return C_D * np.pi / 4.0 * np.square(diameter) * np.sqrt(2.0 * np.asarray(pressure) / DENSITY)


# --- against what is known exactly ------------------------------------------------------------------------------------


def test_every_variant_is_the_orifice_equation_for_the_recorded_pressures(recorded: Path) -> None:
    result = run(recorded)
    diameter = result.values[:, 0]
    assert np.ptp(diameter) > 0.8e-3
    np.testing.assert_allclose(result.column("lowest"), -flow_of(diameter, PRESSURE.max()), rtol=1e-9)
    mean = flow_of(diameter[:, None], PRESSURE[200:301]).mean(axis=1)
    np.testing.assert_allclose(result.column("mean"), -mean, rtol=1e-9)
    flow = flow_of(3e-3, PRESSURE)  # of another diameter, it is another multiple of the same course
    scale = np.sqrt(np.mean(flow**2)) / np.ptp(flow)
    np.testing.assert_allclose(result.column("changed"), abs((diameter / 3e-3) ** 2 - 1.0) * scale, rtol=1e-9)
    assert result.nominal["changed"] == 0.0
    assert result.failures() == {}


@pytest.mark.parametrize("strategy", ["inverse_static", "inverse_lag"])
def test_a_variant_is_what_the_rig_with_this_circuit_records(strategy: str, tmp_path: Path) -> None:
    """Against the log of the rig whose circuit file has this value: bit for bit, from flow to command."""
    record(tmp_path, "run", strategy=strategy)
    (tmp_path / "study.toml").write_text(STUDY)
    table = repeat(load_study(tmp_path / "study.toml"), {"circuit.hole.diameter": 2.5e-3}, "other", tmp_path).files[-1]
    found = pq.read_table(table)
    other = record(tmp_path, "other", ORIFICE.replace("3 mm ± 10 %", "2.5 mm"), strategy)
    names = found.column_names
    assert {"valve.main.command", "valve.main.flow_virtual", "circuit.hole.q_A", "channel.p_A"} < set(names)
    assert np.ptp(found["valve.main.command"].to_numpy()) > 0.01
    for name, column in read_replayed(other).recorded(names).items():
        assert np.array_equal(found[name].to_numpy(), column, equal_nan=True), name


def test_no_variant_changes_what_is_known_of_the_machine(golden: Path) -> None:
    """Not even with feedback: the pressures that the circuit sees, the estimate, and all readings are as recorded."""
    log = read_replayed(golden, end=0.24)
    library = library_of(log.own)
    rig = log.rig(library)
    known = changeable(rig.circuit)
    quantity = known["main_valve.nominal_flow.flow"]
    packed = rig.pack(changed(rig.circuit, [quantity], [1.3 * quantity.value], library))
    runs = RunsOfLog(log, library)
    names = [name for name in rig.layout.names if not name.startswith("valve.")]
    assert any(name.startswith("port.") for name in names)
    series = runs.series(packed, [*names, "valve.A.flow_virtual", "valve.A.command"])
    recorded = log.recorded(series)
    for name in names:
        assert np.array_equal(series[name], recorded[name], equal_nan=True), name
    flow, own = recorded["valve.A.flow_virtual"], series["valve.A.flow_virtual"]
    assert own[np.argmax(flow)] == pytest.approx(1.3 * flow.max(), rel=0.05)
    command, moved = recorded["valve.A.command"], series["valve.A.command"]
    assert moved[np.argmax(command)] == pytest.approx(1.3 * command.max(), rel=0.1)


def test_a_nominal_run_is_the_recorded_one_bit_for_bit(golden: Path) -> None:
    """All columns of all ticks, between all switches, from the beginning of the run and from within."""
    table = LogReader(golden).read_all()
    time, switches = table.columns["time"], [circuit.version.start for circuit in table.circuits]
    assert len(switches) > 2
    assert table.columns["missed"].any()
    for first, stop in pairwise([*switches, len(time)]):
        log = read_replayed(golden, float(time[first]), float(time[stop - 1]))
        assert (log.first, len(log.time)) == (first, stop - first)
        require_as_recorded(log)
        require_as_recorded(read_replayed(golden, float(time[first + 50]), float(time[stop - 1])))


def require_as_recorded(log: ReplayedLog) -> None:
    library = library_of(log.own)
    rig = log.rig(library)
    runs = RunsOfLog(log, library)
    packed = rig.pack(log.circuit(rig))
    names = [name for name in log.names if name.startswith(CIRCUIT) or name in rig.layout.names]
    assert len(names) > 100
    recorded = log.recorded(names)
    for part, rows in runs.blocks(packed):
        for name in names:
            values = (as_whole(rows) if is_whole(name) else rows)[:, runs.place(packed, name)]
            assert np.array_equal(values, recorded[name][part], equal_nan=True), name


# --- several logs, other circuits -------------------------------------------------------------------------------------


def test_several_logs_have_figures_of_their_own(recorded: Path) -> None:
    text = STUDY.replace('"run.arrow"', '["run.arrow", { log = "b.arrow", start = "0.1 s", end = "0.15 s" }]')
    rewritten(recorded / "run.arrow", recorded / "b.arrow")
    result = run(recorded, text)
    assert [figure.name for figure in result.study.figures] == [
        f"{name}, {log}" for log in ("run", "b") for name in ("lowest", "mean", "changed")
    ]
    part = flow_of(result.values[:, 0], PRESSURE[100:151].max())
    np.testing.assert_allclose(result.column("lowest, b"), -part, rtol=1e-9)
    assert np.isnan(result.column("mean, b")).all()  # is of a later time
    assert result.study.duration == pytest.approx(0.5 + 0.051)
    assert "0.1 … 0.15 s, 51 ticks" in result.study.studied.facts["Log b"]


def test_another_circuit_is_given_with_its_tolerances_and_types(recorded: Path) -> None:
    """The file's tolerance is used; a thin bore for the hole is Hagen and Poiseuille's law."""
    (recorded / "other.toml").write_text(ORIFICE.replace('"3 mm ±', '"2 mm ±'))
    text = """
replay = "run.arrow"
circuit = "other.toml"
plan = "grid"
levels = 2
[vary]
"circuit.hole" = ["orifice", { type = "laminar_restrictor", nominal_flow = { flow = "5 l/min", drop = "50 bar" } }]
[figures]
lowest = "min(circuit.hole.q_A)"
changed = "nrmse_recorded(circuit.hole.q_A)"
"""
    result = run(recorded, text)
    assert "not that of the log" in result.study.studied.facts["Circuit"]
    assert "laminar_restrictor has no diameter" in result.study.studied.facts["Choice of circuit.hole"]
    assert result.nominal["lowest"] == pytest.approx(-flow_of(2e-3, PRESSURE.max()), rel=1e-9)
    assert result.nominal["changed"] > 0.1
    rows, frame = result.table.to_pydict(), pq.read_table(result.file).to_pandas()
    assert frame.groupby("circuit.hole")["lowest"].nunique().to_dict() == {"laminar_restrictor": 1, "orifice": 2}
    units = {field.name: (field.metadata or {}).get(b"unit") for field in result.table.schema}
    assert (units["circuit.hole.diameter"], units["lowest"], units["changed"]) == (b"m", b"m^3/s", None)
    linear = 5.0 / 6e4 / (50.0 * BAR) * PRESSURE.max()
    for kind, diameter, lowest in zip(rows["circuit.hole"], rows["circuit.hole.diameter"], rows["lowest"], strict=True):
        exact = flow_of(diameter, PRESSURE.max()) if kind == "orifice" else linear
        assert lowest == pytest.approx(-exact, rel=1e-9)
    assert "By circuit.hole" in write_study(result, recorded / "out")[0].read_text()


def test_other_processes_and_the_worst_case_give_the_same(recorded: Path, hilserver: Command) -> None:
    """A subject that was sent to another process has the same bits; the worst hole is the largest one."""
    result = run(recorded)
    sent = pickle.loads(pickle.dumps(result.study.subject)).prepare()
    assert [sent(row).tolist() for row in result.values] == [
        list(row) for row in zip(*(result.column(f.name) for f in result.study.figures), strict=True)
    ]
    found = worst_case(result.study, "changed", recorded / "out")
    assert found.values["circuit.hole.diameter"] == pytest.approx(3.6e-3, rel=1e-2)
    assert "--set 'circuit.hole.diameter=0.0036" in found.command or "0.00359" in found.command
    said = hilserver("study", result.study.file, "--set", "circuit.hole.diameter=3.6 mm", "-o", recorded / "out")
    assert "changed: " in said.out, said.err
    page = (recorded / "out/study-set.md").read_text()
    assert "the machine does not react" in page
    assert "identical, bit for bit" in page
    assert result.runs_here.in_place == (False,)


def test_without_figures_flow_and_command_are_compared_with_the_log(recorded: Path) -> None:
    result = run(recorded, STUDY[: STUDY.index("[figures]")])
    assert {f.name: f.text for f in result.study.figures} == {
        "flow main": "nrmse_recorded(valve.main.flow_virtual)",
        "command main": "nrmse_recorded(valve.main.command)",
    }
    assert result.nominal == {"flow main": 0.0, "command main": 0.0}
    assert result.column("flow main").min() > 0.0


# --- what goes wrong --------------------------------------------------------------------------------------------------


LAG = """
[components.filter]
type = "lag"
input = 1.0
signal = "filtered"
time_constant = "100 ms"
"""


def test_a_trip_that_the_log_does_not_have_is_a_failed_run(tmp_path: Path) -> None:
    """RK4 is unstable where a step, 0.1 ms, is longer than 2.785 time constants."""
    record(tmp_path, "run", ORIFICE + LAG)
    text = STUDY.replace('"circuit.hole.diameter" = "± 20 %"', '"circuit.filter.time_constant" = { steps = STEPS }')
    text = text.replace("STEPS", '["20 us", "100 ms"]').replace("latin_hypercube", "grid")
    result = run(tmp_path, text)
    assert result.failures().keys() == {0}
    assert result.failures()[0].startswith("trips, unlike the log: the virtual circuit diverged")
    assert result.column("lowest")[1] == result.nominal["lowest"]
    slow = run(tmp_path, text.replace("[vary]", 'time_limit = "1 us"\n[vary]'))
    assert "aborted after 1e-06 s" in slow.failures()[1]


def test_a_switch_or_lost_rows_within_the_part_are_refused(golden: Path, recorded: Path, tmp_path: Path) -> None:
    said = refused(golden.parent, 'replay = "lift.arrow"\n')
    assert "replay: " in said
    assert "its circuit was switched at" in said
    assert 'end = "' in said
    rewritten(recorded / "run.arrow", tmp_path / "lost.arrow", keep=lambda row: row not in (200, 201))
    said = refused(tmp_path, 'replay = "lost.arrow"\n')
    assert 'rows are missing between 0.199 s and 0.203 s: choose a part, with end = "0.199 s"' in said
    text = STUDY.replace(', start = "0.2 s", end = "0.3 s"', "")
    (tmp_path / "end.toml").write_text(text.replace('"run.arrow"', '{ log = "lost.arrow", end = "0.199 s" }'))
    assert load_study(tmp_path / "end.toml").duration == pytest.approx(0.2)


def test_a_part_that_is_too_long_is_refused_before_it_is_in_memory(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hilserver.studies.replayed_log.LARGEST", 1e4)
    said = refused(recorded, 'replay = "run.arrow"\n')
    assert re.search(r"run\.arrow: more than \d+ ticks are too many: choose a part, with start and end", said)


def test_a_log_of_another_version_says_so(recorded: Path, tmp_path: Path) -> None:
    """It is computed with circuits that are packed anew, and compared; a tampered flow shows."""

    def tamper(values: np.ndarray[Any, Any], row: int) -> None:
        if row == 100:
            values[column] *= 1.001

    log = recorded / "run.arrow"
    header = LogReader(log).header
    column = header.columns.index("valve.main.flow_virtual")
    rewritten(log, tmp_path / "run.arrow", rows=tamper, header={"extra": {**header.extra, "program": "another"}})
    result = run(tmp_path)
    about = result.study.studied.facts["Log run"]
    assert "of the range (valve.main.flow_virtual), more than the tolerance of hilserver replay, 1e-06" in about
    assert "another program or version" in about
    assert 0.0 < result.nominal["changed"] < 1e-3


def test_python_in_a_log_is_run_only_if_it_is_trusted(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hilserver: Command
) -> None:
    monkeypatch.setattr("hilserver.rig.trust.cache_root", lambda: tmp_path / "cache")
    mark, log = tmp_path / "mark", recorded / "run.arrow"
    brought = {"name": "theirs.py", "text": OWN + f"\nopen({str(mark)!r}, 'w').close()\n"}
    configuration = {**LogReader(log).header.configuration, "library": [brought]}
    rewritten(log, tmp_path / "run.arrow", header={"configuration": configuration})
    (tmp_path / "study.toml").write_text(STUDY)
    said = hilserver("study", tmp_path / "study.toml", "-o", tmp_path / "out", "-j", "1")
    assert said.code != 0
    assert "theirs.py, SHA-256" in said.err
    assert "add --trust" in said.err
    assert not mark.exists()
    load_study(tmp_path / "study.toml", trust=True)
    assert mark.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"run.arrow"', '"study.toml"', "replay: "),
        ('"run.arrow"', '"nowhere.arrow"', "nowhere.arrow"),
        ('"run.arrow"', '{ log = "run.arrow", end = "-1 s" }', "replay"),
        ('"run.arrow"', '{ log = "run.arrow", start = "2 s", end = "1 s" }', "start must be less than end"),
        ('"run.arrow"', '{ log = "run.arrow", start = "2 s" }', "has no rows from 2 s"),
        ('"run.arrow"', '["run.arrow", "run.arrow"]', "two logs are called run"),
        ("[vary]", 'strategy = "feedback"\n[vary]', "strategy can't be given when a replay is studied"),
        ("[vary]", 'rig = "rigs/rig.toml"\n[vary]', "give what is studied"),
        ("[vary]", 'circuit = "rigs/rig.toml"\n[vary]', "is not a circuit file"),
        ("circuit.hole.diameter", "circuit.hole.diametre", "Did you mean circuit.hole.diameter?"),
        ("circuit.hole.diameter", "hole.diameter", "circuit.hole.diameter"),
        ('"circuit.hole.diameter" = "± 20 %"', 'hole = ["orifice", "tank"]', "write circuit.NAME"),
        ("mean(circuit.hole.q_A)", "mean(circuit.hole.q_C)", "Did you mean circuit.hole.q_B?"),
        (
            "nrmse_recorded(valve.main.flow_virtual)",
            "nrmse_recorded(valve.main.flow)",
            "valve.main.flow is not recorded in the log",
        ),
        ("min(valve", "fidelity(valve", "fidelity is not a reduction of this study"),
        ('start = "0.2 s"', 'start = "0.7 s"', "after the end of the run"),
    ],
)
def test_a_wrong_study_file_is_refused(old: str, new: str, said: str, recorded: Path) -> None:
    assert old in STUDY
    (recorded / "study.toml").write_text(STUDY)
    message = refused(
        recorded, STUDY.replace(old, new, 1).replace(', end = "0.3 s"', "" if "0.7" in new else ', end = "0.3 s"')
    )
    assert "refused.toml" in message
    assert said in message


def test_circuits_that_do_not_fit_are_refused(recorded: Path, tmp_path: Path) -> None:
    (recorded / "port.toml").write_text(ORIFICE.replace("rig.A", "rig.C"))
    assert "rig.C" in refused(recorded, STUDY.replace("[vary]", 'circuit = "port.toml"\n[vary]'))
    for name, text in (("one", ORIFICE), ("two", ORIFICE.replace('"3 mm', '"2 mm'))):
        record(tmp_path, name, text)
    said = refused(tmp_path, STUDY.replace('"run.arrow"', '["one.arrow", "two.arrow"]'))
    assert "the circuit of two is not that of one" in said
