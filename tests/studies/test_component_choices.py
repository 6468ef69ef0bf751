"""Component types as a factor of a study: against exact solutions, and against circuit files with these types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study_bench import BULK_MODULUS, STUDY, VOLUME, pressure, written_study

from hilserver.errors import ConfigurationError
from hilserver.studies.report import choices_grid, write_study
from hilserver.studies.settings import load_study
from hilserver.studies.study import repeat, run_study
from hilserver.studies.worst import worst_case

ORIFICE = '{ type = "orifice", nominal_flow = { flow = "2 l/min", drop = "100 bar" } }'
CHOICE = f"""
circuit = "emptying.toml"
duration = "0.2 s"
plan = "grid"
levels = 3
fixed = ["vessel.volume"]
[vary]
capillary = ["laminar_restrictor", {ORIFICE}]
"nodes.vessel.pressure" = {{ from = "90 bar", to = "110 bar" }}
[figures]
end = "final(vessel.p)"
"""
CONFIG = Path(__file__).parents[2] / "config"


def test_each_type_is_the_exact_response(tmp_path: Path) -> None:
    """Laminar: p0·exp(-G·B·t/V); turbulent, q = K·sqrt(p): sqrt(p) = sqrt(p0) - K·B·t/(2 V). Within 100 Pa."""
    result = run_study(load_study(written_study(tmp_path, CHOICE)), tmp_path / "out")
    assert result.table["capillary"].to_pylist() == ["laminar_restrictor"] * 3 + ["orifice"] * 3
    start, end = result.column("nodes.vessel.pressure"), result.column("end")
    flow = 2.0 / 6e4
    np.testing.assert_allclose(end[:3], pressure(0.2, VOLUME, flow / 100e5, start[:3]), atol=100.0)
    K = flow / np.sqrt(100e5)
    exact = (np.sqrt(start[3:]) - K * BULK_MODULUS * 0.2 / (2.0 * VOLUME)) ** 2
    np.testing.assert_allclose(end[3:], exact, atol=100.0)
    assert np.abs(end[3:] - end[:3]).min() > 1e5
    assert result.nominal["end"] == end[1]


def test_the_rows_are_those_of_a_circuit_file_with_this_type(tmp_path: Path) -> None:
    """Bit for bit, although the file's relief valve has a settling time that the other type does not have."""
    lines = (CONFIG / "circuits/verification.toml").read_text()
    old = 'settling_time = "20 ms"\n'
    assert lines.count(old) == 1
    choice = 'relief = ["relief_valve", "static_relief_valve"]'
    static = lines.replace(old, "").replace('type = "relief_valve"', 'type = "static_relief_valve"')
    for name, text in (("dynamic", lines), ("static", static)):
        (tmp_path / f"{name}.toml").write_text(text)
        (tmp_path / f"study_{name}.toml").write_text(
            f'circuit = "{name}.toml"\ncycle = "{CONFIG}/cycles/verification.toml"\nduration = "3 s"\nplan = "grid"\n'
            'levels = 2\n[vary]\n"relief.opening_pressure" = "± 3 %"\n"load.mass" = "± 10 %"\n'
            f"{choice if name == 'dynamic' else ''}\n"
            '[figures]\npeak = "max(supply.p)"\nrise = "final(rod.x)"\n'
        )
    both = run_study(load_study(tmp_path / "study_dynamic.toml"), tmp_path / "out")
    alone = run_study(load_study(tmp_path / "study_static.toml"), tmp_path / "out")
    is_static = np.array(both.table["relief"].to_pylist()) == "static_relief_valve"
    for name in ("peak", "rise", "load.mass"):
        assert both.column(name)[is_static].tolist() == alone.column(name).tolist()
    assert both.column("peak")[~is_static].tolist() != alone.column("peak").tolist()
    page = write_study(both, tmp_path / "out")[0].read_text()
    assert "static_relief_valve has no settling_time, which the file gives" in page


def test_a_value_that_a_type_lacks_has_no_effect_there(tmp_path: Path) -> None:
    """A settling time of the relief valve, with the type that has none."""
    (tmp_path / "study.toml").write_text(
        f'circuit = "{CONFIG}/circuits/verification.toml"\ncycle = "{CONFIG}/cycles/verification.toml"\n'
        'duration = "3 s"\nplan = "grid"\nlevels = 3\n'
        '[vary]\n"relief.settling_time" = { from = "10 ms", to = "60 ms" }\n'
        'relief = ["relief_valve", "static_relief_valve"]\n[figures]\npeak = "max(supply.p)"\n'
    )
    result = run_study(load_study(tmp_path / "study.toml"), tmp_path / "out")
    is_static = np.array(result.table["relief"].to_pylist()) == "static_relief_valve"
    assert len(set(result.column("peak")[is_static].tolist())) == 1
    assert len(set(result.column("peak")[~is_static].tolist())) == 3


def test_the_figures_by_type_are_those_of_its_rows(tmp_path: Path) -> None:
    result = run_study(load_study(written_study(tmp_path, CHOICE)), tmp_path / "out")
    (choice,) = (each for each in result.study.varied if each.choices)
    grid = choices_grid(result, choice)
    end = result.column("end")
    means = [result.study.figures[0].shown(float(part.mean())) for part in (end[:3], end[3:])]
    assert [(row[0], row[1], row[2], row[-1]) for row in grid.rows] == [
        ("end", "laminar_restrictor", means[0], "3 of 3"),
        ("end", "orifice", means[1], "3 of 3"),
    ]


def test_processes_and_interruptions_change_nothing(tmp_path: Path) -> None:
    study = load_study(written_study(tmp_path, CHOICE))
    whole = run_study(study, tmp_path / "one").table
    assert run_study(study, tmp_path / "two", workers=2).table.equals(whole)

    class _Stop(Exception):
        pass

    def stop(done: int, total: int, remaining: float) -> None:
        raise _Stop

    with pytest.raises(_Stop):
        run_study(study, tmp_path / "out", progress=stop)
    resumed = run_study(study, tmp_path / "out", resume=True)
    assert 0 < resumed.runs < 6
    assert resumed.table.equals(whole)


def test_other_plans(tmp_path: Path) -> None:
    """Sobol: the share of the type; Latin hypercube: each type equally often; Morris has no meaning."""
    sobol = CHOICE.replace('"grid"', '"sobol"').replace("levels = 3", "samples = 64")
    result = run_study(load_study(written_study(tmp_path, sobol)), tmp_path / "out")
    found = result.sensitivity(result.study.figures[0])
    assert found is not None
    assert found.first.sum() == pytest.approx(1.0, abs=0.15)
    spread = CHOICE.replace('"grid"', '"latin_hypercube"').replace("levels = 3", "samples = 20")
    spread = spread.replace('"laminar_restrictor",', '"laminar_restrictor", "laminar_restrictor",')
    result = run_study(load_study(written_study(tmp_path, spread)), tmp_path / "out")
    names = result.table["capillary"].to_pylist()
    assert sorted(map(names.count, set(names))) == [6, 7, 7]
    found = result.sensitivity(result.study.figures[0])
    assert found is not None
    assert np.isnan(found.first[0])
    assert np.isfinite(found.first[1])
    with pytest.raises(ConfigurationError, match="morris requires ordered values, but capillary is a choice"):
        load_study(written_study(tmp_path, CHOICE.replace('"grid"', '"morris"')))


def test_the_worst_type_is_found_and_repeated(tmp_path: Path) -> None:
    study = load_study(written_study(tmp_path, CHOICE))
    found = worst_case(study, "end", tmp_path)
    assert "--set capillary=laminar_restrictor" in found.command
    again = repeat(study, found.values, "again", tmp_path / "out")
    assert again.figures[0] == pytest.approx(found.worst, rel=1e-9)
    number = study.varied[0].read("orifice")
    turbulent = repeat(study, {"capillary": number}, "turbulent", tmp_path / "out").figures[0]
    exact = (np.sqrt(100e5) - 2.0 / 6e4 / np.sqrt(100e5) * BULK_MODULUS * 0.2 / (2.0 * VOLUME)) ** 2
    assert turbulent == pytest.approx(exact, abs=100.0)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ('["laminar_restrictor", "orifise"]', "Did you mean orifice?"),
        ('["laminar_restrictor"]', "two or more"),
        ('["laminar_restrictor", 3]', "neither a type nor a table"),
        ('["laminar_restrictor", { type = "orifice", nominal_flow = "2 bar" }]', "nominal_flow"),
        ('["laminar_restrictor", "tank"]', "port"),
    ],
)
def test_a_wrong_choice_is_refused(entries: str, said: str, tmp_path: Path) -> None:
    text = STUDY.replace("[vary]", f"[vary]\ncapillary = {entries}")
    with pytest.raises(ConfigurationError) as refused:
        load_study(written_study(tmp_path, text))
    assert {problem.key for problem in refused.value.problems} == {"vary.capillary"}
    assert any(said in problem.message for problem in refused.value.problems), refused.value


def test_a_component_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text = STUDY.replace("[vary]", '[vary]\ncapilary = ["laminar_restrictor", "orifice"]')
    with pytest.raises(ConfigurationError, match="Did you mean capillary"):
        load_study(written_study(tmp_path, text))
