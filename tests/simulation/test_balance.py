"""The balances of oil and energy of a circuit run, against what was calculated by hand."""

from __future__ import annotations

import copy
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.compiler import compiled_program
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.balance import Balance, balance
from hilserver.simulation.cavitation import cavitation
from hilserver.simulation.circuit_report import balance_facts, write_run
from hilserver.simulation.circuit_run import TICK, CircuitRun, read_circuit_file, read_cycle, run_circuit_file
from hilserver.simulation.circuit_run import run_circuit as run_of
from hilserver.simulation.packed_run import initial_values

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
BAR = 1e5
TANK = {"type": "tank", "ports": {"T": "tank"}}
LINE = {"type": "volume", "ports": {"P": "line"}, "volume": "1 l"}


def run(components: dict[str, Any], seconds: float, **more: Any) -> CircuitRun:
    return run_of(read_circuit({"components": components, **more}, LIBRARY), LIBRARY, duration=seconds)


def source(flow: str, command: float = 1.0) -> dict[str, Any]:
    return {"type": "flow_source", "ports": {"P": "line", "T": "tank"}, "flow": flow, "command": command}


def test_a_filled_volume_contains_the_inflow() -> None:
    """6 l/min for 0.1 s into a litre: 10 ml at 150 bar, V·p²/2B = 75 J."""
    done = run({"source": source("6 l/min"), "line": LINE, "tank": TANK}, 0.1).balance
    assert done.oil.inflow == pytest.approx(1e-5, rel=1e-12)
    assert (done.oil.outflow, done.oil.displaced, done.oil.void) == (0.0, 0.0, 0.0)
    assert done.oil.compressed == pytest.approx(1e-5, rel=1e-12)
    assert done.oil.largest == pytest.approx(1e-3)
    assert done.oil.relative_error < 1e-12
    assert done.energy.stored == pytest.approx(75.0, rel=1e-12)
    assert done.energy.inflow == pytest.approx(75.0, rel=0.01)  # of the source: by the trapezoidal rule
    assert done.energy.relative_error < 1e-12


def test_a_drained_volume_has_a_void() -> None:
    """6 l/min out for 0.1 s: 10 ml, of which the oil's expansion by 1 bar gives 0.067 ml."""
    done = run({"source": source("6 l/min", -1.0), "line": LINE, "tank": TANK}, 0.1)
    oil = done.balance.oil
    assert oil.inflow == 0.0
    assert oil.outflow == pytest.approx(1e-5, rel=1e-12)
    assert oil.void == pytest.approx(1e-5 - 1e-3 * BAR / 1.5e9, rel=1e-9)
    assert oil.compressed == pytest.approx(-1e-3 * BAR / 1.5e9, rel=1e-9)
    assert oil.relative_error < 1e-12
    assert done.balance.voids == {"line": pytest.approx(oil.void)}
    (note,) = cavitation(done.circuit, done.series, TICK)
    assert note == "line: cavitates for 0.1 s, up to 0.00993 l of void."


def test_the_report_states_balances_and_cavitation(tmp_path: Path) -> None:
    done = run({"source": source("6 l/min", -1.0), "line": LINE, "tank": TANK}, 0.1)
    write_run(done, tmp_path)
    page = (tmp_path / "circuit.md").read_text()
    for name, text in balance_facts(done):
        assert name in page
        assert text in page
    assert "line: cavitates for 0.1 s, up to 0.00993 l of void." in page
    header = (tmp_path / "circuit.csv").read_text().splitlines()[0]
    assert "line.content" in header
    assert "mean_" not in header


def test_the_loss_of_a_restrictor_is_dissipated() -> None:
    """A source against a restrictor: what is not in the compressed oil becomes heat."""
    restrictor = {
        "type": "laminar_restrictor",
        "ports": {"A": "line", "B": "tank"},
        "nominal_flow": {"flow": "6 l/min", "drop": "100 bar"},
    }
    done = run({"source": source("6 l/min"), "line": LINE, "restrictor": restrictor, "tank": TANK}, 5.0)
    p = 100 * BAR  # at rest 6 l/min flow at 100 bar
    assert done.series["line.p"][-1] == pytest.approx(p, rel=1e-6)
    energy = done.balance.energy
    assert energy.stored == pytest.approx(0.5 * 1e-3 / 1.5e9 * p**2, rel=1e-5)
    assert energy.inflow == pytest.approx(energy.stored + energy.dissipated, rel=1e-9)
    T = 1e-3 / 1.5e9 * p / 1e-4  # time constant C/G
    exact = p * 1e-4 * (5.0 - 2 * T + 0.5 * T)  # the integral of G·p² with p = p_end·(1 - e^(-t/T))
    assert energy.dissipated == pytest.approx(exact, rel=1e-3)


def test_a_lifted_load_gains_potential_energy() -> None:
    """A cylinder lifts 1 t: the weight's energy m·g·x is stored, the displaced oil is that of its piston area."""
    cylinder = {
        "type": "single_acting_cylinder",
        "ports": {"A": "line", "rod": "rod"},
        "bore": "50 mm",
        "stroke": "500 mm",
        "moving_mass": "10 kg",
        "dead_volume_A": "0.1 l",
        "friction": {"efficiency": 1.0},
    }
    load = {"type": "load_mass", "ports": {"rod": "rod"}, "mass": "1000 kg"}
    starts = {"line": {"pressure": "50 bar"}, "rod": {"position": "10 mm"}}
    done = run(
        {"source": source("6 l/min"), "cylinder": cylinder, "load": load, "line": LINE, "tank": TANK}, 2.0, nodes=starts
    )
    risen = done.series["rod.x"][-1] - 0.01
    assert risen == pytest.approx(2e-4 / (0.25 * pi * 0.05**2), rel=0.01)
    oil, energy = done.balance.oil, done.balance.energy
    assert oil.displaced == pytest.approx(0.25 * pi * 0.05**2 * risen, rel=1e-12)
    assert oil.relative_error < 1e-12
    assert energy.relative_error < 1e-7
    assert energy.stored == pytest.approx(1000 * 9.81 * risen, rel=0.02)  # and some joules in oil and motion
    assert energy.dissipated == pytest.approx(0.0, abs=1e-3 * energy.stored)


def altered(done: CircuitRun, name: str, more: float) -> Balance:
    """The balance of the same run with another value at its end."""
    rows = np.column_stack([done.series[each] for each in done.packed.names])
    rows[-1, done.packed.names.index(name)] += more
    program = compiled_program(LIBRARY)
    return balance(program, LIBRARY, done.circuit, done.packed, initial_values(done.packed), rows, TICK)


def test_an_error_in_the_oil_balance_is_detected() -> None:
    """Were a millilitre more in an accumulator, or a bar more in a volume, than flowed in, the balance would say it."""
    accumulator = {
        "type": "accumulator",
        "ports": {"P": "line"},
        "gas_volume": "2 l",
        "precharge": "50 bar",
        "nominal_flow": {"flow": "100 l/min", "drop": "3 bar"},
    }
    starts = {"line": {"pressure": "60 bar"}}
    done = run({"source": source("6 l/min"), "gas": accumulator, "line": LINE, "tank": TANK}, 1.0, nodes=starts)
    assert done.balance.oil.relative_error < 1e-12
    assert altered(done, "gas.V", 1e-6).oil.error == pytest.approx(1e-6, rel=1e-6)
    assert altered(done, "line.content", BAR).oil.error == pytest.approx(1.2e-3 / 1.5e9 * BAR, rel=1e-6)


@pytest.mark.parametrize("name", ["verification", "accumulator", "regenerative", "crane", "boom", "excavator"])
def test_example_circuits_conserve_oil(name: str) -> None:
    """Cylinders on mechanisms included, whose drift is corrected at each step."""
    cycle = ROOT / "config" / "cycles" / f"{name}.toml"
    done = run_circuit_file(ROOT / "config" / "circuits" / f"{name}.toml", LIBRARY, cycle, 2.0)
    assert done.balance.oil.relative_error < 1e-12
    assert [name for name, _ in balance_facts(done)] == ["Oil", "Energy"]


def test_the_energy_of_a_mechanism_is_that_which_it_took() -> None:
    """What the cylinder gave is in the motion and height of the boom's bodies, the same in both coordinates."""
    raw = copy.deepcopy(dict(read_circuit_file(ROOT / "config" / "circuits" / "boom.toml", LIBRARY).source))
    cycle = read_cycle(ROOT / "config" / "cycles" / "boom.toml")
    found = {}
    for method in ("absolute", "recursive"):
        raw["mechanisms"]["boom"]["definition"] = {**raw["mechanisms"]["boom"]["definition"], "method": method}
        found[method] = run_of(read_circuit(raw, LIBRARY), LIBRARY, cycle, 2.0)
        energy = found[method].balance.energy
        assert energy.mechanisms > 100.0
        assert energy.relative_error < 1e-10
    first, second = (done.balance.energy.mechanisms for done in found.values())
    assert first == pytest.approx(second, rel=1e-8)
    faster = altered(found["absolute"], "boom.boom.w", 0.01).energy.error
    higher = altered(found["absolute"], "boom.boom.y", 0.01).energy.error
    body = found["absolute"].circuit.mechanisms[0].mechanism.bodies["boom"]
    w = found["absolute"].series["boom.boom.w"][-1]
    assert faster == pytest.approx(abs(0.5 * body.inertia[0] * ((w + 0.01) ** 2 - w**2)), rel=1e-3)
    assert higher == pytest.approx(body.mass * 9.81 * 0.01, rel=1e-3)


@pytest.mark.parametrize(("integrator", "substeps"), [("euler", 20), ("rk4", 2), ("rosenbrock", 1)])
@pytest.mark.parametrize("method", ["absolute", "recursive"])
def test_a_cylinder_on_a_mechanism_that_cavitates_keeps_its_oil(method: str, integrator: str, substeps: int) -> None:
    """The boom falls with hardly any supply and sucks a void, the valve switches: all methods, both equations."""
    raw = copy.deepcopy(dict(read_circuit_file(ROOT / "config" / "circuits" / "boom.toml", LIBRARY).source))
    raw["components"]["supply"]["pressure"] = "3 bar"
    raw["mechanisms"]["boom"]["definition"] = {**raw["mechanisms"]["boom"]["definition"], "method": method}
    raw["solver"] = {"integrator": integrator, "substeps": substeps}
    points = [["0 s", 0], ["0.05 s", -1], ["0.3 s", -1], ["0.31 s", 1], ["0.6 s", 1], ["0.61 s", -0.2]]
    cycle = CycleSettings.model_validate({"inputs": {"joystick": {"points": points}}})
    done = run_of(read_circuit(raw, LIBRARY), LIBRARY, cycle, 0.8)
    assert max(done.balance.voids.values()) > 1e-5
    assert np.ptp(done.series["rod.x"]) > 0.03
    assert done.balance.oil.relative_error < 1e-12
