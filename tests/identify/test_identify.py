"""Identification of real valves from recordings of the simulated lift rig, whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from identification_coverage import compared
from lift_bench import LEAKAGE, both, delays, hard, lift, of_valves
from rig_bench import bench_rig
from unknown_rigs import changed_rig

from hilserver.errors import HilserverError
from hilserver.fidelity.unknowns import applicable, varied
from hilserver.identify import report
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent, by_hand
from hilserver.identify.findings import identified_delay
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.recorded import Recording, recording_of_log
from hilserver.identify.report import document, fragment, obsolete
from hilserver.identify.simulated_excitation import LockstepBench, recorded_excitation
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import copied

pytestmark = pytest.mark.slow

TRUE_CORNER = 72.0 * (sqrt(0.7**2 + 1.0) - 0.7)
"""Hz, where a spool of 72 Hz and d 0.7 lags by 45°."""


def wrong_rig() -> Rig:
    """C_v 2 % and frequency 10 % off, leakage and overlap not known, 0.25 bar of noise, 16 bits."""
    unknown = of_valves(overlap=0.0, leakage={**LEAKAGE, "flow": "0.1 l/min"}, bridge={"strategy": "feedback"})
    return lift(both(hard(), delays("1 ms", "1 ms"), unknown))


def assert_found(found: Identified) -> None:
    """Within the limits that are asked for: C_v 1 %, f45 3 %, delay 0.3 ms, leakage 10 %, overlap 0.5 % of stroke."""
    values, settings = found.values, found.experiment.settings
    full = settings.nominal_flow.coefficient()
    for name in ("C_PA", "C_AT"):
        assert values[name] * full / settings.nominal_flow.coefficient() == pytest.approx(0.98, rel=0.01)
    corner = values["frequency"]
    if found.second_order:
        corner *= sqrt(values["damping"] ** 2 + 1.0) - values["damping"]
    assert corner == pytest.approx(TRUE_CORNER, rel=0.03)
    assert values["overlap"] == pytest.approx(0.03, abs=0.005)


@pytest.fixture(scope="module")
def sequence() -> tuple[Rig, Recording, Identified]:
    rig = wrong_rig()
    recording = recorded_excitation(rig, ["A"], Extent(30.0, 0.6, end_stops=False))
    return rig, recording, identify_valve(rig, recording, "A")


def test_the_sequence_identifies_the_parameters_of_the_valve(sequence: tuple[Rig, Recording, Identified]) -> None:
    assert_found(sequence[2])


def test_the_sequence_stays_within_the_limits_of_a_heavy_rig() -> None:
    """It tripped by p_A_high with these unknowns, until it foresaw which pressure larger commands would cause."""
    stated = lift()
    rig = assemble(varied(stated, "rig", applicable(stated, "rig"), 54), stated.file, stated.library)
    recording = recorded_excitation(rig, ["A", "B"], Extent(60.0, 0.6, end_stops=False))
    assert max(recording.channels["p_A"].max(), recording.channels["p_B"].max()) < 235e5, "of 240 bar"


def test_a_sequence_that_ends_in_a_fault_says_when_and_what_to_do() -> None:
    limit = {"rig": {"limits": {"p_A_high": {"max": "60 bar"}}}}
    said = r"in mode FAULT: limit p_A_high after \d+\.\d s\. Smaller commands will not help \(so far they were up"
    with pytest.raises(HilserverError, match=said):
        recorded_excitation(lift(limit), ["A", "B"], Extent(10.0, 0.6, end_stops=False))


def test_the_fragment_and_the_report_contain_the_identified_values(
    sequence: tuple[Rig, Recording, Identified], tmp_path: Path
) -> None:
    """The fragment is TOML of the rig file; leakage and delay in it are the true ones within 10 % and 0.3 ms."""
    import tomllib

    from hilserver.rig.settings import ValveSettings

    _, recording, found = sequence
    table = tomllib.loads(fragment(Evaluation([found], recording)))["valves"]["A"]
    known: dict[str, Any] = {
        "port": "A",
        "supply": "p_S",
        "tank": "p_T",
        "device": "d",
        "output": "o",
        "raw": [-10, 10],
    }
    settings = ValveSettings.model_validate(known | table)
    assert settings.leakage is not None
    true = 0.6 / sqrt(70.0)
    assert settings.leakage.coefficient() * sqrt(1e5) * 6e4 == pytest.approx(true, rel=0.1)
    assert settings.delay == pytest.approx(1e-3, abs=0.3e-3)
    written = document(Evaluation([found], recording)).write(tmp_path, "valves")
    assert {path.suffix for path in written} >= {".html", ".md"}
    assert all(path.stat().st_size > 1000 for path in written)


def test_without_the_motion_of_the_spool_its_lag_and_the_delay_are_right_together(
    sequence: tuple[Rig, Recording, Identified],
) -> None:
    """A recording without fast movement: the spool remains that of the rig file, 80 Hz instead of 72 Hz."""
    _, recording, found = sequence
    known = [name for name in found.fit.values if name not in ("frequency", "damping")]
    slow = replace(found, fit=found.fit.of(known), left_out={"frequency": 50.0, "damping": 1.0})
    delay = identified_delay(slow)
    assert delay.value + 0.7 / (pi * 80.0) == pytest.approx(1e-3 + 0.7 / (pi * 72.0), abs=0.1e-3)
    assert found.fit.deviations["lag"] < delay.deviation < 2e-3
    first = replace(found, second_order=False)
    assert obsolete(Evaluation([first], recording))["A"] == ("f90", "damping")
    assert obsolete(Evaluation([replace(first, fit=slow.fit)], recording))["A"] == ()


def test_without_a_flow_sensor_there_are_no_settings_for_the_flow_servo(
    sequence: tuple[Rig, Recording, Identified], tmp_path: Path
) -> None:
    """Fragment and report say so, and contain none."""
    import tomllib

    _, recording, found = sequence
    evaluation = Evaluation([found], recording)
    text = fragment(evaluation)
    assert "this valve has no flow sensor (valves.A.flow)" in text
    assert "bridge" not in tomllib.loads(text)["valves"]["A"]
    report = next(path for path in document(evaluation).write(tmp_path, "valves") if path.suffix == ".md")
    assert "this valve has no flow sensor (valves.A.flow)" in report.read_text()
    assert "gain margin" not in report.read_text()


def test_a_log_of_normal_operation_identifies_the_valve(tmp_path: Path) -> None:
    """Some work cycles under feedback: C_v and overlap (fast movement is not in every work cycle)."""
    rig, log = wrong_rig(), tmp_path / "work.arrow"
    with LockstepRun(rig, log) as run:
        run.run_cycle()
    found = identify_valve(rig, recording_of_log(rig, log), "A")
    for name in ("C_PA", "C_AT"):
        assert found.values[name] == pytest.approx(0.98, rel=0.01)


def test_a_supply_whose_sensor_is_late_is_waited_for() -> None:
    rig = lift(delays("5 ms", "1 ms"))
    bench = LockstepBench(by_hand(rig, 0.6))
    assert bench.now("p_S") == pytest.approx(210e5, rel=0.01)


def test_small_openings_only_are_said_to_be_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = wrong_rig()
    recording = recorded_excitation(rig, ["A"], Extent(20.0, 0.3, end_stops=False))
    found = identify_valve(rig, recording, "A", order=2)
    command = np.quantile(np.abs(recording.commands["A"]), 0.99)  # which the spool reaches if it is held
    text = r"# The recording only has openings up to (\d+)% of the stroke: beyond it, the flow is extrapolated."
    said = re.search(text, fragment(Evaluation([found], recording)))
    assert said is not None
    reached = 0.01 * int(said[1])
    assert 0.85 * command < reached < command + 0.005  # in whole per cent
    monkeypatch.setattr(report, "WIDE", 0.9 * reached)
    assert "extrapolated" not in fragment(Evaluation([found], recording))


def test_identify_refuses_to_move_a_rig_with_hardware() -> None:
    with pytest.raises(HilserverError, match="is not simulated"):
        recorded_excitation(bench_rig(), ["main"], Extent(10.0, 0.5))


def test_an_accurate_position_beside_noisy_pressures_does_not_make_the_oil_stiffer() -> None:
    """A position sensor of 15 µm, and all unknown properties: what is identified is as true as it is stated to be.

    Plain least squares found oil with a quarter of its compliance, by which the noise of the pressures disappeared, and
    then neither flow coefficients nor spool.
    """
    rig = changed_rig("lift", 2)
    sources = copied(rig.sources)
    sources["rig"]["devices"]["rig"]["sensors"]["x"]["noise"] = 1.5e-5
    rig = assemble(sources, rig.file, rig.library)
    recording = recorded_excitation(rig, ["B"], Extent(30.0, 0.6, end_stops=False))
    found = identify_valve(rig, recording, "B")
    assert not found.left_out
    assert 0.6 < found.values["elasticity B"] < 1.4
    results = {each.name: each for each in compared(rig, found)}
    for name in ("-90° frequency", "damping", "flow P to port, full command", "flow port to T, full command"):
        assert abs(results[name].error) < 0.06 * results[name].true, name
        assert abs(results[name].error) < 3.5 * results[name].deviation, name
