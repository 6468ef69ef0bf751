"""Unknowns of a rig: what each changes and what it leaves, what it does to the machine, and the figures made of it."""

from __future__ import annotations

import copy
import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Command

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.errors import HilserverError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.results import NO_BRIDGE
from hilserver.fidelity.strategies import compare
from hilserver.fidelity.unknowns import UNKNOWNS, Unknown, applicable, varied
from hilserver.fidelity.vary import NOISE, UnknownResult, VariedRun, VaryResult, vary
from hilserver.fidelity.vary_report import family_grid, trips_grid, unknowns_grid, vary_sentences
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.units import to_si

ROOT = Path(__file__).parents[2]
RIGS = {name: ROOT / f"config/rigs/{name}.toml" for name in ("demo", "lift")}
CONVEYOR = ROOT / "config/rigs/conveyor.toml"
OF_CYLINDERS = {"elastic frame", "friction", "piston leakage", "dead volume", "hose", "restriction"}
OF_MOTORS = {"motor losses"}
"""The unknowns that a rig with a motor lacks, and those that one with a cylinder lacks."""
BY_NAME = {unknown.name: unknown for unknown in UNKNOWNS}
BAR = 1e5
G = 9.81
Table = dict[str, Any]


@pytest.fixture(scope="module")
def rigs() -> dict[str, Rig]:
    return {name: load_rig(file) for name, file in {**RIGS, "conveyor": CONVEYOR}.items()}


def changed(rig: Rig, *names: str, seed: int = 1) -> Rig:
    """The rig with these unknowns."""
    return assemble(varied(rig, "rig", [BY_NAME[name] for name in names], seed), rig.file, rig.library)


def told(sources: Table) -> Table:
    """The sources without what stands for the true machine."""
    rest = copy.deepcopy(dict(sources))
    del rest["devices"]
    for part in ("sensors", "actuators", "drift"):
        rest["rig"]["devices"]["rig"].pop(part, None)
    return rest


def components(rig: Rig, circuit: str = "machine") -> Table:
    found: Table = rig.sources["devices"]["rig"][circuit]["components"]
    return found


# --- what an unknown changes ------------------------------------------------------------------------------------------


CHANGES = [(name, unknown) for name in RIGS for unknown in UNKNOWNS if unknown.name not in OF_MOTORS]
CHANGES += [("conveyor", unknown) for unknown in UNKNOWNS if unknown.name not in OF_CYLINDERS]


@pytest.mark.parametrize(("name", "unknown"), CHANGES, ids=lambda value: getattr(value, "name", value))
def test_an_unknown_changes_the_simulated_device_only(unknown: Unknown, name: str, rigs: dict[str, Rig]) -> None:
    rig = rigs[name]
    for seed in range(5):
        other = changed(rig, unknown.name, seed=seed)
        assert other.sources["devices"] != rig.sources["devices"] or (
            other.sources["rig"]["devices"] != rig.sources["rig"]["devices"]
        )
        assert told(dict(other.sources)) == told(dict(rig.sources))
        assert other.plan.block.tobytes() == rig.plan.block.tobytes()  # all that the tick knows of rig and bridge
        assert other.packed.value.tobytes() == rig.packed.value.tobytes()


@pytest.mark.parametrize("name", RIGS)
def test_the_plant_differs(name: str, rigs: dict[str, Rig]) -> None:
    """Not only the tables: what is simulated."""
    exact = rigs[name].plants()["rig"]
    for unknown in UNKNOWNS:
        if unknown.name in OF_MOTORS:
            continue
        plant = changed(rigs[name], unknown.name).plants()["rig"]
        same = all(
            np.array_equal(a, b)
            for a, b in zip(plant[:9], exact[:9], strict=True)  # circuit, drift, values, sensors, …
        )
        assert not same, unknown.name


@pytest.mark.parametrize("name", RIGS)
def test_a_draw_depends_on_its_seed_only(name: str, rigs: dict[str, Rig]) -> None:
    rig = rigs[name]
    one, same, other = (varied(rig, "rig", UNKNOWNS, seed) for seed in (3, 3, 4))
    assert one == same
    assert one != other
    alone = changed(rig, "load", seed=3)
    assert components(alone)["load"]["mass"] == one["devices"]["rig"]["machine"]["components"]["load"]["mass"]


def test_the_described_rig_stays_as_it_is(rigs: dict[str, Rig]) -> None:
    before = copy.deepcopy(dict(rigs["demo"].sources))
    varied(rigs["demo"], "rig", UNKNOWNS, 1)
    assert rigs["demo"].sources == before


@pytest.mark.parametrize(
    ("name", "low", "high", "of"),
    [
        ("load", 500.0, 1500.0, lambda d: to_si(d["machine"]["components"]["load"]["mass"], "kg")),
        ("air", 0.002, 0.02, lambda d: d["drive"]["fluid"]["air_fraction"]),
        ("piston leakage", 0.001, 0.02, lambda d: 6e9 * to_si(cylinder(d)["leakage"], "m^3/(s*Pa)")),
        ("friction", 0.01, 0.08, lambda d: to_si(cylinder(d)["friction"]["static"], "N") / 49876.0),
        ("dead volume", 0.375, 0.625, lambda d: 1e3 * to_si(cylinder(d)["dead_volume_B"], "m^3")),
        ("bulk modulus", 11e8, 18e8, lambda d: to_si(d["machine"]["fluid"]["bulk_modulus"], "Pa")),
        ("restriction", 1.0, 8.0, lambda d: 1e-5 * drop_of(d["machine"], "cylinder_restriction_B")),
        ("supply droop", 7.0, 28.0, lambda d: 1e-5 * drop_of(d["drive"], "supply_line")),
        ("supply pulsation", 0.005, 0.02, lambda d: d["drive"]["components"]["supply_pulses"]["amplitude"]),
        ("nominal flow", 54.0, 66.0, lambda d: 6e4 * to_si(valve(d)["nominal_flow"]["flow"], "m^3/s")),
        ("valve frequency", 56.0, 104.0, lambda d: to_si(valve(d)["f90"], "1/s")),
        ("valve damping", 0.56, 1.04, lambda d: valve(d)["damping"]),
        ("overlap", 0.003, 0.03, lambda d: valve(d)["overlap"]),
        ("null offset", -0.02, 0.02, lambda d: valve(d)["null_offset"]),
        ("hysteresis", 0.001, 0.005, lambda d: valve(d)["hysteresis"]),
        ("unequal edges", 0.95, 1.05, lambda d: valve(d)["edges"]["PB"]),
        ("viscosity", 15.0, 120.0, lambda d: 1e6 * to_si(d["machine"]["fluid"]["viscosity"], "m^2/s")),
        ("worn edges", 0.6, 3.0, lambda d: 6e4 * to_si(valve(d)["leakage"]["flow"], "m^3/s")),
    ],
)
def test_values_fill_the_stated_range(
    name: str, low: float, high: float, of: Callable[[Table], float], rigs: dict[str, Rig]
) -> None:
    """The ranges of the documentation, for the values of the demo; 49876 N: 160 bar on its piston."""
    values = [of(varied(rigs["demo"], "rig", [BY_NAME[name]], seed)["devices"]["rig"]) for seed in range(60)]
    assert low <= min(values)
    assert max(values) <= high
    assert np.ptp(values) > 0.8 * (high - low)


def drop_of(circuit: Table, orifice: str) -> float:
    return to_si(circuit["components"][orifice]["nominal_flow"]["drop"], "Pa")


def cylinder(device: Table) -> Table:
    found: Table = device["machine"]["components"]["cylinder"]
    return found


def valve(device: Table) -> Table:
    found: Table = device["drive"]["components"]["servo_valve"]
    return found


def test_the_page_has_every_unknown() -> None:
    page = (ROOT / "docs/fidelity.md").read_text()
    for u in UNKNOWNS:
        assert f"| {u.name} | {u.meaning} | {u.range} | {u.reason} |\n" in page


def test_an_unknown_that_the_rig_lacks_does_not_apply(rigs: dict[str, Rig]) -> None:
    sources = copy.deepcopy(dict(rigs["demo"].sources))
    del sources["devices"]["rig"]["machine"]["components"]["load"]
    names = {u.name for u in applicable(assemble(sources, RIGS["demo"], standard_library()), "rig")}
    assert set(BY_NAME) - names == {"load", "elastic frame", *OF_MOTORS}


def test_a_motor_has_the_unknowns_of_its_valves_sensors_and_oil() -> None:
    names = {u.name for u in applicable(load_rig(CONVEYOR), "rig")}
    assert set(BY_NAME) - names == OF_CYLINDERS


# --- what it does to the machine --------------------------------------------------------------------------------------


def values_of(rig: Rig, ticks: int, command: float = 0.0) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """True values of the plant and channels as the bridge sees them, with the joystick at ``command``; feedback."""
    sources = copy.deepcopy(dict(rig.sources))
    sources["cycle"] = {"inputs": {"joystick": {"points": [["0 s", command]]}}, "length": f"{ticks * 1e-3!r} s"}
    rig = assemble(sources, rig.file, rig.library)
    tables = rig.sources["devices"]["rig"]
    names = plant_circuit(tables["machine"], tables["drive"], rig.library).names
    with LockstepRun(rig, trace=True) as run:
        rows = run.run_cycle()
        true = dict(zip(names, run.true_values("rig").T, strict=True))
    return true, {name: rows[:, i] for i, name in enumerate(rig.layout.names) if name.startswith("channel.")}


def test_a_heavier_load_raises_the_pressure_by_its_weight_over_the_area(rigs: dict[str, Rig]) -> None:
    rig = rigs["demo"]
    heavier = changed(rig, "load", seed=next(s for s in range(99) if _mass(changed(rig, "load", seed=s)) > 1400.0))
    area, annulus = 0.25 * np.pi * 0.063**2, 0.25 * np.pi * (0.063**2 - 0.036**2)

    def force(which: Rig) -> float:
        true, _ = values_of(which, 3000)
        return float(np.mean(area * true["A.p"][-1000:] - annulus * true["B.p"][-1000:]))

    assert force(heavier) - force(rig) == pytest.approx((_mass(heavier) - 1000.0) * G, rel=0.06)  # friction: 5 %
    start = heavier.sources["devices"]["rig"]["machine"]["nodes"]["A"]["pressure"]
    assert to_si(start, "Pa") - 38 * BAR == pytest.approx((_mass(heavier) - 1000.0) * G / area)


def _mass(rig: Rig) -> float:
    return to_si(components(rig)["load"]["mass"], "kg")


@pytest.mark.parametrize("name", RIGS)
def test_offset_and_gain_of_a_sensor_appear_in_its_channel(name: str, rigs: dict[str, Rig]) -> None:
    """A pressure of the supply that stands still, seen through 250 bar of range."""
    for unknown in ("sensor offset", "sensor gain"):
        other = changed(rigs[name], unknown, seed=2)
        low, high = (to_si(v, "Pa") for v in other.sources["rig"]["devices"]["rig"]["sensors"]["p_S"]["value"])
        true, seen = values_of(other, 300)
        expected = (true["S.p"][-1] - low) / (high - low) * 250 * BAR
        error = np.mean(seen["channel.p_S"][-100:]) - true["S.p"][-1]
        assert error == pytest.approx(expected - true["S.p"][-1], abs=0.02 * BAR)
        assert 0.01 * BAR < abs(error) <= 0.0025 * 250 * BAR
        if unknown == "sensor offset":
            assert high - low == pytest.approx(250 * BAR)
            assert error == pytest.approx(-low, abs=0.02 * BAR)
        else:
            assert low == 0.0
            assert error / true["S.p"][-1] == pytest.approx(250 * BAR / high - 1.0, rel=0.05)


def test_a_restriction_has_the_drop_of_its_orifice(rigs: dict[str, Rig]) -> None:
    """Lifting steadily: the flow is that of the piston, the drop that of its datasheet point times the flow squared."""
    other = changed(rigs["demo"], "restriction")
    point = components(other)["cylinder_restriction_A"]["nominal_flow"]
    true, _ = values_of(other, 2500, 0.6)
    late = slice(-500, None)
    flow = 0.25 * np.pi * 0.063**2 * np.mean(true["rod.v"][late])
    drop = np.mean(true["A.p"][late] - true["cylinder behind its restriction A.p"][late])
    expected = to_si(point["drop"], "Pa") * (flow / to_si(point["flow"], "m^3/s")) ** 2
    assert drop > 0.5 * BAR
    assert drop == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", RIGS)
def test_oil_that_moves_to_hose_or_line_is_not_lost(name: str, rigs: dict[str, Rig]) -> None:
    stated = to_si(components(rigs[name])["cylinder"]["dead_volume_A"], "m^3")
    machine = components(changed(rigs[name], "hose", "restriction"))
    rest = to_si(machine["cylinder"]["dead_volume_A"], "m^3")
    line = to_si(machine["cylinder_line_A"]["volume"], "m^3")
    hose = machine["cylinder_hose_A"]
    oil = 0.25 * np.pi * to_si(hose["inner_diameter"], "m") ** 2 * to_si(hose["length"], "m")
    assert rest + line + oil == pytest.approx(stated)
    assert min(rest, line, oil) > 0.01 * stated


def test_an_elastic_frame_oscillates_at_its_frequency_and_carries_the_weight(rigs: dict[str, Rig]) -> None:
    other = changed(rigs["demo"], "elastic frame")
    spring = components(other)["load_spring"]
    stiffness = to_si(spring["stiffness"], "N/m")
    assert 15.0 < np.sqrt(stiffness / 1000.0) / (2 * np.pi) < 40.0
    true, _ = values_of(other, 1000)
    stretch = true["rod.x"] - true["load behind its spring.x"] - to_si(spring["relaxed"], "m")
    assert np.mean(stretch[-500:]) * stiffness == pytest.approx(1000.0 * G, rel=0.02)
    assert stretch[0] * stiffness == pytest.approx(1000.0 * G, rel=0.02)  # at rest from the start


def test_a_supply_droops_under_flow_and_pulsates(rigs: dict[str, Rig]) -> None:
    drooping, _ = values_of(changed(rigs["demo"], "supply droop"), 2000, 0.6)
    assert drooping["S.p"][5] == pytest.approx(140 * BAR, rel=0.01)
    assert 100 * BAR < np.mean(drooping["S.p"][-200:]) < 139.5 * BAR
    pulsating, _ = values_of(changed(rigs["demo"], "supply pulsation"), 500)
    assert np.mean(pulsating["S.p"]) == pytest.approx(140 * BAR, rel=0.002)
    assert 0.004 < np.std(pulsating["S.p"]) * np.sqrt(2.0) / (140 * BAR) < 0.021


@pytest.mark.parametrize("name", RIGS)
def test_delays_grow_by_up_to_two_ticks(name: str, rigs: dict[str, Rig]) -> None:
    for unknown, part in (("sensor delay", "sensors"), ("valve delay", "actuators")):
        grown: list[float] = []
        for seed in range(40):
            others = (rigs[name], changed(rigs[name], unknown, seed=seed))
            tables = (rig.sources["rig"]["devices"]["rig"][part] for rig in others)
            before, after = ([to_si(t.get("delay", "0 s"), "s") for t in table.values()] for table in tables)
            grown.extend((np.array(after) - before) / 1e-3)
        assert 0.0 <= min(grown) < 0.2
        assert 1.8 < max(grown) <= 2.0


# --- results ----------------------------------------------------------------------------------------------------------


def made(values: dict[int, float], exact: float = 0.1, step_error: float = 1e-4) -> VaryResult:
    """A result with one figure, by seed; a value of -1 stands for a trip. The step's error is seed times the given."""

    def run(seed: int, value: float) -> VariedRun:
        if value < 0:
            return VariedRun(seed, {}, "ended in mode FAULT")
        return VariedRun(seed, {"flow A": value, NOISE: 0.0}, "", {"flow A": seed * step_error, NOISE: 0.0})

    runs = tuple(run(seed, value) for seed, value in values.items())
    unknowns = (UnknownResult(UNKNOWNS[0], runs[:3]),)
    return VaryResult("bench", "feedback", ("flow A",), run(1, exact), unknowns, runs)


def test_percentiles_and_increases_of_known_numbers() -> None:
    """Linear between the sorted values, as the usual definition has it: position 0.95·(n - 1)."""
    found = made(dict(enumerate([0.3, 0.1, 0.2, 0.5, 0.4], 1)))
    assert found.percentile("flow A", 50.0) == pytest.approx(0.3)
    assert found.percentile("flow A", 95.0) == pytest.approx(0.4 + 0.8 * 0.1)
    many = np.random.default_rng(1).random(101)
    assert made(dict(enumerate(many))).percentile("flow A", 95.0) == np.percentile(many, 95.0) == sorted(many)[95]
    assert found.unknowns[0].increase("flow A", found.exact) == pytest.approx((0.1, 0.2))
    worst = found.worst()
    assert worst is not None
    assert worst.seed == 4


def test_a_trip_is_counted_and_not_in_the_figures() -> None:
    found = made({1: 0.3, 2: -1.0, 3: 0.2, 4: -1.0})
    assert [(name, run.seed) for name, run in found.trips()] == [("load", 2), ("all", 2), ("all", 4)]
    assert found.percentile("flow A", 50.0) == pytest.approx(0.25)
    assert found.unknowns[0].trips == 1
    assert "2 of 4 randomised rigs tripped." in vary_sentences(found)
    trips = trips_grid(found)
    assert trips is not None
    assert trips.rows[0] == ("load", "2", "ended in mode FAULT")
    assert unknowns_grid(found).rows[0] == ("load", "+15.00 (+20.00)", "+0.000 (+0.000)", "1")
    assert family_grid(found).rows[1][1] == "25%"
    assert unknowns_grid(made({1: 0.099999})).rows[0][1] == "+0.00 (+0.00)"


def test_a_rig_of_which_all_trip_has_no_figures() -> None:
    found = made({1: -1.0, 2: -1.0})
    assert found.worst() is None
    assert family_grid(found).rows[1][1] == unknowns_grid(found).rows[0][1] == "–"
    assert vary_sentences(found)[0] == "2 of 2 randomised rigs tripped."
    assert "as described, seed 1" in vary_sentences(found)[1]


def test_an_error_of_the_step_that_is_too_large_is_said() -> None:
    """The largest of all runs, against the usual tolerance of 1 %."""
    good, bad = (vary_sentences(made({1: 0.1, 2: 0.1, 3: 0.2}, step_error=e)) for e in (0.003, 0.0034))
    said = "flow A by up to 0.9 percentage points (load, seed 3)"
    assert any(said in text and text.startswith("Halving every integration step") for text in good)
    assert any("The integration step is too long" in text and "1 percentage points" in text for text in bad)
    unknown = replace(made({1: 0.1}), exact=VariedRun(1, {"flow A": 0.1, NOISE: 0.0}))
    assert any("too long" in text and "inf" in text for text in vary_sentences(unknown))


@pytest.fixture(scope="module")
def short(rigs: dict[str, Rig]) -> Rig:
    """The demo with a second of its work cycle."""
    sources = copy.deepcopy(dict(rigs["demo"].sources))
    sources["cycle"]["length"] = "1.2 s"
    return assemble(sources, RIGS["demo"], standard_library())


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> int:
    """Leave only these unknowns; returns their number. (`test_command` runs all.)"""
    monkeypatch.setattr("hilserver.fidelity.unknowns.UNKNOWNS", tuple(BY_NAME[name] for name in names))
    return len(names)


@pytest.mark.slow
def test_vary_is_reproducible_by_its_seed_and_each_randomised_rig_alone(
    short: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknowns = only(monkeypatch, "load", "hose", "valve damping", "sensor delay")
    told_of: list[tuple[str, float]] = []
    two = vary(short, None, 2, 7, lambda what, done: told_of.append((what, done)))
    repeated = vary(short, "feedback", 1, 8)
    assert repeated.randomised == two.randomised[1:]
    assert repeated.exact.figures == two.exact.figures
    assert repeated.exact.step_errors == two.exact.step_errors
    by_name = {result.unknown.name: result for result in two.unknowns}
    for result in repeated.unknowns:
        assert result.runs == by_name[result.unknown.name].runs[1:]
    shares = [done for _, done in told_of]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] < 1.0
    assert len(shares) == 1 + 2 * unknowns + 2
    ranks = [two.influence(result) for result in two.unknowns]
    assert ranks == sorted(ranks, reverse=True)
    assert two.followed == ("position rod", "flow A")


@pytest.mark.slow
def test_the_exact_rig_has_the_figures_of_fidelity(short: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "load")
    exact = vary(short, "feedback", 1).exact
    measured = compare(short, ["feedback"], chosen_by_user=True)
    assert NO_BRIDGE in {variant.name for variant in measured.variants}
    for name, figure in exact.figures.items():
        assert 0.0 < exact.step_errors[name] < 1e-4
        if name != NOISE:
            assert figure == measured.cycle_errors(name)["feedback"].nrmse
    segment = measured.variant("feedback").cycle
    assert segment is not None
    assert exact.figures[NOISE] == segment.noise("main", 1e-3)


@pytest.mark.slow
def test_a_rig_that_trips_is_a_row(short: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit between the highest pressure as described, 62 bar, and that of the heavier loads of seeds 3 and 4."""
    only(monkeypatch, "valve damping", "load")
    sources = copy.deepcopy(dict(short.sources))
    sources["rig"]["limits"]["p_A_high"]["max"] = "67 bar"
    found = vary(assemble(sources, RIGS["demo"], standard_library()), "feedback", 3, 2)
    by_name = {result.unknown.name: result for result in found.unknowns}
    assert not by_name["valve damping"].trips
    assert [bool(run.trip) for run in by_name["load"].runs] == [False, True, True]
    assert all(re.search(r"FAULT \(limit p_A_high\) at [01]\.\d\d s", run.trip) for run in by_name["load"].runs[1:])
    assert found.unknowns[0].trips == max(result.trips for result in found.unknowns)


def test_a_rig_that_does_not_run_as_described_is_an_error(short: Rig) -> None:
    for limit, error in (("55 bar", "ended in mode FAULT .limit p_A_high."), ("30 bar", "does not start .*p_A_high")):
        sources = copy.deepcopy(dict(short.sources))
        sources["rig"]["limits"]["p_A_high"]["max"] = limit
        with pytest.raises(HilserverError, match=f"with strategy feedback the rig as described {error}"):
            vary(assemble(sources, RIGS["demo"], standard_library()), "feedback", 1)


def test_a_rig_without_a_work_cycle_is_an_error(rigs: dict[str, Rig]) -> None:
    with pytest.raises(HilserverError, match="work cycle"):
        vary(replace(rigs["demo"], cycle=None))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_an_unknown_hose_does_not_make_feedback_oscillate(seed: int, rigs: dict[str, Rig]) -> None:
    """It halves the stiffness of the chambers. With 15 ms of feedback_time, seed 2 tripped, and seed 3 oscillated."""
    run = run_cycle_on(changed(rigs["lift"], "hose", seed=seed), "rig", "feedback", standard_program())
    assert max(run.result.noise(valve, run.comparison.dt) for valve in run.result.command) < 5e-4
    followed = [each.name for each in run.comparison.quantities() if each.unit != "Pa"]
    assert {"position rod", "flow A", "flow B"} <= set(followed)
    assert max(run.result.deviations[name].nrmse for name in followed) < 0.01


# --- command line -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command(hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('length = "1.2 s"\n' + (ROOT / "config/cycles/lift.toml").read_text())
    rig = RIGS["demo"].read_text().replace("../cycles/lift.toml", str(tmp_path / "short.toml"))
    file = tmp_path / "demo.toml"
    file.write_text(rig.replace("../", f"{ROOT}/config/"))
    said = hilserver("fidelity", file, "--vary", "--rigs", "1", "--seed", "5", "-o", tmp_path)
    assert said.code == 0, said.err
    for name in BY_NAME.keys() - OF_MOTORS:
        assert name in said.out
    assert re.search(r"0 of 1 randomised rigs tripped\..*repeated with --rigs 1 --seed 5\.", said.out, re.S)
    data = json.loads((tmp_path / "demo-vary.json").read_text())
    assert {run["seed"] for run in data["randomised"]} == {5}
    assert data["randomised"][0]["step_errors"]["flow A"] < 1e-4
    assert data["percentiles"]["flow A"]["95"] == data["randomised"][0]["figures"]["flow A"]
    page = html.unescape((tmp_path / "demo-vary.html").read_text())
    assert all(unknown.range in page for unknown in UNKNOWNS if unknown.name not in OF_MOTORS)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["demo", "--rigs", "3"], "add --vary"),
        (["demo", "--seed", "0"], "add --vary"),
        (["demo", "--vary", "--rigs", "0"], "greater than or equal to 1"),
        (["demo", "--vary", "--strategy", "feedback", "--strategy", "prediction"], "give --strategy once"),
        (["demo", "--vary", "--strategy", "all"], "give --strategy once"),
        (["demo", "--vary", "--strategy", "feedbak"], "Did you mean feedback"),
        (["demo", "--vary", "--drive"], "leave out --drive"),
        (["demo", "--vary", "--input", "joystick", "--frequency", "3"], "leave out --input, --frequency"),
        (["actuator_log", "--vary"], "this rig has none"),
    ],
)
def test_bad_options(arguments: list[str], error: str, hilserver: Command) -> None:
    rig, *options = arguments
    said = hilserver("fidelity", ROOT / f"config/rigs/{rig}.toml", *options)
    assert said.code == 2
    assert error in re.sub(r"\s+", " ", said.err.replace("│", " "))
