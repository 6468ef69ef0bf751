"""Fits against hidden truth: synthetic logs with noise, from the exact response of the circuit."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from study_bench import BULK_MODULUS, EMPTYING, VOLUME, log_of, written_log

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file, run_circuit_file
from hilserver.studies.applying import with_fitted
from hilserver.studies.fit_report import deviations_grid, fit_figures, fit_sentences, write_fit
from hilserver.studies.fitting import FitOfCircuit, fit_circuit, noise_of
from hilserver.studies.measured import read_columns

ROOT = Path(__file__).parents[2]
REAL_LOGS = ROOT.parent / "shared" / "data" / "actuator_logs"
FLOW = "capillary.nominal_flow.flow"
L_MIN = 1.0 / 6e4


def circuit_file(folder: Path, text: str = EMPTYING) -> Path:
    file = folder / "emptying.toml"
    file.write_text(text)
    return file


def fitted(folder: Path, *free: str, flow: float = 2.5, seeds: tuple[int, ...] = (1,)) -> FitOfCircuit:
    logs = [written_log(folder, seed, flow) for seed in seeds]
    return fit_circuit(circuit_file(folder), logs, free)


def test_the_value_is_found_and_predicts_what_was_held_out(tmp_path: Path) -> None:
    found = fitted(tmp_path, FLOW)
    assert found.value(FLOW) == pytest.approx(2.5 * L_MIN, abs=found.interval(FLOW))
    assert found.interval(FLOW) < 0.01 * 2.5 * L_MIN
    assert found.noise(0, "vessel.p") == pytest.approx(0.5e5, rel=0.15)
    assert found.deviation(0, "vessel.p", held_out=True).rms == pytest.approx(0.5e5, rel=0.2)
    assert found.deviation(0, "vessel.p", held_out=True, before=True).rms > 3e5
    assert "explained down to the noise" in " ".join(fit_sentences(found))


@pytest.mark.slow
def test_intervals_hold_the_truth(tmp_path: Path) -> None:
    """95 % intervals of 60 logs, each with another truth, initial pressure and noise: at least 53 hold it.

    With 95 % the probability of fewer than 53 is 1.0 %; more than a fifth too wide would be seen in the errors.
    """
    circuit, inside, ratios = circuit_file(tmp_path), 0, []
    for seed in range(60):
        truth = np.random.default_rng([seed, 1]).uniform(1.4, 2.8)
        found = fit_circuit(circuit, [written_log(tmp_path, seed, truth)], [FLOW])
        error = abs(found.value(FLOW) - truth * L_MIN)
        inside += error <= found.interval(FLOW)
        ratios.append(1.96 * error / found.interval(FLOW))
    assert inside >= 53
    assert 0.7 <= np.sqrt(np.mean(np.square(ratios))) <= 1.2


def test_two_logs_say_more_than_one(tmp_path: Path) -> None:
    one, two = fitted(tmp_path, FLOW), fitted(tmp_path, FLOW, seeds=(1, 2, 3, 4))
    assert two.interval(FLOW) == pytest.approx(one.interval(FLOW) / 2.0, rel=0.25)
    assert two.value(FLOW) == pytest.approx(2.5 * L_MIN, abs=1.5 * two.interval(FLOW))


def test_values_that_only_occur_in_a_ratio_cannot_be_told_apart(tmp_path: Path) -> None:
    """p = p_0·exp(-G·B·t/V)."""
    found = fitted(tmp_path, FLOW, "vessel.volume")
    assert found.inseparable == ((FLOW, "vessel.volume"),)
    assert not found.is_known(FLOW)
    assert found.interval(FLOW) == np.inf
    assert "can't be told apart" in " ".join(fit_sentences(found))
    ratio = found.value(FLOW) / found.value("vessel.volume")
    assert ratio == pytest.approx(2.5 * L_MIN / 2e-3, rel=0.01)
    write_fit(found, tmp_path / "out")


def leaking_log(folder: Path, orifice: float) -> Path:
    """A log of the vessel with 2 l and 2.5 l/min, and an orifice to tank of this fraction of that flow at 100 bar."""
    time = np.linspace(0.0, 0.6, 601)

    def slope(_: float, p: Floats) -> Floats:
        return -BULK_MODULUS / VOLUME * 2.5 * L_MIN * (p / 100e5 + orifice * np.sqrt(np.maximum(p, 0.0) / 100e5))

    exact = solve_ivp(slope, (0.0, 0.6), [100e5], t_eval=time, rtol=1e-8).y[0]
    return log_of(folder / "leaking.csv", time, exact + np.random.default_rng(5).normal(0.0, 0.2e5, len(time)))


def test_a_value_that_acts_little_belongs_to_those_that_cannot_be_told_apart(tmp_path: Path) -> None:
    """A small orifice beside the capillary: volume and both flows may grow in proportion, and nothing changes."""
    orifice = """
[components.orifice]
type = "orifice"
ports = { A = "vessel", B = "tank" }
nominal_flow = { flow = "0.2 l/min", drop = "100 bar" }
"""
    file, log = circuit_file(tmp_path, EMPTYING.replace(" ± 10 %", "") + orifice), leaking_log(tmp_path, 0.1)
    all_three = FLOW, "vessel.volume", "orifice.nominal_flow.flow"
    found = fit_circuit(file, [log], all_three)
    (group,) = found.inseparable
    assert set(group) == set(all_three)
    assert all(found.interval(key) == np.inf for key in all_three)
    assert "Fix one: the others follow" in " ".join(fit_sentences(found))
    fixed = fit_circuit(file, [log], (FLOW, all_three[2]))
    assert not fixed.inseparable
    assert fixed.value(FLOW) == pytest.approx(2.5 * L_MIN, abs=1.5 * fixed.interval(FLOW))
    assert fixed.value(all_three[2]) == pytest.approx(0.25 * L_MIN, abs=1.5 * fixed.interval(all_three[2]))


def test_an_input_that_a_log_lacks_is_named(tmp_path: Path) -> None:
    """As is a recording that does not change, of whose range nothing is a fraction."""
    source = """
[components.source]
type = "flow_source"
ports = { P = "vessel", T = "tank" }
flow = "1 l/min"
command = "lever"
"""
    log = log_of(tmp_path / "constant.csv", np.arange(600) / 1000.0, np.full(600, 50e5))
    found = fit_circuit(circuit_file(tmp_path, EMPTYING + source), [log], [FLOW])
    said = " ".join(fit_sentences(found))
    assert "constant.csv lacks lever: the input is 0 in the simulation" in said
    assert "The recording does not change." in said
    assert "nan" not in said + str(deviations_grid(found).rows)


def test_a_value_without_influence_is_named(tmp_path: Path) -> None:
    found = fitted(tmp_path, FLOW, "fluid.density")
    assert found.without_influence == ("fluid.density",)
    assert found.interval("fluid.density") == np.inf
    assert found.value(FLOW) == pytest.approx(2.5 * L_MIN, abs=1.5 * found.interval(FLOW))


def test_a_value_stays_within_its_tolerance(tmp_path: Path) -> None:
    """The tolerance of the volume, ± 10 %, excludes the truth, in proportion 2 : 2.5."""
    found = fitted(tmp_path, "vessel.volume")
    (volume,) = found.free
    assert (volume.lower, volume.upper) == pytest.approx((0.0018, 0.0022))
    assert found.at_bound(volume)
    assert "better value may be beyond it." in " ".join(fit_sentences(found))
    assert "intervals of the other values" not in " ".join(fit_sentences(found))


def test_the_intervals_beside_a_value_at_a_bound_are_conditional(tmp_path: Path) -> None:
    """The volume, whose tolerance excludes the truth, beside the pressure at the start."""
    found = fitted(tmp_path, "vessel.volume", "nodes.vessel.pressure")
    assert any(found.is_known(each.key) and found.at_bound(each) for each in found.free)
    assert "intervals of the other values hold if this one is exact" in " ".join(fit_sentences(found))


def test_what_the_model_does_not_explain_is_said(tmp_path: Path) -> None:
    """A log whose pressure falls by a square root instead (Torricelli): an orifice, not a capillary."""
    file = written_log(tmp_path, 5)
    time = np.arange(601) * 1e-3
    p = 100e5 * (1.0 - time / 0.7) ** 2 + np.random.default_rng(5).normal(0.0, 0.1e5, len(time))
    file.write_text("\n".join(["time,vessel.p", *(f"{t},{x}" for t, x in zip(time, p, strict=True)), ""]))
    found = fit_circuit(circuit_file(tmp_path), [file], [FLOW])
    assert "the model does not explain" in " ".join(fit_sentences(found))


def test_a_circuit_with_inputs_is_driven_by_the_recorded_ones(tmp_path: Path) -> None:
    """A simulated run of the verification circuit, of which pressures and position are measured, with noise."""
    config, library = ROOT / "config", standard_library()
    run = run_circuit_file(
        config / "circuits/verification.toml", library, config / "cycles/verification.toml", duration=2.0
    )
    random = np.random.default_rng(1)
    names = {"A.p": 0.3e5, "supply.p": 0.3e5, "rod.x": 0.2e-3}
    columns = [run.time, run.series["joystick"]]
    columns += [run.series[name] + random.normal(0.0, noise, len(run.time)) for name, noise in names.items()]
    log = tmp_path / "lift.csv"
    heading = ",".join(["time", "joystick", *names])
    np.savetxt(log, np.column_stack(columns)[::5], delimiter=",", header=heading, comments="")
    circuit = tmp_path / "verification.toml"
    text = (config / "circuits/verification.toml").read_text()
    text = text.replace('mass = "1000 kg"', 'mass = "850 kg"').replace('flow = "40 l/min"', 'flow = "36 l/min"')
    circuit.write_text(text)
    found = fit_circuit(circuit, [log], ["load.mass", "main_valve.nominal_flow.flow"])
    assert found.value("load.mass") == pytest.approx(1000.0, abs=2.0 * found.interval("load.mass"))
    flow = "main_valve.nominal_flow.flow"
    assert found.value(flow) == pytest.approx(40.0 * L_MIN, abs=2.0 * found.interval(flow))
    assert found.interval(flow) < 0.01 * found.value(flow)


PORT = """
[components.supply]
type = "pressure_source"
ports = { P = "P" }
pressure = "140 bar"
[components.edge]
type = "orifice"
ports = { A = "P", B = "rig.A" }
nominal_flow = { flow = "30 l/min", drop = "35 bar" }
"""


def test_a_circuit_at_a_machine_is_driven_by_the_pressures_at_its_ports(tmp_path: Path) -> None:
    """The flow into the machine, with noise, by the square root law; the log has the pressure at the port."""
    random, time = np.random.default_rng(3), np.arange(2000) * 1e-3
    p = 60e5 + 30e5 * np.sin(3.0 * time) * np.sin(1.3 * time + 1.0)
    flow = 40.0 * L_MIN * np.sqrt((140e5 - p) / 35e5) + random.normal(0.0, 0.3 * L_MIN, len(time))
    log, circuit = tmp_path / "port.csv", tmp_path / "edge.toml"
    np.savetxt(log, np.column_stack([time, p, flow]), delimiter=",", header="time,rig.A.p,rig.A.q", comments="")
    circuit.write_text(PORT)
    key = "edge.nominal_flow.flow"
    found = fit_circuit(circuit, [log], [key])
    assert found.value(key) == pytest.approx(40.0 * L_MIN, abs=2.0 * found.interval(key))
    assert found.interval(key) < 0.01 * found.value(key)
    np.savetxt(log, np.column_stack([time, flow]), delimiter=",", header="time,rig.A.q", comments="")
    with pytest.raises(ConfigurationError, match=r"rig.A.*has no rig.A.p: say which column it is, with --columns"):
        fit_circuit(circuit, [log], [key])


# --- the file ---------------------------------------------------------------------------------------------------------


def test_values_are_written_into_the_file_and_comments_stay(tmp_path: Path) -> None:
    found = fitted(tmp_path, FLOW)
    text = EMPTYING.replace('drop = "100 bar" }', 'drop = "100 bar" }   # from the drawing')
    after, left = with_fitted(text, found, date(2026, 11, 25))
    assert left == []
    changed = [line for line in after.splitlines() if line not in text.splitlines()]
    assert len(changed) == 1
    assert changed[0].startswith('nominal_flow = { flow = "2.')
    assert "l/min ± 0.0" in changed[0]
    assert changed[0].endswith("# from the drawing")
    file = circuit_file(tmp_path, after)
    again = read_circuit_file(file, standard_library())
    value = again.source["components"]["capillary"]["nominal_flow"]["flow"]
    assert value.tolerance.value == pytest.approx(found.value(FLOW), rel=1e-3)
    assert value.tolerance.upper - value.tolerance.value == pytest.approx(found.interval(FLOW), rel=0.05)


def test_what_is_not_known_or_not_in_the_file_stays(tmp_path: Path) -> None:
    text = EMPTYING.replace('"2 l/min"', '"=flow"') + '\n[parameters]\nflow = "2 l/min"\n'
    found = fit_circuit(circuit_file(tmp_path, text), [written_log(tmp_path, 1, 2.5)], ["parameters.flow"])
    after, left = with_fitted(text, found, date(2026, 11, 25))
    assert left == []
    assert 'flow = "2.' in after.split("[parameters]")[1]
    unknown = fitted(tmp_path, FLOW, "vessel.volume")
    same, left = with_fitted(EMPTYING, unknown, date(2026, 11, 25))
    assert same == EMPTYING
    assert left[0] == f"{FLOW} keeps its value: it can't be told apart from vessel.volume."
    assert left[2].endswith("Fix one value of each group, and fit the others again.")
    assert len(left) == 3


def test_what_is_known_on_one_side_only_is_stated_and_stays(tmp_path: Path) -> None:
    found = replace(fitted(tmp_path, FLOW), opened={FLOW: 1})
    least = (found.value(FLOW) - fitted(tmp_path, FLOW).interval(FLOW)) / L_MIN
    limit = found.limit(found.free[0])
    assert float(limit.removeprefix("at least ").removesuffix(" l/min")) == pytest.approx(least, rel=1e-4)
    assert f"{FLOW} is {limit}. Larger values fit as well" in " ".join(fit_sentences(found))
    same, left = with_fitted(EMPTYING, found, date(2026, 11, 25))
    assert same == EMPTYING
    assert left == [f"{FLOW} keeps its value: the log only shows that it is {limit}."]


def test_edges_of_a_signal_do_not_count_as_its_noise() -> None:
    """Steps of 100 deviations; from the mean square of second differences, the noise would be 12 times as large."""
    random = np.random.default_rng(1)
    steps = np.repeat(random.permutation(40), 50) * 100.0
    assert noise_of(steps + random.normal(size=len(steps))) == pytest.approx(1.0, rel=0.1)


# --- logs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_log_of_another_program_may_have_another_encoding(encoding: str, tmp_path: Path) -> None:
    """The names of columns that are not used may contain any character."""
    file = written_log(tmp_path, 1)
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{head},T (°C)", *(f"{line},20" for line in lines)]), encoding=encoding)
    assert fit_circuit(circuit_file(tmp_path), [file], [FLOW]).logs


@pytest.mark.parametrize("content", [None, b"x", b"PAR1" + bytes(100)])
def test_what_is_no_parquet_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(HilserverError, match=r"log\.parquet: can't be read as a Parquet file: .+"):
        fit_circuit(circuit_file(tmp_path), [file], [FLOW])


@pytest.mark.parametrize(
    ("log", "free", "said"),
    [
        ("time,vesel.p\n0,1\n", FLOW, "no column is a quantity"),
        ("time,vessel.p\n0,1\n1,2\n", FLOW, "too few"),
        ("zeit,vessel.p\n0,1\n", FLOW, "time"),
        (None, "capillary.flow", "Did you mean"),
        (None, "nodes.vessel.presure", "Did you mean nodes.vessel.pressure"),
    ],
)
def test_what_does_not_fit_together_is_refused(log: str | None, free: str, said: str, tmp_path: Path) -> None:
    file = written_log(tmp_path, 1)
    if log is not None:
        file.write_text(log)
    with pytest.raises(HilserverError, match=said):
        fit_circuit(circuit_file(tmp_path), [file], [free])


def test_columns_have_names_and_scales_of_their_own(tmp_path: Path) -> None:
    log = written_log(tmp_path, 1, 2.5)
    rows = np.loadtxt(log, delimiter=",", skiprows=1)
    counts = np.round(rows[:, 1] / 250e5 * 65535.0)
    log.write_text("\n".join(["PG_1;other", *(f"{count:.0f};0" for count in counts), ""]))
    columns = tmp_path / "columns.toml"
    scale = 'raw = [0, 65535], value = ["0 bar", "250 bar"]'
    columns.write_text(f'sample_rate = "1 kHz"\n[columns]\n"vessel.p" = {{ column = "PG_1", {scale} }}\n')
    found = fit_circuit(circuit_file(tmp_path), [log], [FLOW], read_columns(columns))
    assert found.value(FLOW) == pytest.approx(2.5 * L_MIN, abs=1.5 * found.interval(FLOW))
    columns.write_text(columns.read_text().replace("vessel.p", "vesel.p"))
    with pytest.raises(ConfigurationError, match=r"Did you mean vessel\.p"):
        fit_circuit(circuit_file(tmp_path), [log], [FLOW], read_columns(columns))


def test_of_contradicting_columns_the_one_with_more_weight_counts(tmp_path: Path) -> None:
    """A flow sensor that reads a tenth too much. Equal weights change nothing, and don't make the interval narrower."""
    log = written_log(tmp_path, 1, 2.0)
    time, p = np.loadtxt(log, delimiter=",", skiprows=1).T
    flow = 1.1 * 2.0 * L_MIN / 100e5 * p + np.random.default_rng(7).normal(0.0, 0.01 * L_MIN, len(p))
    rows = (f"{t!r},{a!r},{b!r}" for t, a, b in zip(time.tolist(), p.tolist(), flow.tolist(), strict=True))
    log.write_text("\n".join(["time,p,q", *rows, ""]))

    def of(pressure: float, flow: float) -> FitOfCircuit:
        columns = tmp_path / "columns.toml"
        text = f'"vessel.p" = {{ column = "p", weight = {pressure} }}\n'
        columns.write_text(f'[columns]\n{text}"capillary.q_B" = {{ column = "q", weight = {flow} }}\n')
        return fit_circuit(circuit_file(tmp_path), [log], [FLOW], read_columns(columns))

    assert of(1.0, 0.001).value(FLOW) == pytest.approx(2.0 * L_MIN, rel=0.01)
    assert of(0.001, 1.0).value(FLOW) > 1.05 * 2.0 * L_MIN
    assert of(0.5, 0.5).value(FLOW) == pytest.approx(of(1.0, 1.0).value(FLOW), rel=1e-3)
    assert of(0.5, 0.5).interval(FLOW) > 0.9 * of(1.0, 1.0).interval(FLOW)
    with pytest.raises(ConfigurationError, match="weight"):
        of(1.0, 2.0)


@pytest.mark.parametrize(("name", "high"), [("healthy_a", "B.p"), ("healthy_b", "B.p"), ("seal_defect", "A.p")])
def test_real_logs_of_an_actuator(name: str, high: str, tmp_path: Path) -> None:
    """The leaking seal leaks most: 6.2 ± 0.7e-5 l/min at 100 bar against 4.0 ± 1.5e-5 and 3.4 ± 0.6e-5."""
    if not (log := REAL_LOGS / f"{name}.txt").is_file():
        pytest.skip(f"the recorded actuator log {name}.txt is not beside the repository (../shared/data/actuator_logs)")
    columns = read_columns(ROOT / "config/studies/actuator_log.toml")
    keys = [f"{part}.nominal_flow.flow" for part in ("seal", "valve_1", "valve_2")]
    found = fit_circuit(ROOT / "config/circuits/holding.toml", [log], keys, columns, tick=0.01, start=12.0)
    seal = found.value(keys[0]) / L_MIN
    expected = (5.0e-5, 7.5e-5) if name == "seal_defect" else (2.5e-5, 5.0e-5)
    assert expected[0] <= seal <= expected[1]
    assert found.interval(keys[0]) < 0.5 * found.value(keys[0])
    explained = "explained down to the noise" in next(line for line in fit_sentences(found) if f", {high}:" in line)
    assert explained is (name == "seal_defect")
    assert fit_figures(found)["parameters"][keys[0]]["found"] == found.value(keys[0])
