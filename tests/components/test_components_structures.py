"""What moves a specimen and what a structure consists of: position-controlled actuators, entries of matrices."""

from __future__ import annotations

import tomllib
from math import cosh, exp, pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_text import component
from component_bench import Bench, evaluate, refusal
from scipy.linalg import expm

from hilserver.components.elastic_coupling import ElasticCoupling
from hilserver.components.position_actuator import PositionActuator
from hilserver.hybrid.benchmark import DT, NOMINAL, SPECIMEN
from hilserver.numerics.arrays import Floats
from hilserver.toml import read_toml

OMEGA = sqrt(NOMINAL.beta2)
"""rad/s, of the benchmark's servo valve."""
BENCHMARK: dict[str, Any] = {
    "travel": "50 mm",
    "velocity_gain": f"{NOMINAL.a1_beta0 / NOMINAL.beta2 / NOMINAL.a2!r} 1/s",
    "f90": f"{OMEGA / (2 * pi)!r} Hz",
    "damping": NOMINAL.beta1 / (2.0 * OMEGA),
    "oil_stiffness": f"{NOMINAL.a2!r} N/m",
    "force_decay": f"{NOMINAL.a3!r} 1/s",
    "position_gain": NOMINAL.gain,
}
STIFF: dict[str, Any] = {
    "travel": "100 mm",
    "velocity_gain": "50 1/s",
    "f90": "200 Hz",
    "oil_stiffness": "1e7 N/m",
}


def mass(kg: float, node: str) -> str:
    return component(f"mass_{node}", "load_mass", f"rod={node}", mass=f"{kg} kg", gravity="0 m/s^2")


def damper(damping: float, node: str = "table") -> str:
    return component("damper", "damper", f"rod={node} base=ground", damping=f"{damping!r} N*s/m") + ground()


def ground() -> str:
    return component("ground", "velocity_source", "rod=ground")


def actuator(**values: Any) -> str:
    return component("actuator", "position_actuator", "rod=table", command="u", **values)


# --- position-controlled actuator ------------------------------------------------------------------------------------


@pytest.mark.parametrize("middle", [0.0, 0.03])
def test_position_actuator_moves_the_specimen_of_the_benchmark_exactly(middle: float) -> None:
    """Position, speed, force, valve and its speed: matrix exponential of `Actuator.motion`, to 1e-8 of each's largest.

    A step of 2.5 mm, then a sine of 10 mm at 8 Hz about it; commands are held for each tick of 1/4096 s.
    """
    rest, d = f"{middle!r} m", SPECIMEN.damping
    spring = {"stiffness": f"{SPECIMEN.stiffness!r} N/m", "relaxed": rest}
    bench = Bench(
        mass(SPECIMEN.mass, "table")
        + component("spring", "spring", "rod=table base=ground", **spring)
        + damper(d)
        + actuator(**BENCHMARK, middle=rest)
        + f'[nodes.table]\nposition = "{rest}"\n'
    )
    times = np.arange(2048) * DT
    commands = 0.05 + np.where(times > 0.1, 0.2 * np.sin(2 * pi * 8.0 * (times - 0.1)), 0.0)
    held, state, right, found = NOMINAL.motion().held(DT), np.zeros(5), [], []
    for u in commands:
        state = held.A @ state + held.B[:, 0] * (0.05 * u)
        right.append(state)
        bench["u"] = u
        bench.run(DT, DT / 16)
        found.append([bench[name] for name in ("table.x", "table.v", "actuator.F", "actuator.s", "actuator.r")])
    largest = np.abs(right).max(axis=0)
    assert largest[2] > 5e3  # it was driven hard: N
    assert (np.array(found) - [middle, 0, 0, 0, 0]) / largest == pytest.approx(np.array(right) / largest, abs=1e-8)


def test_position_actuator_follows_a_ramp_with_the_velocity_error() -> None:
    """v/K_v = 0.1/50 m = 2 mm behind, whatever valve and oil; with a force of D v also a D v/(K_h K_v). By hand."""
    for damping, decay, expected in ((1e-9, "0 1/s", 2e-3), (2e4, "10 1/s", 2e-3 + 10 * 2e3 / (1e7 * 50))):
        bench = Bench(mass(0.1, "table") + damper(damping) + actuator(**STIFF, force_decay=decay))
        late = 0.5 * 1e-4 * 0.1  # a command that is held for 0.1 ms is half of that late
        for k in range(10_000):
            bench["u"] = k * 1e-4  # 100 mm/s
            bench.run(1e-4, 1e-5)
        assert 0.1 - late - bench["table.x"] == pytest.approx(expected, rel=1e-4)


def test_position_actuator_at_rest_yields_to_a_force_by_its_leakage() -> None:
    """g u x_full + x_mid - a F/(K_h K_v) against F = 20 kN: 30.6 + 10 - 0.8 = 39.8 mm; its force is F. By hand."""
    push = component("push", "force_source", "rod=table", force="-20 kN")
    loop = actuator(**STIFF, middle="10 mm", force_decay="20 1/s", position_gain=1.02)
    bench = Bench(mass(50, "table") + damper(2e4) + push + loop)
    bench["u"] = 0.3
    bench.run(3.0, 1e-4)
    assert bench["table.x"] == pytest.approx(0.0398, abs=1e-9)
    assert bench["actuator.F_rod"] == pytest.approx(20e3, rel=1e-6)


def test_position_actuator_with_closed_valve_is_a_spring_of_oil() -> None:
    """Without a loop worth mentioning, 1 mm/s of 100 kg on 1e7 N/m: v/w sin(w t), w² = K_h/m."""
    slow = STIFF | {"velocity_gain": "1e-6 1/s"}
    bench = Bench(mass(100, "table") + actuator(**slow) + '[nodes.table]\nvelocity = "1 mm/s"\n')
    bench.run(0.1, 1e-5)
    omega = sqrt(1e7 / 100)
    assert bench["table.x"] == pytest.approx(1e-3 / omega * sin(omega * 0.1), abs=1e-11)


def test_servo_valve_of_a_position_actuator_lags_by_90_degrees_at_f90() -> None:
    """With a rod that is held, s is K_h K_v x_full/(2 d) behind by a quarter period: -cos for a sine. By hand."""
    bench = Bench(component("lock", "velocity_source", "rod=table") + actuator(**STIFF, damping=0.8))
    h, period = 1e-5, 1 / 200
    times = np.arange(round(20 * period / h)) * h
    found = []
    for t in times:
        bench["u"] = sin(2 * pi * 200 * (t + 0.5 * h))  # in the middle of the step, in which it is held
        bench.run(h, h)
        found.append(bench["actuator.s"])
    right = -1e7 * 50 * 0.1 / 1.6 * np.cos(2 * pi * 200 * (times + h))
    last = len(times) // 2
    assert np.array(found)[last:] / right.max() == pytest.approx(right[last:] / right.max(), abs=1e-4)


def growth(kg: float, seconds: float, **values: Any) -> float:
    """Rate at which a vibration on a position loop grows, 1/s, from the amplitudes of its last two fifths."""
    bench = Bench(mass(kg, "table") + actuator(**STIFF | values) + '[nodes.table]\nposition = "1 mm"\n')
    x = np.abs(bench.record(("table.x",), seconds, 1e-5)["table.x"]).reshape(5, -1).max(axis=1)
    return float(np.log(x[4] / x[3]) / (0.2 * seconds))


@pytest.mark.parametrize(("gain", "sign"), [(0.9, -1), (1.1, 1)])
def test_limits_of_the_velocity_gain_of_a_position_actuator(gain: float, sign: int) -> None:
    """Routh's criterion: K_v < 2 d w of the valve for a light rod; K_v < a for a mass on the oil with a fast valve."""
    by_valve = {"f90": "50 Hz", "damping": 0.5, "velocity_gain": f"{gain * 100 * pi!r} 1/s"}
    assert sign * growth(0.1, 0.5, **by_valve) > 1.0
    by_oil = {"f90": "5 kHz", "force_decay": "40 1/s", "velocity_gain": f"{gain * 40!r} 1/s"}
    assert sign * growth(400, 0.8, **by_oil) > 1.0


def test_impossible_position_actuators_are_refused() -> None:
    assert "oil_stiffness" in refusal(PositionActuator, **STIFF | {"oil_stiffness": "0 N/m"})
    assert "velocity_gain" in refusal(PositionActuator, **STIFF | {"velocity_gain": "-50 1/s"})
    assert "force_decay" in refusal(PositionActuator, **STIFF | {"force_decay": "-1 1/s"})


# --- couplings -------------------------------------------------------------------------------------------------------


def test_elastic_coupling_acts_on_both_nodes_with_either_sign() -> None:
    """-3e5 N/m over 2 mm and -40 N s/m at 0.5 m/s: 600 + 20 = 620 N that push apart. By hand."""
    for sign in (1, -1):
        values = {"stiffness": f"{sign * 3e5} N/m", "damping": f"{sign * 40} N*s/m"}
        part = ElasticCoupling.model_validate(values)
        found = evaluate(part, x_rod=3e-3, x_base=1e-3, v_rod=0.1, v_base=-0.4)
        assert found == pytest.approx({"F_rod": -620.0 * sign, "F_base": 620.0 * sign})


def test_negative_elastic_couplings_let_a_mass_leave() -> None:
    """x_0 cosh(k t) with k² = -K/m = 36/s²; v_0 exp(t -D/m) with -D/m = 4/s. Analytic."""
    for values, start, name, right in (
        ({"stiffness": "-1800 N/m"}, 'position = "1 mm"', "rod.x", 1e-3 * cosh(6 * 0.5)),
        ({"stiffness": "0 N/m", "damping": "-200 N*s/m"}, 'velocity = "1 mm/s"', "rod.v", 1e-3 * exp(4 * 0.5)),
    ):
        coupling = component("coupling", "elastic_coupling", "rod=rod base=ground", **values)
        bench = Bench(mass(50, "rod") + ground() + coupling + f"[nodes.rod]\n{start}\n")
        bench.run(0.5, 1e-3)
        assert bench[name] == pytest.approx(right, rel=1e-8)


def test_elastic_couplings_of_the_example_are_a_beam() -> None:
    """700 N at its top: F L³/(3 E I) = 16 mm there and 5 mm at half its height, 5 F L³/(48 E I). Euler-Bernoulli."""
    dampers = "".join(
        component(f"damper_{node}", "damper", f"rod={node} base=ground", damping="4e3 N*s/m")
        for node in ("middle", "top")
    )
    added = tomllib.loads(dampers + component("push", "force_source", "rod=top", force="700 N"))["components"]
    example = read_toml(Path(__file__).parents[2] / "docs/examples/elastic_coupling.toml")
    bench = Bench({**example, "components": {**example["components"], **added}})
    bench.run(2.0, 1e-3)
    assert [bench["top.x"], bench["middle.x"]] == pytest.approx([0.016, 0.005], rel=1e-9)


def matrix_with_negative_couplings(rng: np.random.Generator, size: float) -> Floats:
    """A positive definite matrix of three positions with entries of both signs beside its diagonal."""
    half = rng.standard_normal((3, 3))
    found: Floats = size * (half @ half.T + 0.1 * np.eye(3))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_elastic_couplings_are_the_matrices_of_a_structure(seed: int) -> None:
    """Full matrices of three positions, entry by entry; matrix exponential, to 1e-8 of the largest position."""
    rng = np.random.default_rng(seed)
    K, C = matrix_with_negative_couplings(rng, 2e5), matrix_with_negative_couplings(rng, 500.0)
    assert (K[np.triu_indices(3, 1)] > 0).any()  # a negative coupling
    masses, start, text = rng.uniform(50, 150, 3), rng.standard_normal(3) * 1e-3, ground()
    for i in range(3):
        text += mass(masses[i], f"n{i}")
        for j in range(i, 3):
            k, c = (-K[i, j], -C[i, j]) if j > i else (K[i].sum(), C[i].sum())
            base = f"n{j}" if j > i else "ground"
            values = {"stiffness": f"{k:.17g} N/m", "damping": f"{c:.17g} N*s/m"}
            text += component(f"k{i}{j}", "elastic_coupling", f"rod=n{i} base={base}", **values)
    text += "".join(f'[nodes.n{i}]\nposition = "{start[i]:.17g} m"\n' for i in range(3))
    bench = Bench(text)
    bench.run(0.5, 1e-4)
    inverse = np.diag(1.0 / masses)
    A = np.block([[np.zeros((3, 3)), np.eye(3)], [-inverse @ K, -inverse @ C]])
    right = (expm(0.5 * A) @ [*start, 0.0, 0.0, 0.0])[:3]
    found = [bench[f"n{i}.x"] for i in range(3)]
    assert found == pytest.approx(right, abs=1e-8 * np.abs(start).max())
