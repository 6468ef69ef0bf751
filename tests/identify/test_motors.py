"""Identification of the valves of a hydraulic motor, of the motor and of what it turns, on simulated rigs."""

from __future__ import annotations

import copy
from datetime import date
from pathlib import Path
from typing import Any

import motor_coverage
import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.errors import HilserverError
from hilserver.identify.estimate import Estimate
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent, groups_of
from hilserver.identify.identification import identify_valve
from hilserver.identify.recorded import Recording
from hilserver.identify.report import fragment, obsolete
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.merge import merged
from hilserver.rig.rig import Rig

pytestmark = pytest.mark.slow

CONVEYOR = Path(__file__).parents[2] / "config/rigs/conveyor.toml"
LEAKAGE = 32e-6 * 25.0 * (1.0 / 0.95 - 1.0) / 200e5
"""m³/s/Pa of the simulated motor: what its volumetric efficiency leaves at 1500 rpm and 200 bar."""


def conveyor(change: dict[str, Any], machine: dict[str, Any] | None = None) -> Rig:
    """The shipped rig with other keys of its motor (``change``) and of the components of the simulated machine."""
    sources = copy.deepcopy(dict(load_rig(CONVEYOR).sources))
    sources["rig"]["motors"]["drive"] |= change
    for name, keys in (machine or {}).items():
        sources["devices"]["rig"]["machine"]["components"][name] |= keys
    return assemble(sources, CONVEYOR, standard_library())


def recorded(rig: Rig, seconds: float) -> Recording:
    return recorded_excitation(rig, ["A", "B"], Extent(seconds, 0.6))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    """Of a rig whose motor is described wrongly, and its valves as in the datasheet."""
    wrong = {"volume_A": "0.4 l", "volume_B": "0.2 l", "inertia": "0.03 kg*m^2"}
    rig = conveyor(wrong | {"leakage": "0 l/min/bar", "case_leakage": "0 l/min/bar"})
    recording = recorded(rig, 24.0)
    return Evaluation([identify_valve(rig, recording, valve, 2) for valve in "AB"], recording)


def of_motor(evaluation: Evaluation) -> dict[str, Estimate]:
    return {f.key or f.name: f.estimate for f in evaluation.machine["motors.drive"]}


def test_the_valves_are_found_by_the_speed_of_the_motor(evaluation: Evaluation) -> None:
    """Flow within 0.5 %, frequency within 1 %; within three standard deviations."""
    for valve in evaluation.valves:
        found = {f.name: f.estimate for f in valve.findings}
        for name, true, share in (
            ("flow P to port, full command", 1e-3, 0.005),
            ("flow port to T, full command", 1e-3, 0.005),
            ("-90° frequency", 80.0, 0.01),
            ("damping", 0.7, 0.02),
        ):
            assert found[name].value == pytest.approx(true, rel=share)
            assert abs(found[name].value - true) < 3.0 * found[name].deviation


def test_the_motor_is_found_with_what_it_turns(evaluation: Evaluation) -> None:
    """Volumes within 2 %, leakages within 4 %, and the inertia of motor and drum within 3 % of those simulated."""
    found = of_motor(evaluation)
    assert found["volume_A"].value == pytest.approx(0.3e-3, rel=0.02)
    assert found["volume_B"].value == pytest.approx(0.3e-3, rel=0.02)
    for key in ("leakage", "case_leakage"):
        assert found[key].value == pytest.approx(0.5 * LEAKAGE, rel=0.04)
    assert found["inertia"].value == pytest.approx(0.05, rel=0.03)


def test_losses_by_pressure_are_no_inertia(evaluation: Evaluation) -> None:
    """A part of a motor's friction, 70 % of the 8 % that it loses at the rated point, grows with the pressure."""
    share = of_motor(evaluation)["friction by the pressure, of the torque"]
    assert abs(share.value - 0.7 * 0.08) < 3.0 * share.deviation
    assert share.deviation < 0.02


@pytest.fixture(scope="module")
def one_valve() -> Evaluation:
    """Of a heavy drum with a single worn valve for both ports, whose edges differ, and a speed sensor that is not zero.

    The file states no leakage of the motor.
    """
    sources = copy.deepcopy(dict(motor_coverage.conveyor(one_valve=True).sources))
    sources["rig"]["motors"]["drive"] |= {"leakage": "0 l/min/bar", "case_leakage": "0 l/min/bar"}
    sources["rig"]["devices"]["rig"]["sensors"]["n"]["value"] = ["-2006 rpm", "1994 rpm"]
    sources["devices"]["rig"]["machine"]["components"]["drum"]["inertia"] = "0.2 kg*m^2"
    sources["devices"]["rig"]["drive"]["components"]["valve_A"] |= {
        "edges": {"PA": 1.0, "AT": 1.0, "PB": 0.96, "BT": 1.03},
        "leakage": {"flow": "1 l/min", "drop": "70 bar", "per": "edge"},
    }
    rig = assemble(sources, CONVEYOR, standard_library())
    recording = recorded_excitation(rig, ["A"], Extent(24.0, 0.6))
    return Evaluation([identify_valve(rig, recording, "A", 2)], recording)


def test_one_valve_for_both_ports(one_valve: Evaluation) -> None:
    """Its leakage is not that of the motor, nor its edges alike: the delays were 0.25 ms wrong, the leakages 10 %."""
    found = one_valve.results[0]
    for name, true, most in (
        ("C_PA", 1.0, 0.005),
        ("edge to the other port", -0.04, 0.005),
        ("edge from the other port", 0.03, 0.005),
        ("zero n", 0.1, 0.01),
        ("delay p_A", 0.0, 0.05e-3),
        ("piston_leakage", 0.5 * LEAKAGE, 0.02 * LEAKAGE),
        ("case_leakage", 0.5 * LEAKAGE, 0.02 * LEAKAGE),
    ):
        value = found.estimate(name)
        assert abs(value.value - true) < min(most, 3.0 * value.deviation), name


def test_the_oil_of_a_motor_is_that_of_the_rig_file(one_valve: Evaluation) -> None:
    """The recording shows volume times compliance: the volume was 0.12 l, with a bulk modulus of 0.6 GPa."""
    found = of_motor(one_valve)
    assert "bulk_modulus" not in found
    for key in ("volume_A", "volume_B"):
        assert found[key].value == pytest.approx(0.3e-3, rel=0.03)


def test_a_constant_pressure_shows_no_delay(one_valve: Evaluation) -> None:
    """That of its noise would be found where it fits best by chance."""
    assert {"delay p_S", "delay p_T"}.isdisjoint(one_valve.results[0].fit.values)
    assert "delay" not in {f.key for f in one_valve.machine["channels.p_S"]}


def test_the_fragment_is_merged(evaluation: Evaluation, tmp_path: Path) -> None:
    """Into ``[motors]``: the file that results is loaded, with the values found."""
    text = merged(CONVEYOR.read_text(), fragment(evaluation), obsolete(evaluation), date(2026, 1, 1))
    for folder in ("circuits", "cycles"):
        (tmp_path / folder).symlink_to(CONVEYOR.parents[1] / folder)
    (tmp_path / "rigs").mkdir()
    file = tmp_path / "rigs" / "conveyor.toml"
    file.write_text(text)
    motor, found = load_rig(file).settings.motors["drive"], of_motor(evaluation)
    for key in ("volume_A", "volume_B", "inertia", "leakage", "case_leakage"):
        assert getattr(motor, key) == pytest.approx(found[key].value, abs=found[key].deviation)


def test_the_motor_stays_below_the_limits_of_its_speed() -> None:
    """Both valves move together; by 300 rpm the commands are smaller than asked for."""
    sources = copy.deepcopy(dict(load_rig(CONVEYOR).sources))
    sources["rig"]["limits"]["speed"] = {"channel": "n", "min": "-300 rpm", "max": "300 rpm", "action": "trip"}
    rig = assemble(sources, CONVEYOR, standard_library())
    assert [group.valves for group in groups_of(rig, ["A"])] == [{"A": 1.0, "B": -1.0}]
    recording = recorded(rig, 6.0)
    fastest = float(np.abs(recording.channels["n"]).max()) * 60.0
    assert 100.0 < fastest < 300.0
    sources["rig"]["limits"]["speed"]["min"] = "-10 rpm"
    with pytest.raises(HilserverError, match="turns in one direction only, by the limits or the range of n"):
        recorded(assemble(sources, CONVEYOR, standard_library()), 6.0)


def test_what_enters_from_a_void_is_no_flow() -> None:
    """Where one side of the motor is empty, its speed shows the flow at neither port."""
    rig = conveyor({}, {"drum": {"inertia": "0.2 kg*m^2"}})
    recording = recorded(rig, 10.0)
    chamber = identify_valve(rig, recording, "A", 2).experiment.chambers[0]
    empty = recording.channels["p_B"] < 0.0
    assert np.count_nonzero(empty & (recording.channels["p_A"] > 100e5)) > 20
    assert not np.any(chamber.used(recording.channels, recording.known)[empty[:-1]])
