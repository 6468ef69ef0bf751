"""Cylinder and sensors are identified from the recording that identifies the valve, and what this is good for."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from lift_bench import FILE, errors_of, lift, true_valves
from unknown_rigs import changed_rig

from hilserver.identify.drift import SHORTEST, UNSEEN_DRIFT, trust_in
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.experiment import Experiment
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.machine import channel_findings, machine_findings
from hilserver.identify.recorded import Recording, noise_of
from hilserver.identify.report import fragment
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.zeros import without_zero_errors
from hilserver.rig.build import assemble
from hilserver.rig.cylinder_settings import BRAIDED
from hilserver.rig.merge import merged
from hilserver.rig.rig import Rig
from hilserver.units import ATMOSPHERE, BAR, L_MIN, difference, to_si

Found = tuple[Rig, Recording, list[Identified]]


@pytest.fixture(scope="module")
def identified() -> Found:
    """Both valves of a lift rig with all unknowns, by a seed that no figure of the pages is from."""
    rig = changed_rig("lift", 102)
    recording = without_zero_errors(rig, recorded_excitation(rig, ["A", "B"], Extent(30.0, 0.6)))
    return rig, recording, [identify_valve(rig, recording, valve) for valve in ("A", "B")]


def true_compliance(rig: Rig, side: str, x: float, p: float) -> float:
    """Of the simulated chamber: oil with air, and the hose, whose wall yields by V/(B_hc·sqrt(p)) (theory §2)."""
    machine = rig.sources["devices"]["rig"]["machine"]
    parts, oil = machine["components"], machine["fluid"]
    cylinder, hose, line = parts["cylinder"], parts[f"cylinder_hose_{side}"], parts[f"cylinder_line_{side}"]
    bore, rod = to_si(cylinder["bore"], "m"), to_si(cylinder["rod_diameter"], "m")
    swept = 0.25 * math.pi * (bore**2 * x if side == "A" else (bore**2 - rod**2) * (1.0 - x))
    V_hose = 0.25 * math.pi * to_si(hose["inner_diameter"], "m") ** 2 * to_si(hose["length"], "m")
    V = swept + to_si(cylinder[f"dead_volume_{side}"], "m^3") + to_si(line["volume"], "m^3") + V_hose
    p_0, kappa = ATMOSPHERE, 1.4
    air = oil["air_fraction"] * (p_0 / (p + p_0)) ** (1.0 / kappa) / (kappa * (p + p_0))
    wall = V_hose / (float(str(hose["wall_coefficient"]).split()[0]) * math.sqrt(p))
    return float(V * (1.0 / to_si(oil["bulk_modulus"], "Pa") + air) + wall)


@pytest.mark.slow
def test_chambers_are_as_soft_as_the_simulated_ones(identified: Found) -> None:
    rig, recording, results = identified
    found = {f.key: f.estimate.value for f in machine_findings(results, recording)["cylinders.lift"]}
    for side, area in (("A", 1963.5e-6), ("B", 1256.6e-6)):
        for x in (0.3, 0.5):
            for p in (10e5, 40e5, 100e5):
                swept = area * (x if side == "A" else 1.0 - x)
                air = found["air_fraction"] * (ATMOSPHERE / (p + ATMOSPHERE)) ** (1.0 / 1.4) / (1.4 * (p + ATMOSPHERE))
                wall = found[f"hose_volume_{side}"] / (BRAIDED * math.sqrt(p))
                modelled = (found[f"dead_volume_{side}"] + swept) * (1.0 / found["bulk_modulus"] + air) + wall
                assert modelled == pytest.approx(true_compliance(rig, side, x, p), rel=0.04), (side, x, p)


@pytest.mark.slow
def test_a_hose_that_is_not_certain_is_not_taken_for_air(identified: Found) -> None:
    """With a hose of 0.35 ± 0.12 of the dead volume left out, three times the air was found, and twice the volume."""
    _, recording, (A, B) = identified
    doubtful = replace(B, fit=replace(B.fit, deviations={**B.fit.deviations, "hose B": 0.5 * B.values["hose B"]}))
    before, after = (machine_findings(each, recording)["cylinders.lift"] for each in ([A, B], [A, doubtful]))
    assert {f.key for f in after} >= {"air_fraction", "dead_volume_B", "hose_volume_B"}
    assert {f.key: f.estimate.value for f in after} == {f.key: f.estimate.value for f in before}
    hardly = replace(B, fit=replace(B.fit, covariance=1e4 * B.fit.covariance))
    assert {f.key for f in machine_findings([A, hardly], recording)["cylinders.lift"]} >= {"dead_volume_B"}


@pytest.mark.slow
def test_the_moved_mass_is_identified(identified: Found) -> None:
    """Which a frame that yields makes appear larger at high frequencies; friction at a steady speed is F_C + b·v."""
    rig, recording, results = identified
    parts = rig.sources["devices"]["rig"]["machine"]["components"]
    true = to_si(parts["load"]["mass"], "kg") + to_si(parts["cylinder"]["moving_mass"], "kg")
    assert true > 1.1 * rig.settings.cylinders["lift"].mass or true < 0.9 * rig.settings.cylinders["lift"].mass
    found = list(machine_findings(results, recording)["cylinders.lift"])
    (mass,) = (f.estimate for f in found if f.key == "mass")
    assert mass.value == pytest.approx(true, rel=0.08)
    assert abs(mass.value - true) < 3.0 * mass.deviation
    static = to_si(parts["cylinder"]["friction"]["static"], "N")
    friction = {float(f.name.split()[2]): f.estimate for f in found if f.name.startswith("friction at")}
    for speed, force in friction.items():
        assert abs(force.value - static * (0.7 + speed)) < 4.0 * force.deviation, speed
    assert len(friction) == 4


@pytest.mark.slow
def test_leakage_past_the_piston_is_identified(identified: Found) -> None:
    rig, recording, results = identified
    found = {f.key: f.estimate for f in machine_findings(results, recording)["cylinders.lift"]}["leakage"]
    true = to_si(rig.sources["devices"]["rig"]["machine"]["components"]["cylinder"]["leakage"], "m^3/(s*Pa)")
    assert found.value == pytest.approx(true, rel=0.1)
    assert abs(found.value - true) < 4.0 * found.deviation


@pytest.mark.slow
def test_the_fragment_contains_them_and_can_be_merged(identified: Found) -> None:
    """Also into tables that are written in one line, as the channels of this rig file."""
    _, recording, results = identified
    text = fragment(Evaluation(results, recording))
    after = tomllib.loads(merged(FILE.read_text(), text, {}, date(2026, 11, 25)))
    assert {"leakage", "bulk_modulus", "air_fraction", "dead_volume_A", "hose_volume_A"} <= after["cylinders"][
        "lift"
    ].keys()
    assert all("noise" in after["channels"][name] for name in ("p_A", "p_B", "x"))
    for name, zero in recording.zeros.items():
        assert difference(after["channels"][name]["tare"]).value == pytest.approx(zero.value, abs=0.02 * BAR)
    assert all(UNSEEN_DRIFT <= after["valves"][name]["flow_drift"] < 1.5 * UNSEEN_DRIFT for name in "AB")
    assert all(to_si(after["valves"][name]["bridge"]["feedback_time"], "s") > SHORTEST for name in "AB")


@pytest.mark.slow
def test_a_zero_is_added_to_the_tare_unless_a_calibration_file_has_it(identified: Found) -> None:
    rig, recording, results = identified

    def tare_of(changed: Rig) -> list[float]:
        there = [replace(results[0], experiment=Experiment(changed, recording, "A"))]
        return [f.estimate.value for f in channel_findings(there, recording, "p_A") if f.key == "tare"]

    (zero,) = tare_of(rig)
    table = rig.sources["rig"]
    channels = {**table["channels"], "p_A": {**table["channels"]["p_A"], "tare": "0.5 bar"}}
    tared = assemble({**rig.sources, "rig": {**table, "channels": channels}}, rig.file, rig.library)
    assert tare_of(tared) == pytest.approx([zero + 0.5 * BAR])
    assert tare_of(replace(rig, calibrations={"p_A": ()})) == []


@pytest.mark.slow
def test_a_hysteresis_is_merged_where_there_is_one(identified: Found) -> None:
    width = 0.01
    hysteretic = lift(true_valves(type="directional_valve_4_3", hysteresis=width))
    recording = recorded_excitation(hysteretic, ["A"], Extent(20.0, 0.6, end_stops=False))
    results = [identify_valve(hysteretic, recording, "A")]
    small = identified[0].sources["devices"]["rig"]["drive"]["components"]["valve_A"]["hysteresis"]
    for used, found, true, error in ((recording, results, width, 1e-3), (*identified[1:], small, 5e-4)):
        text = merged(FILE.read_text(), fragment(Evaluation(found, used)), {}, date(2026, 11, 27))
        assert tomllib.loads(text)["valves"]["A"]["hysteresis"] == pytest.approx(true, abs=error)


@pytest.mark.slow
def test_a_wrong_model_of_the_valve_is_trusted_less(identified: Found) -> None:
    """The identified valves keep to their models; with 3 % more overlap the flow in the null region is wrong."""
    _, _, results = identified
    for found in results:
        wrong = {**found.fit.values, "overlap": found.fit.values["overlap"] + 0.03}
        trust, less = trust_in(found, 1e-3), trust_in(replace(found, fit=replace(found.fit, values=wrong)), 1e-3)
        assert trust is not None
        assert less is not None
        assert trust.drift.value < 1.5e-3 * UNSEEN_DRIFT
        assert less.drift.value > 1.5 * trust.drift.value
        assert less.feedback_time.value < trust.feedback_time.value


def test_noise_is_that_of_successive_samples() -> None:
    rng = np.random.default_rng(5)
    motion = 50.0 * np.sin(2.0 * np.pi * 10.0 * np.arange(20_000) * 1e-3)
    found = noise_of(motion + 0.2 * rng.standard_normal(len(motion)))
    assert found is not None
    assert found.value == pytest.approx(0.2, rel=0.05)


def test_a_pressure_that_oscillates_fast_is_no_noise() -> None:
    """At a fifth of the sample rate, 1.4 times as strong as noise: by fourth differences, there was 5 % more of it."""
    noise = np.random.default_rng(5).standard_normal(20_000)
    found = noise_of(noise + 2.0 * np.sin(2.0 * np.pi * 0.2 * np.arange(20_000)))
    assert found is not None
    assert found.value == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("samples", [np.zeros(5000), np.repeat(np.arange(500.0), 10), np.arange(100.0)])
def test_no_noise_is_stated_where_there_is_none(samples: Any) -> None:
    """A reading that repeats itself, or too few of them."""
    assert noise_of(samples) is None


LEAKAGE = {"leakage": "0.015 l/min/bar"}
WORN: dict[str, Any] = {"devices": {"rig": {"machine": {"components": {"cylinder": LEAKAGE}}}}}


def test_a_leaking_piston_that_the_bridge_knows_of_causes_no_position_error() -> None:
    """Oil that leaks past the piston was passed by the valve, although it has moved nothing."""
    unknown, known = errors_of(lift(WORN)), errors_of(lift({**WORN, "rig": {"cylinders": {"lift": LEAKAGE}}}))
    assert unknown["position rod"] > 2e-3
    assert known["position rod"] < 5e-5
    assert known["pressure A"] < 2e-3


def restricted(drop: float = 8.0, **rig_changes: Any) -> Rig:
    """A worn cylinder whose pressures are measured before a restriction at each port; ``drop``: bar at 0.2 m/s."""
    rig = lift({**WORN, "rig": {"cylinders": {"lift": LEAKAGE}, **rig_changes}})
    sources: dict[str, Any] = dict(rig.sources)
    machine = sources["devices"]["rig"]["machine"]
    for side in "AB":
        machine["components"]["cylinder"]["ports"][side] = f"piston_{side}"
        machine["nodes"][f"piston_{side}"] = dict(machine["nodes"][side])
        machine["components"][f"line_{side}"] = {"type": "volume", "ports": {"P": side}, "volume": "0.04 l"}
        point = {"flow": f"{0.2 * 1963.5e-6 / L_MIN} l/min", "drop": f"{drop} bar"}
        ports = {"A": side, "B": f"piston_{side}"}
        machine["components"][f"fitting_{side}"] = {"type": "orifice", "ports": ports, "nominal_flow": point}
    return rig


def test_pressures_before_a_restriction_do_not_spoil_the_leakage() -> None:
    """The leakage is driven by the pressures at the piston, which are lower or higher by the restriction's drop."""
    rig = restricted()
    point = rig.sources["devices"]["rig"]["machine"]["components"]["fitting_A"]["nominal_flow"]
    unknown = errors_of(assemble(dict(rig.sources), FILE, rig.library))
    sources: dict[str, Any] = dict(rig.sources)
    sources["rig"]["cylinders"]["lift"] |= {"restriction_A": point, "restriction_B": point}
    known = errors_of(assemble(sources, FILE, rig.library))
    assert known["position rod"] < 0.4 * unknown["position rod"]


@pytest.mark.slow
def test_a_small_restriction_is_not_taken_for_friction() -> None:
    """1.5 bar at 0.2 m/s at both ports, laminar below 1 bar. By a square law, friction was found 16 % too large."""
    noise = {name: {"noise": 1e-5 if name == "x" else 4e-4} for name in ("p_A", "p_B", "p_S", "p_T", "x")}
    rig = restricted(1.5, devices={"rig": {"sensors": noise}})
    cylinder = rig.sources["devices"]["rig"]["machine"]["components"]["cylinder"]
    cylinder["friction"] = {"law": "stribeck", "static": "300 N", "coulomb": "300 N", "viscous": "500 N*s/m"}
    rig = assemble(dict(rig.sources), FILE, rig.library)
    recording = without_zero_errors(rig, recorded_excitation(rig, ["A", "B"], Extent(20.0, 0.6)))
    results = [identify_valve(rig, recording, valve) for valve in ("A", "B")]
    found = {f.name: f.estimate for f in machine_findings(results, recording)["cylinders.lift"]}
    for side in "AB":
        restriction = found[f"restriction {side}"]
        print(side, restriction.value, restriction.deviation)
        assert restriction.value == pytest.approx(1.5e5, rel=0.1)
    for name, friction in found.items():
        if name.startswith("friction"):
            speed = float(name.split()[2])
            true = 300.0 + 500.0 * speed
            print(name, friction.value, friction.deviation, true)
            assert abs(friction.value - true) < 1.96 * friction.deviation, name
            assert friction.deviation < 0.2 * true
