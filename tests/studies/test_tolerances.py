"""Tolerances in files: what they mean, that they change nothing in a run, and what is said where they are wrong."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError
from hilserver.rig.build import load_rig
from hilserver.simulation.circuit_run import run_circuit_file
from hilserver.tolerances import Tolerance, TolerancedText, toleranced
from hilserver.toml import read_toml

ROOT = Path(__file__).parents[2]
CIRCUIT = (ROOT / "config/circuits/verification.toml").read_text()
CYCLE = ROOT / "config/cycles/verification.toml"
L_MIN = 1.0 / 6e4
WITH_TOLERANCES = (
    ('volume = "2 l"', 'volume = "2 l ± 10 %"'),
    ("efficiency = 0.85", "efficiency = { value = 0.85, from = 0.8, to = 0.9 }"),
    ('f45 = "30 Hz"', 'f45 = { value = "30 Hz", from = "25 Hz", to = "40 Hz", distribution = "triangular" }'),
    ('mass = "1000 kg"', 'mass = { value = "1000 kg", steps = ["0.5 t", "1 t", "2 t"] }'),
)


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        ("40 l/min ± 5 %", "40 l/min", Tolerance(40 * L_MIN, 38 * L_MIN, 42 * L_MIN, "m^3/s")),
        ("40 ± 2 l/min", "40 l/min", Tolerance(40 * L_MIN, 38 * L_MIN, 42 * L_MIN, "m^3/s")),
        ("40 l/min ± 0.12 m^3/h", "40 l/min", Tolerance(40 * L_MIN, 38 * L_MIN, 42 * L_MIN, "m^3/s")),
        ("90 % ± 2 %", "90 %", Tolerance(0.9, 0.88, 0.92)),  # percentage points: the value is in percent itself
        ("0.9 ± 2 %", 0.9, Tolerance(0.9, 0.882, 0.918)),
        ("-20 bar ± 1 bar", "-20 bar", Tolerance(-2e6, -2.1e6, -1.9e6, "Pa")),
        ("-20 bar ± 5 %", "-20 bar", Tolerance(-2e6, -2.1e6, -1.9e6, "Pa")),
        ({"value": "2 bar", "from": "2 bar", "to": "3 bar"}, "2 bar", Tolerance(2e5, 2e5, 3e5, "Pa")),
        (
            {"value": "2 bar ± 1 bar", "distribution": "normal"},
            "2 bar",
            Tolerance(2e5, 1e5, 3e5, "Pa", "normal"),
        ),
        ({"value": 3, "steps": [4, 2, 3]}, 3.0, Tolerance(3.0, 2.0, 4.0, "", "steps", (2.0, 3.0, 4.0))),
    ],
)
def test_what_is_meant(given: Any, value: str | float, expected: Tolerance) -> None:
    found = toleranced(given)
    assert found == value
    of = found.tolerance
    assert (of.unit, of.distribution, of.steps) == (expected.unit, expected.distribution, expected.steps)
    np.testing.assert_allclose(
        [of.value, of.lower, of.upper], [expected.value, expected.lower, expected.upper], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('a = "40 l/min ± 5 bar"', "a", "measured in Pa"),
        ('a = "40 l/min ± 0 l/min"', "a", "greater than 0"),
        ('a = "40 l/min ± -5 %"', "a", "greater than 0"),
        ('a = "0 bar ± 5 %"', "a", "a value other than 0"),
        ('a = "30 ± 5 % l/min"', "a", 'write it like "40 l/min ± 5 %"'),
        ('a = { value = "30 Hz", steps = ["25 Hz", "25 Hz"] }', "a", "two or more"),
        ('a = "40 l/min ±"', "a", '"40 l/min ± 5 %"'),
        ('[x]\na = { value = "30 Hz", from = "25 Hz" }', "x.a", "give from and to"),
        ('a = { value = "30 Hz", from = "35 Hz", to = "40 Hz" }', "a", "outside its tolerance"),
        ('a = { value = "30 Hz", from = "40 Hz", to = "25 Hz" }', "a", "from must be less than to"),
        ('a = { value = "30 Hz", from = "25 bar", to = "40 Hz" }', "a", "from"),
        ('a = { value = "30 Hz ± 1 Hz", distribution = "gauss" }', "a", "normal"),
        ('a = { value = "30 Hz", steps = ["30 Hz"] }', "a", "two or more"),
        ('a = { value = "30 Hz", from = "25 Hz", to = "40 Hz", mean = 1 }', "a", "mean is not a key of a tolerance"),
        ('a = [["5 bar ± 1 bar", "20 l/min"]]', "a[0][0]", "[parameters]"),
    ],
)
def test_wrong_tolerances_are_refused_with_file_key_and_remedy(text: str, key: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "circuit.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_toml(file)
    (problem,) = refused.value.problems
    assert (problem.file, problem.key) == (str(file), key)
    assert said in problem.message


def test_words_with_the_sign_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "rig.toml"
    file.write_text('description = "20 bar ± something"\nnote = "about ± 10 V"\n')
    assert read_toml(file) == {"description": "20 bar ± something", "note": "about ± 10 V"}


def with_tolerances(folder: Path) -> Path:
    text = CIRCUIT
    for value, tolerance in WITH_TOLERANCES:
        assert text.count(value) == 1
        text = text.replace(value, tolerance)
    file = folder / "verification.toml"
    file.write_text(text)
    return file


def test_a_tolerance_changes_nothing_in_a_run(tmp_path: Path) -> None:
    """The same bits in all values, and the same table in a log."""
    library, plain = standard_library(), ROOT / "config/circuits/verification.toml"
    runs = [run_circuit_file(file, library, CYCLE, 1.0) for file in (plain, with_tolerances(tmp_path))]
    assert len({run.packed.value.tobytes() for run in runs}) == 1
    for name, values in runs[0].series.items():
        assert np.array_equal(values, runs[1].series[name]), name
    assert len({json.dumps(run.circuit.source) for run in runs}) == 1


def test_a_rig_with_tolerances_is_the_rig_without(tmp_path: Path) -> None:
    demo = ROOT / "config/rigs/demo.toml"
    text = demo.read_text().replace("../", f"{ROOT}/config/")
    file = tmp_path / "demo.toml"
    old = next(line for line in text.splitlines() if line.startswith("f90"))
    key, _, value = old.partition("#")[0].partition("=")
    file.write_text(text.replace(old, f'{key}= {value.strip()[:-1]} ± 10 %"'))
    changed, rig = load_rig(file), load_rig(demo)
    assert changed.plan.block.tobytes() == rig.plan.block.tobytes()
    assert changed.sources["rig"]["valves"]["main"]["f90"].tolerance.upper == pytest.approx(88.0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_tolerance_stays_with_its_value(copied: Any) -> None:
    given = {"a": toleranced("40 l/min ± 5 %"), "b": toleranced("0.9 ± 2 %")}
    found = copied(given)
    assert {name: value.tolerance for name, value in found.items()} == {
        name: value.tolerance for name, value in given.items()
    }
    assert isinstance(found["a"], TolerancedText)
