"""Sources of signals and blocks between them."""

from __future__ import annotations

import shutil
from math import log as ln
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, Bench, refusal
from hypothesis import given
from hypothesis import strategies as st

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.components.comparator import Comparator
from hilserver.components.delay import Delay
from hilserver.components.joystick import Joystick
from hilserver.components.limiter import Limiter
from hilserver.components.ramp_signal import RampSignal
from hilserver.components.table_signal import TableSignal
from hilserver.errors import ConfigurationError
from hilserver.numerics.signal import lever_curve
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

ROOT = Path(__file__).parents[2]

VOLUME = {"type": "volume", "ports": {"P": "node"}, "volume": "1 l"}


def bench(solver: str = "rk4", **components: dict[str, Any]) -> Bench:
    """A circuit of signal components (and a volume, which nothing moves)."""
    return Bench({"solver": {"integrator": solver}, "components": {"volume": VOLUME, **components}})


def source(kind: str, **values: Any) -> dict[str, Any]:
    return {"type": kind, "signal": "s", **values}


def over_time(circuit: Bench, duration: float, every: float = 1e-3) -> tuple[Any, Any]:
    run = circuit.record(("t", "s"), duration, every)
    return run["t"], run["s"]


# --- sources ---------------------------------------------------------------------------------------------------------


def test_step_is_cubic_within_its_rise_time() -> None:
    """STEP(t, 0.2, 1, 0.4, 3): 1 before, 1 + 2·s²(3 - 2s) within, 3 after ([Asikainen] eq. 33)."""
    t, u = over_time(bench(step=source("step_signal", start="0.2 s", rise_time="0.2 s", before=1, after=3)), 0.6)
    s = np.clip((t - 0.2) / 0.2, 0.0, 1.0)
    assert u == pytest.approx(1 + 2 * s * s * (3 - 2 * s), abs=1e-12)


def test_step_without_rise_time_is_a_jump() -> None:
    t, u = over_time(bench(step=source("step_signal", start="20.5 ms")), 0.04)
    assert list(u) == [float(time > 0.0205) for time in t]
    assert bench(step=source("step_signal"))["s"] == 0.0  # not yet run
    assert over_time(bench(step=source("step_signal")), 0.002)[1].tolist() == [1.0, 1.0]


def test_ramp_is_straight() -> None:
    t, u = over_time(bench(ramp=source("ramp_signal", start="0.1 s", duration="0.5 s", before=2, after=-1)), 0.8)
    assert u == pytest.approx(np.interp(t, [0.1, 0.6], [2, -1]), abs=1e-12)


def test_sine_starts_with_its_phase() -> None:
    values = {"frequency": "5 Hz", "amplitude": 0.3, "offset": 0.5, "phase": "90 deg", "start": "100 ms"}
    t, u = over_time(bench(sine=source("sine_signal", **values)), 0.5, 1e-4)
    expected = 0.5 + 0.3 * np.cos(10 * pi * (t - 0.1))
    running = t > 0.1 + 1e-9
    assert u[running] == pytest.approx(expected[running], abs=1e-9)
    assert u[t < 0.1 - 1e-9] == pytest.approx(0.5)


@pytest.mark.parametrize("spacing", ["linear", "logarithmic"])
def test_sweep_has_the_phase_of_its_frequency(spacing: str) -> None:
    """Phase = 2·pi times the integral of the frequency from 2 to 20 Hz, in closed form; 1000 rows a second."""
    values = {"from_frequency": "2 Hz", "to_frequency": "20 Hz", "duration": "2 s", "spacing": spacing}
    t, u = over_time(bench(sweep=source("sweep_signal", start="0.5 s", **values)), 3.0)
    x = np.clip((t - 0.5) / 2.0, 0.0, 1.0)
    cycles = 2 * (2 * x + 9 * x * x) if spacing == "linear" else 2 * 2 / ln(10) * (10**x - 1)
    inside = (t > 0.5 + 1e-9) & (t < 2.5 - 1e-9)
    assert u[inside] == pytest.approx(np.sin(2 * pi * cycles[inside]), abs=1e-9)
    assert not u[(t < 0.5 - 1e-9) | (t > 2.5 + 1e-9)].any()
    crossings = np.flatnonzero((u[:-1] < 0) & (u[1:] >= 0) & (t[1:] < 2.49))
    assert np.all(np.diff(np.diff(crossings)) <= 1)  # each period is shorter than the one before, in rows
    assert 15 < 1 / (t[crossings[-1]] - t[crossings[-2]]) < 20


def test_table_is_straight_between_its_points_and_repeats() -> None:
    points = [["0 s", 0], ["0.2 s", 1], ["0.3 s", -1]]
    t, u = over_time(bench(table=source("table_signal", points=points, start="100 ms")), 0.6)
    assert u == pytest.approx(np.interp(t - 0.1, [0, 0.2, 0.3], [0, 1, -1]), abs=1e-9)
    t, u = over_time(bench(table=source("table_signal", points=points, repeat=True)), 1.0)
    inside = np.abs(t / 0.3 - np.round(t / 0.3)) > 1e-6
    assert u[inside] == pytest.approx(np.interp(t[inside] % 0.3, [0, 0.2, 0.3], [0, 1, -1]), abs=1e-9)


# --- CSV -------------------------------------------------------------------------------------------------------------


def table_circuit(folder: Path, **values: Any) -> Circuit:
    raw = {"components": {"volume": VOLUME, "table": source("table_signal", **values)}}
    return read_circuit(raw, standard_library(), str(folder / "circuit.toml"))


def refused(folder: Path, **values: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        table_circuit(folder, **values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0,1\n0.5,2\n", {}),
        ("t [s],u\n0,1\n0.5,2\n\n", {}),
        ("\ufefft;p;u\r\n0,0;9;1\r\n0,5;9;2,0\r\n", {"columns": ["t", "u"]}),
        ("u\tt\n1\t0\n2\t5e-1\n", {"columns": ["t", "u"]}),
    ],
)
def test_csv_is_read_beside_the_circuit(tmp_path: Path, text: str, values: dict[str, Any]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "demand.csv").write_text(text, encoding="utf-8")
    circuit = table_circuit(tmp_path, csv="data/demand.csv", **values)
    assert circuit.source["components"]["table"]["samples"] == [[0.0, 1.0], [0.5, 2.0]]


def test_circuit_with_a_csv_is_complete_by_itself(tmp_path: Path) -> None:
    """What the log keeps (the source) gives the same circuit after the file is gone."""
    file = tmp_path / "demand.csv"
    file.write_text("0,1\n0.5,2\n")
    circuit = table_circuit(tmp_path, csv="demand.csv")
    file.unlink()
    again = read_circuit(circuit.source, standard_library(), "elsewhere.arrow")
    first, second = (pack(c, standard_library()) for c in (circuit, again))
    assert np.array_equal(first.value, second.value)
    assert np.array_equal(first.index, second.index)
    assert "no such file" in refused(tmp_path, csv="demand.csv")


def test_log_of_a_rig_with_a_csv_replays_without_it(tmp_path: Path) -> None:
    """In the virtual circuit and in the simulated machine; and a circuit switched in finds it beside the rig's own."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    folder = tmp_path / "config" / "circuits"
    (folder / "load.csv").write_text("0,0\n1,0.5\n")
    table = '\n[components.table]\ntype = "table_signal"\nsignal = "{}"\ncsv = "load.csv"\n'
    for name in ("lift", "machine"):
        file = folder / f"{name}.toml"
        file.write_text(file.read_text() + table.format(f"of_{name}"))
    rig = load_rig(tmp_path / "config/rigs/demo.toml")
    changed = {**rig.circuit.source, "components": {**rig.circuit.source["components"]}}
    changed["components"]["table"] = source("table_signal", csv="load.csv", start="-1 s")
    log = tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(200)
        run.swap(rig.read_circuit(changed, "switched.toml"))
        run.run(100)
    (folder / "load.csv").unlink()
    assert replay_log(log).ok


def test_points_or_a_file_given_later_replace_the_samples(tmp_path: Path) -> None:
    """As a live switch does that sets points in a running circuit's table."""
    later = table_circuit(tmp_path, samples=[[0, 1]], points=[["0 s", 5]])
    assert "samples" not in later.source["components"]["table"]
    (tmp_path / "x.csv").write_text("0,7\n")
    later = table_circuit(tmp_path, samples=[[0, 1]], csv="x.csv")
    assert later.source["components"]["table"]["samples"] == [[0.0, 7.0]]


def test_invalid_csv_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    assert 'components.table: csv: "none.csv" can\'t be read: no such file' in refused(tmp_path, csv="none.csv")
    for outside in ("../x.csv", str(tmp_path / "x.csv"), 7):
        assert "must be a file in the folder of the circuit file" in refused(tmp_path, csv=outside)
    file.write_text("t,u\n0,1\n0.5,open\n")
    assert 'x.csv line 3, column 2: "open" is not a number' in refused(tmp_path, csv="x.csv")
    assert "has no heading" in refused(tmp_path, csv="x.csv", columns=["t", "v"])
    file.write_text("0,1\n1,nan\n")
    assert '"nan" is not a number' in refused(tmp_path, csv="x.csv")
    file.write_text("0,1\n0,2\n")
    assert "times must increase" in refused(tmp_path, csv="x.csv")
    file.write_text("")
    assert "has no points" in refused(tmp_path, csv="x.csv")
    file.write_bytes(b"\xff\xfe\x00")
    assert "can't be read" in refused(tmp_path, csv="x.csv")
    file.write_text("".join(f"{k},0\n" for k in range(10_002)))
    assert "more than 10000 points" in refused(tmp_path, csv="x.csv")
    assert "either points or csv" in refused(tmp_path)
    assert "either points or csv" in refused(tmp_path, csv="x.csv", points=[["0 s", 1]])
    assert "columns" in refused(tmp_path, columns=["a", "b"], points=[["0 s", 1]])


# --- blocks ----------------------------------------------------------------------------------------------------------


def test_gain_sum_and_product_calculate_their_outputs() -> None:
    """3·0.5 + 1 = 2.5; 2.5 - 2·0.5 = 1.5; 1.5·0.5·4 = 3; held at 2. Inputs left open count as nothing."""
    circuit = bench(
        gain={"type": "gain", "input": "x", "signal": "g", "gain": 3, "offset": 1},
        sum={"type": "sum", "a": "g", "b": "x", "weight_b": -2, "signal": "d"},
        product={"type": "product", "a": "d", "b": "x", "gain": 4, "signal": "p"},
        limiter={"type": "limiter", "input": "p", "signal": "s", "lower": 0, "upper": 2},
    )
    circuit["x"] = 0.5
    circuit.run(1e-3, 1e-3)
    assert [circuit[name] for name in "gdps"] == [2.5, 1.5, 3.0, 2.0]


@given(x=st.floats(-1.5, 1.5), expo=st.floats(0.0, 1.0))
def test_lever_curve_is_symmetric_and_monotonic(x: float, expo: float) -> None:
    y = lever_curve(x, 0.1, 0.9, expo)
    assert lever_curve(-x, 0.1, 0.9, expo) == -y
    assert -1.0 <= y <= lever_curve(x + 0.01, 0.1, 0.9, expo) + 1e-12 <= 1.0 + 1e-12
    if abs(x) <= 0.1:
        assert y == 0.0
    if x >= 0.9:
        assert y == pytest.approx(1.0)


def test_joystick_shapes_the_lever() -> None:
    circuit = bench(j=source("joystick", lever="x", deadband="10 %", saturation=0.9, expo=0.5))
    for lever, expected in ((0.05, 0.0), (0.5, 0.5 * 0.5 + 0.5 * 0.125), (-0.95, -1.0)):
        circuit["x"] = lever
        circuit.run(1e-3, 1e-3)
        assert circuit["s"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("solver", ["rk4", "rosenbrock"])
def test_lag_follows_a_step_as_an_exponential(solver: str) -> None:
    circuit = bench(solver, lag=source("lag", input="x", time_constant="50 ms", initial=-1))
    circuit["x"] = 1.0
    t, u = over_time(circuit, 0.2, 5e-4)
    assert u == pytest.approx(1 - 2 * np.exp(-t / 0.05), abs=1e-10 if solver == "rk4" else 1e-4)


@pytest.mark.parametrize("step", [1e-4, 1e-3, 3e-3])
def test_delay_shows_the_signal_as_it_was(step: float) -> None:
    """A 5 Hz sine 40 ms later, to the error of straight lines between 32 points: (2·pi·5·1.25 ms)²/8 = 2e-4."""
    circuit = bench(
        sine={"type": "sine_signal", "frequency": "5 Hz", "signal": "x"},
        delay=source("delay", input="x", delay="40 ms", initial=0),
    )
    t, u = over_time(circuit, 0.6, step)
    expected = np.where(t > 0.04, np.sin(10 * pi * (t - 0.04)), 0.0)
    assert u == pytest.approx(expected, abs=2.5e-4 + (2 * pi * 5 * step) ** 2 / 8)


def test_delay_starts_with_its_initial_value_and_may_close_a_loop() -> None:
    """s(t) = 1 + s(t - 10 ms)/2: 1, 1.5, 1.75 … in steps of 10 ms."""
    circuit = bench(
        delay={"type": "delay", "input": "s", "signal": "back", "delay": "10 ms"},
        sum=source("sum", a=1.0, b="back", weight_b=0.5),
    )
    circuit.run(0.005, 1e-4)
    for expected in (1.0, 1.5, 1.75, 1.875):
        assert circuit["s"] == pytest.approx(expected, abs=1e-6)
        circuit.run(0.01, 1e-4)


def test_delay_shorter_than_a_step_lasts_a_step() -> None:
    circuit = bench(
        ramp={"type": "ramp_signal", "duration": "1 s", "signal": "x"},
        delay=source("delay", input="x", delay="0.3 ms"),
    )
    t, u = over_time(circuit, 0.5, 5e-3)
    assert np.all(np.abs(t[2:] - u[2:] - 5e-3) <= 5.1e-3)
    assert np.all(np.diff(u) >= 0.0)


def test_a_switched_delay_time_keeps_the_present_value() -> None:
    """A live switch of the delay while the signal stands: nothing moves."""
    table = {"volume": VOLUME, "delay": source("delay", input="x", delay="50 ms")}
    first = Bench({"components": table})
    first["x"] = 0.7
    first.run(0.3, 1e-3)
    second = Bench({"components": {**table, "delay": {**table["delay"], "delay": "20 ms"}}})
    carried = second.packed.carried_from(first.packed)
    second.z[carried >= 0] = first.z[carried[carried >= 0]]
    _, u = over_time(second, 0.1)
    assert u == pytest.approx(0.7, abs=1e-12)


def test_comparator_switches_with_hysteresis() -> None:
    circuit = bench(
        sine={"type": "sine_signal", "frequency": "1 Hz", "signal": "x"},
        c=source("comparator", input="x", on_at=0.5, off_at=-0.5, on_value=3, off_value=-3),
    )
    t, u = over_time(circuit, 2.0)
    on = (t % 1.0 > 1 / 12 + 0.002) & (t % 1.0 < 7 / 12 - 0.002)
    off = ((t % 1.0 < 1 / 12 - 0.002) | (t % 1.0 > 7 / 12 + 0.002)) & (t > 0.002)
    assert set(u[on]) == {3.0}
    assert set(u[off & (t % 1.0 > 0.003)]) == {-3.0}


def test_comparator_keeps_its_start_between_the_levels() -> None:
    """From the first step on it sees the signal that is, not the zero before: 40 bar is between 30 and 50 bar."""
    sensor = {"type": "pressure_sensor", "ports": {"P": "node"}, "signal": "x", "initial": "40 bar"}
    switch = source("comparator", input="x", on_at=50 * BAR, off_at=30 * BAR, starts_on=True)
    circuit = Bench(
        {"components": {"volume": VOLUME, "sensor": sensor, "c": switch}, "nodes": {"node": {"pressure": "40 bar"}}}
    )
    circuit.run(0.01, 1e-3)
    assert circuit["s"] == 1.0


def test_pressure_switch_keeps_a_volume_between_its_levels() -> None:
    """Pump on below 80 bar, off above 100 bar, an outlet drains: pressure stays within one step of these."""
    circuit = Bench(
        {
            "components": {
                "volume": VOLUME,
                "sensor": {"type": "pressure_sensor", "ports": {"P": "node"}, "signal": "x", "time_constant": "0.5 ms"},
                "switch": source("comparator", input="x", on_at=100e5, off_at=80e5, on_value=0, off_value=1),
                "pump": {"type": "flow_source", "ports": {"P": "node", "T": "tank"}, "command": "s", "flow": "6 l/min"},
                "outlet": {"type": "orifice", "ports": {"A": "node", "B": "tank"}, "diameter": "0.5 mm"},
                "tank": {"type": "tank", "ports": {"T": "tank"}},
            }
        }
    )
    circuit.run(0.3, 1e-4)
    p = circuit.record(("node.p",), 2.0, 1e-4, every=1e-3)["node.p"] / BAR
    assert 78.0 < p.min() < 81.0
    assert 99.0 < p.max() < 102.0


def test_sources_run_without_a_command() -> None:
    circuit = Bench(
        {
            "components": {
                "volume": VOLUME,
                "pump": {"type": "flow_source", "ports": {"P": "node", "T": "supply"}, "flow": "6 l/min"},
                "supply": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "7 bar"},
            }
        }
    )
    circuit.run(0.1, 1e-3)
    assert circuit["supply.p"] == 7 * BAR
    assert circuit["node.p"] == pytest.approx(1.5e9 / 1e-3 * 1e-5, rel=1e-9)


def test_impossible_signals_are_refused() -> None:
    assert "must be > 0" in refusal(RampSignal, duration="0 s")
    assert "must be below saturation" in refusal(Joystick, deadband=0.5, saturation=0.4)
    assert "must not be above upper" in refusal(Limiter, lower=1, upper=0)
    assert "must not be above on_at" in refusal(Comparator, on_at=1, off_at=2)
    assert "must be > 0" in refusal(Delay, delay="0 s")
    assert "times must increase" in refusal(TableSignal, points=[["1 s", 0], ["1 s", 1]])
    assert "give at least one" in refusal(TableSignal, points=[])
    assert "must start at 0 s" in refusal(TableSignal, points=[["0 s", 0]], repeat=True)
    assert "no unit" in refusal(TableSignal, points=[[0, 1]])
