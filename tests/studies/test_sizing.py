"""The size of a real valve: what a catalogue says, margins and fidelity of each candidate, and why it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Command
from scipy.signal import lti, step
from study_bench import CONFIG, lift_files, replace_in

from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.strategies import simulate
from hilserver.margins.margins import margins
from hilserver.rig.build import load_rig
from hilserver.studies.catalogue import CatalogueValve, load_catalogue
from hilserver.studies.sizing import LIMITS, Sizing, size_valves
from hilserver.studies.varied_rig import RigValues

pytestmark = pytest.mark.slow

CATALOGUE = """
[valves."small"]
source = "test bench"
nominal_flow = { flow = "20 l/min", drop = "35 bar", per = "edge" }
f90 = "100 Hz"

[valves."large"]
source = "test bench"
nominal_flow = { flow = "114 l/min ± 5 %", drop = "140 bar", per = "loop" }
f90 = "80 Hz ± 10 %"
damping = 0.7

[valves."medium"]
source = "test bench"
nominal_flow = { flow = "42 l/min", drop = "35 bar", per = "edge" }
f90 = "100 Hz"
"""
LARGE = CATALOGUE[CATALOGUE.index('[valves."large"]') : CATALOGUE.index('[valves."medium"]')]
"""The one that holds alone: the margins of the others, which are refused for them, take most of the time."""
NOMINAL = 'nominal_flow = { flow = "60 l/min", drop = "35 bar", per = "edge" }\nf90 = "80 Hz"\ndamping = 0.7'


def sized(folder: Path, catalogue: str = CATALOGUE, **options: object) -> Sizing:
    rig = lift_files(folder) if not (folder / "rigs").exists() else folder / "rigs/lift.toml"
    (folder / "valves.toml").write_text(catalogue)
    return size_valves(rig, load_catalogue(folder / "valves.toml"), samples=4, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Sizing:
    """The sizing of both valves of the lift, which several tests look at."""
    return sized(tmp_path_factory.mktemp("sized"))


# --- the catalogue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.5, 0.8])
def test_the_frequency_follows_from_the_time_of_a_step(damping: float) -> None:
    """Against SciPy's step response of the second-order system: it first reaches 1 at the stated time."""
    valve = CatalogueValve.model_validate(
        {
            "source": "a b",
            "nominal_flow": {"flow": "4 l/min", "drop": "35 bar", "per": "edge"},
            "step_time": "4 ms",
            "damping": damping,
        }
    )
    omega = 2.0 * np.pi * valve.frequency()
    t = np.linspace(0.0, 0.01, 100_001)
    _, y = step(lti([omega**2], [1.0, 2.0 * damping * omega, omega**2]), T=t)
    assert t[int(np.argmax(y >= 1.0))] == pytest.approx(4e-3, rel=1e-3)


def test_the_catalogue_of_the_examples() -> None:
    """The smallest first, each with the text of its source, and a spool that is neither slow nor impossible."""
    found = load_catalogue(CONFIG / "catalogue/servo_valves.toml")
    coefficients = [each.valve.nominal_flow.coefficient() for each in found]
    assert coefficients == sorted(coefficients)
    assert len(found) >= 7
    assert all("Moog" in each.source and ":" in each.source for each in found)
    assert all(30.0 < each.valve.frequency() < 300.0 for each in found)
    assert {each.name for each in found if not each.tolerated} == {"Moog D661, 20 l/min"}


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ('f90 = "100 Hz"\n', "", "valves.small", "give f90, or step_time"),
        ('f90 = "100 Hz"\n', 'step_time = "4 ms"\ndamping = 1.2\n', "valves.small.step_time", "never reaches 100 %"),
        ('"test bench"', '"Moog"', "valves.small.source", "not in [sources]"),
        ('flow = "20 l/min"', 'flow = "20 bar"', "valves.small.nominal_flow.flow", "20 bar"),
        ('f90 = "100 Hz"\n', 'f90 = "100 Hz"\nf9 = 1\n', "valves.small.f9", "f90"),
    ],
)
def test_a_wrong_catalogue_is_refused(old: str, new: str, key: str, said: str, tmp_path: Path) -> None:
    assert old in CATALOGUE
    (tmp_path / "valves.toml").write_text(CATALOGUE.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as refused:
        load_catalogue(tmp_path / "valves.toml")
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_smallest_valve_that_holds(result: Sizing) -> None:
    """42 l/min have a margin of 1.03 with nominal values, but not at -10 %;
    114 l/min at 140 bar per loop are 80.6 at 35 bar per edge."""
    assert [each.candidate.name for each in result.judged] == ["small", "medium", "large"]
    assert [each.holds for each in result.judged] == [False, False, True]
    assert result.chosen is result.judged[2]
    small, medium, large = result.judged
    assert medium.capacity == pytest.approx(42.0 / 20.0 * small.capacity, rel=1e-6)
    assert 0.9 < medium.capacity < 1.0 < medium.capacity / 0.9
    assert large.capacity == pytest.approx(0.95 * 114.0 / (0.9 * 20.0) / 2**0.5 * small.capacity, rel=2e-3)
    assert all("times the flow that the real valve can pass" in each.reasons[0] for each in (small, medium))
    assert not small.worst
    assert large.runs == 5


def test_margins_and_fidelity_are_those_of_a_rig_with_this_valve_in_its_files(tmp_path: Path) -> None:
    """Of the medium valve: against the margins and `hilserver simulate` of edited files; tolerances cost 0.02 %."""
    result = sized(tmp_path, CATALOGUE.replace("42 l/min", "60 l/min ± 0.1 %").replace("± 5 %", "± 0.1 %"))
    found = result.judged[1]
    assert found.holds
    assert not result.judged[2].examined
    valve = NOMINAL.replace("80 Hz", "100 Hz").replace("0.7", "0.8")
    replace_in(tmp_path / "rigs/lift.toml", (NOMINAL, valve), (NOMINAL, valve))
    replace_in(tmp_path / "circuits/two_valves.toml", (NOMINAL, valve), (NOMINAL, valve))
    rig = load_rig(tmp_path / "rigs/lift.toml")
    capacity = margins(rig, compiled_program(rig.library)).capacity
    assert found.capacity == pytest.approx(min(each.margin for each in capacity.capacities) * 0.999, rel=1e-4)
    (variant,) = (each for each in simulate(rig, ["feedback"]).variants if each.name == "feedback")
    assert variant.cycle is not None
    for name in ("position rod", "flow A"):
        nominal = variant.cycle.deviations[name].nrmse
        assert nominal <= found.worst[name] < nominal + 2e-4, name


def test_a_valve_that_may_be_too_fast_for_the_loop(tmp_path: Path) -> None:
    """-45° of a damping of 0.7 is at 0.52 of f90: 174 Hz at its upper end, 5.75 ticks per period, of which 10 are
    required."""
    fast = LARGE.replace('f90 = "80 Hz ± 10 %"', 'f90 = { value = "100 Hz", from = "90 Hz", to = "334 Hz" }')
    (large,) = sized(tmp_path, fast).judged
    assert [reason for reason in large.reasons if "174 Hz" in reason and "5.8 ticks per period" in reason]


def test_a_valve_is_refused_for_its_fidelity(tmp_path: Path) -> None:
    """Without feedback, the position drifts with the error of the flow: named with the figure and the worst rig."""
    result = sized(tmp_path, LARGE, strategy="prediction")
    (large,) = result.judged
    assert result.chosen is None
    assert large.worst["position rod"] > LIMITS["position"] == 0.02
    assert any(reason.startswith("position rod: ") and "drive.valve_A" in reason for reason in large.reasons)


def test_the_bridge_is_told_the_nominal_values_of_the_valve(result: Sizing, tmp_path: Path) -> None:
    """Those of the catalogue, in the rig file and in the drive; the tolerances of the catalogue are varied."""
    varied = {each.key: each.tolerance for each in result.varied}
    assert varied.keys() == {f"drive.valve_{v}.{key}" for v in "AB" for key in ("nominal_flow.flow", "f90")}
    flow = varied["drive.valve_A.nominal_flow.flow"]
    assert (flow.lower, flow.upper) == pytest.approx((0.95 * 114.0 / 6e4, 1.05 * 114.0 / 6e4))
    one = sized(tmp_path, LARGE, valves=("A",))
    assert {each.key for each in one.varied} == {f"drive.valve_A.{key}" for key in ("nominal_flow.flow", "f90")}
    assert one.valves == ("A",)


def test_valves_that_cannot_be_replaced(tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"C is not a valve of the rig\. Its valves: A, B"):
        sized(tmp_path, valves=("C",))
    replace_in(tmp_path / "rigs/lift.toml", ('valve_A = { to = "u_A"', 'valve_A = { to = "u_B"'))
    replace_in(tmp_path / "circuits/two_valves.toml", ('command = "u_A"', "command = 0.0"))
    assert RigValues(load_rig(tmp_path / "rigs/lift.toml")).known
    replace_in(tmp_path / "circuits/two_valves.toml", ('command = "u_B"', 'command = "u_C"'))
    with pytest.raises(HilserverError):
        sized(tmp_path)


def test_the_command(tmp_path: Path, hilserver: Command) -> None:
    """Exit code 1 if no valve holds; the page has the reasons and the sources."""
    rig = lift_files(tmp_path)
    (tmp_path / "valves.toml").write_text(CATALOGUE)
    options = ("--catalogue", tmp_path / "valves.toml", "--samples", 2, "-j", 1, "-o", tmp_path / "out")
    said = hilserver("size", rig, *options)
    assert said.code == 0, said.err
    assert "large is the smallest valve with sufficient margins and fidelity." in said.out
    page = (tmp_path / "out/lift-size.md").read_text()
    assert "Why not medium" in page
    assert "test bench" in page
    data = json.loads((tmp_path / "out/lift-size.json").read_text())
    assert data["chosen"] == "large"
    assert data["valves"]["small"]["holds"] is False
    (tmp_path / "valves.toml").write_text(LARGE)
    none = hilserver("size", rig, *options, "--flow", "0.0001 %")
    assert none.code == 1
    assert "None of these valves has sufficient margins and fidelity." in none.out
    wrong = hilserver("size", rig, *options, "--flow", "3 bar")
    assert wrong.code == 2
    assert "--flow 3 bar" in wrong.err
