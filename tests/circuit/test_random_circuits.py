"""What holds for every circuit: random ones from the whole library, under random commands.

A new component takes part by its example page (docs/examples); if it is a source of energy, or keeps oil or energy, it
must be named below. HILSERVER_RANDOM_CIRCUITS=1000 tries so many circuits per property, other ones each time.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_circuits import ALL, LIBRARY, Raw, Run, Sums, circuit_of, circuits, commands, run, sums_of

from hilserver.circuit.engine import VOID_CAPACITANCE
from hilserver.circuit.model import Placed
from hilserver.components.base import Parameters
from hilserver.components.crane_arm import SHARPEST
from hilserver.numerics.arrays import Floats

pytestmark = pytest.mark.slow

TRIES = int(os.environ.get("HILSERVER_RANDOM_CIRCUITS", "0"))
VAPOUR = -1e5
SEEDS = st.integers(0, 999)

ACTIVE = {
    *("flow_source", "pressure_source", "force_source", "torque_source"),
    *("position_source", "position_actuator", "velocity_source", "speed_source"),
    *("fixed_pump", "pressure_compensated_pump", "load_sensing_pump", "power_limited_pump"),
    "tank",  # the one of the example is preloaded; the one that every circuit has is at 0 bar gauge
}
"""Types that bring energy in. All others must not give out more than they took."""
PASSIVE = [kind for kind in ALL if kind not in ACTIVE]


def ports(kind: str) -> tuple[str, ...]:
    """Ports through which oil or energy flows."""
    component = LIBRARY.types[kind]
    return (*component.hydraulic, *component.mechanical, *component.rotational)


def tries(usual: int) -> Callable[[Any], Any]:
    """So many circuits, the same in every run; as many others as the environment asks for."""
    return settings(
        max_examples=TRIES or usual, derandomize=not TRIES, deadline=None, suppress_health_check=list(HealthCheck)
    )


def driven(raw: Raw, seconds: float, seed: int, integrator: str, substeps: int, step: float) -> Run:
    """Run under random commands that change at most every millisecond."""
    ticks = round(seconds / (substeps * step))
    signals = commands(circuit_of(raw), round(seconds / 1e-3), seed)
    held = {name: np.repeat(line, max(ticks // len(line), 1)) for name, line in signals.items()}
    return run(raw, held, ticks, integrator, substeps, step)


# --- no wrong numbers -------------------------------------------------------------------------------------------------


def assert_sound(done: Run) -> None:
    broken = ~np.isfinite(done.rows)
    assert not broken.any(), f"not finite: {[done.names[k] for k in np.flatnonzero(broken.any(axis=0))]}"
    for name, kind in zip(done.packed.values, done.packed.kinds, strict=True):
        if kind == "pressure":
            assert done[name].min() >= VAPOUR, name


@tries(60)
@given(circuits(ALL, ["2 l", "5 l"], air=(0.0, 0.005)), SEEDS)
def test_runge_kutta_stays_finite(raw: Raw, seed: int) -> None:
    """10 s at 0.1 ms."""
    assert_sound(driven(raw, 10.0, seed, "rk4", 10, 1e-4))


@tries(60)
@given(circuits(ALL, ["10 cm^3", "0.1 l", "1 l"], air=(0.0, 0.005)), SEEDS)
def test_rosenbrock_stays_finite_with_tiny_volumes(raw: Raw, seed: int) -> None:
    """10 s at 1 ms, nodes of 10 ml and more."""
    assert_sound(driven(raw, 10.0, seed, "rosenbrock", 1, 1e-3))


# --- oil and energy ---------------------------------------------------------------------------------------------------


def parameters(done: Run, placed: Placed) -> Parameters:
    return placed.component.parameters(done.circuit.fluid_of(placed))


def flows(done: Run, placed: Placed) -> list[Floats]:
    """Flows out of the component at its ports that have one."""
    names = [f"{placed.name}.q_{port}" for port in placed.component.hydraulic]
    return [done[name] for name in names if name in done.names]


def powers(done: Run, placed: Placed) -> list[Floats]:
    """Power out of the component at each of its ports: pressure times flow, speed times force or torque."""
    component, found = placed.component, []
    for ports, result, value in (
        (component.hydraulic, "q", "p"),
        (component.mechanical, "F", "v"),
        (component.rotational, "T", "w"),
    ):
        for port in ports:
            if f"{placed.name}.{result}_{port}" in done.names:
                found.append(done[f"{placed.name}.{result}_{port}"] * done[f"{placed.ports[port]}.{value}"])
    return found


def _accumulator_power(done: Run, placed: Placed) -> Floats:
    gas: Floats = _gas_pressure(done, placed) * -done[f"{placed.name}.q_P"]
    return gas


def _gas_pressure(done: Run, placed: Placed) -> Floats:
    p = parameters(done, placed)
    compression = p["V_0"] / (p["V_0"] - np.clip(done[f"{placed.name}.V"], 0.0, p["V_full"]))
    gauge: Floats = p["p_pre"] * compression ** p["n"] - p["p_0"]
    return gauge


def _lifting_power(done: Run, placed: Placed) -> Floats:
    power: Floats = parameters(done, placed)["F_g"] * done[f"{placed.ports['rod']}.v"]
    return power


def _crane_weight_power(done: Run, placed: Placed) -> Floats:
    p, name = parameters(done, placed), placed.name
    power: Floats = p["weight"] * np.cos(done[f"{name}.theta"]) * done[f"{name}.w"]
    return power


def _crane_inertia_power(done: Run, placed: Placed) -> Floats:
    """dm/dx·v³/2 of the mass that the arm has at its rod, m = J/a² with the rod's arm of lever a(x)."""
    p, rod = parameters(done, placed), placed.ports["rod"]
    length = p["L_0"] + done[f"{rod}.x"]
    cosine = (p["p"] ** 2 + p["q"] ** 2 - length**2) / (2.0 * p["p"] * p["q"])
    cosine = np.clip(cosine, -SHARPEST, SHARPEST)
    a = p["p"] * p["q"] * np.sqrt(1.0 - cosine**2) / length
    slope = (p["p"] * p["q"] * cosine - a**2) / (a * length)  # da/dx
    power: Floats = -p["J"] / a**3 * slope * done[f"{rod}.v"] ** 3
    return power


def _spring_power(done: Run, placed: Placed) -> Floats:
    rod, base, p = placed.ports["rod"], placed.ports["base"], parameters(done, placed)
    stretched: Floats = done[f"{rod}.x"] - done[f"{base}.x"] - p.get("x_0", 0.0)
    power: Floats = p["K"] * stretched * (done[f"{rod}.v"] - done[f"{base}.v"])
    return power


def _contact_power(depth: Floats, rate: Floats, p: Parameters) -> Floats:
    """Into the spring of a stop."""
    s = np.clip(depth / p["zone"], 0.0, 1.0)
    power: Floats = s * s * (3.0 - 2.0 * s) * p["K_end"] * np.maximum(depth, 0.0) * rate
    return power


def _end_stop_power(done: Run, placed: Placed) -> Floats:
    x, v = (done[f"{placed.ports['rod']}.{value}"] for value in "xv")
    p = parameters(done, placed)
    return _contact_power(x - p["x_upper"], v, p) + _contact_power(p["x_lower"] - x, -v, p)


def _bristle_power(done: Run, placed: Placed) -> Floats:
    """Into the bristles of the LuGre friction; they rest where another law holds."""
    z = f"{placed.name}.z"
    power: Floats = parameters(done, placed)["sigma0"] * done[z] * done.rate(z)
    return power


def _cylinder_power(done: Run, placed: Placed) -> Floats:
    """Into the springs of its ends, its return spring, its friction's bristles."""
    x, v = (done[f"{placed.ports['rod']}.{value}"] for value in "xv")
    p = parameters(done, placed)
    back = (p.get("F_spring", 0.0) + p.get("K_spring", 0.0) * x) * v
    ends = _contact_power(x - p["stroke"], v, p) + _contact_power(-x, -v, p)
    power: Floats = ends + back + _bristle_power(done, placed)
    return power


STORED_POWER: dict[str, Callable[[Run, Placed], Floats]] = {
    "accumulator": _accumulator_power,
    "load_mass": _lifting_power,
    "crane_arm": _crane_weight_power,
    **dict.fromkeys(("spring", "elastic_coupling"), _spring_power),
    "end_stop": _end_stop_power,
    "friction": _bristle_power,
    **dict.fromkeys(("cylinder", "single_acting_cylinder", "double_rod_cylinder"), _cylinder_power),
}
"""Power that goes into what a component keeps and gives back. Oil and moving masses belong to the nodes."""


CHANGING_MASS: dict[str, Callable[[Run, Placed], Floats]] = {"crane_arm": _crane_inertia_power}
"""Power that goes into motion as the mass at a node changes with its position; it belongs to the node's motion."""


def _displaced(done: Run, placed: Placed) -> Floats:
    p = parameters(done, placed)
    volume: Floats = (p["A_A"] - p.get("A_B", 0.0)) * done[f"{placed.ports['rod']}.x"]
    return volume


KEPT_OIL: dict[str, Callable[[Run, Placed], Floats]] = {
    **dict.fromkeys(("cylinder", "single_acting_cylinder"), _displaced),
    "accumulator": lambda done, placed: done[f"{placed.name}.V"],
}
"""Oil that a component has taken in beside what compresses in the nodes, m³."""


@pytest.mark.parametrize("kind", [kind for kind in ALL if ports(kind)])
@tries(4)
@given(data=st.data(), seed=SEEDS)
def test_no_component_generates_oil_or_energy(kind: str, data: st.DataObject, seed: int) -> None:
    """At each of 1000 moments: the flows add up to zero; what comes out as power went in, or comes out of a store."""
    raw = data.draw(circuits(ALL, ["0.1 l", "1 l"], air=(0.0, 0.005), always=[kind]))
    done = driven(raw, 1.0, seed, "rosenbrock", 1, 1e-3)
    for placed in done.circuit.placed:
        kind = placed.component.type_name
        q = flows(done, placed)
        if kind not in KEPT_OIL and len(q) > 0:
            assert (np.abs(sum(q)) <= 1e-12 * sum(map(np.abs, q)) + 1e-15).all(), f"{placed.name} makes or loses oil"
        if kind not in ACTIVE and (out := powers(done, placed)):
            stored = STORED_POWER[kind](done, placed) if kind in STORED_POWER else np.zeros(len(done.rows))
            moving = CHANGING_MASS[kind](done, placed) if kind in CHANGING_MASS else np.zeros(len(done.rows))
            size = np.sum(np.abs([*out, stored, moving]), axis=0)
            gained = np.sum([*out, stored, moving], axis=0)
            worst = int(np.argmax(gained - 1e-9 * size))
            assert gained[worst] <= 1e-9 * size[worst] + 1e-9, f"{placed.name} gives {gained[worst]:.3g} W at {worst}"


def trapezoid(values: Floats, over: Floats) -> Floats:
    """Integral of each step."""
    parts: Floats = 0.5 * (values[1:] + values[:-1]) * np.diff(over, axis=0)
    return parts


def columns(done: Run, names: list[str]) -> Floats:
    return np.column_stack([done[name] for name in names]) if names else np.zeros((len(done.rows), 0))


def voids(done: Run, sums: Sums) -> Floats:
    """Room without oil at each node, m³."""
    contents = columns(done, [name.removesuffix(".p") + ".content" for name in sums.pressures])
    room: Floats = VOID_CAPACITANCE * np.maximum(VAPOUR - contents, 0.0)
    return room


def oil_balance(done: Run) -> tuple[float, float]:
    """Oil that appeared until the end beside what flowed in (m³), and oil that was moved about (m³)."""
    sums = sums_of(done)
    h = np.diff(done["t"])
    compressed = trapezoid(sums.C, columns(done, sums.pressures)) - np.diff(voids(done, sums), axis=0)
    inflow = 0.5 * h * (sums.inflow_first + sums.inflow_last)[1:]
    appeared = compressed.sum(axis=1) - inflow
    for placed in done.circuit.placed:
        if taken := KEPT_OIL.get(placed.component.type_name):
            appeared += np.diff(taken(done, placed))
    return abs(float(appeared.sum())), float(np.abs(compressed).sum() + np.abs(inflow).sum())


def energy_rise(done: Run) -> tuple[float, float]:
    """Largest rise of the stored energy over its least value before (J), and the energy that was moved about (J)."""
    sums = sums_of(done)
    p = columns(done, sums.pressures)
    parts = [trapezoid(p * sums.C, p), -VAPOUR * np.diff(voids(done, sums), axis=0)]
    parts.append(np.diff(0.5 * sums.m * columns(done, sums.speeds) ** 2, axis=0))
    for placed in done.circuit.placed:
        if taken := STORED_POWER.get(placed.component.type_name):
            parts.append(trapezoid(taken(done, placed)[:, None], done["t"][:, None]))
    changes = np.column_stack(parts)
    energy = np.cumsum(changes.sum(axis=1))
    return float((energy - np.minimum.accumulate(energy)).max()), float(np.abs(changes).sum())


def settled(done: Run, seconds: float = 0.01) -> Run:
    """Without the beginning, in which stiff components bring neighbours of different pressure together."""
    return replace(done, rows=done.rows[done["t"] >= seconds])


def assert_shrinks(measure: Callable[[Run], tuple[float, float]], raw: Raw, seed: int, rounding: float) -> None:
    """With a quarter of the step less than half of the error remains, or nearly nothing of what was moved about."""
    (coarse, _), (fine, moved) = (measure(settled(driven(raw, 0.2, seed, "rk4", 1, step))) for step in (1e-4, 2.5e-5))
    assert fine <= max(0.5 * coarse, 1e-5 * moved, rounding)
    assert fine <= 1e-2 * moved + rounding


@tries(15)
@given(circuits(ALL, ["1 l", "3 l"], air=(0.0, 0.005)), SEEDS)
def test_circuits_conserve_oil(raw: Raw, seed: int) -> None:
    """What is in nodes, chambers and accumulators changes by what flowed in from tanks and sources."""
    assert_shrinks(oil_balance, raw, seed, 1e-15)


@tries(15)
@given(circuits(PASSIVE, ["1 l", "3 l"], air=(0.0, 0.005)), SEEDS)
def test_no_circuit_generates_energy(raw: Raw, seed: int) -> None:
    """No pump, no source: compressed oil and gas, motion, height and springs never hold more together than before."""
    assert_shrinks(energy_rise, raw, seed, 1e-8)


# --- nothing depends on names, order or side --------------------------------------------------------------------------


def assert_same(one: Floats, other: Floats, scale: float, name: str) -> None:
    apart = np.abs(one - other) / (np.abs(one) + scale)
    assert apart.max() < 1e-6, f"{name} differs by {apart.max():.1e}"


@tries(25)
@given(circuits(ALL, ["2 l", "5 l"], air=(0.0, 0.005)), SEEDS, st.randoms(use_true_random=False))
def test_names_and_order_of_components_do_not_matter(raw: Raw, seed: int, order: random.Random) -> None:
    parts = list(raw["components"].items())
    order.shuffle(parts)
    shuffled = raw | {"components": {f"other{number}": part for number, (_, part) in enumerate(parts)}}
    one, other = (driven(table, 0.5, seed, "rk4", 10, 1e-4) for table in (raw, shuffled))
    for node in raw["nodes"]:
        for value, scale in (("p", 1e5), ("x", 1e-3), ("v", 1e-3), ("w", 1e-2)):
            if f"{node}.{value}" in one.names:
                assert_same(one[f"{node}.{value}"], other[f"{node}.{value}"], scale, f"{node}.{value}")


STROKE = 0.3
TURNED = {
    *("orifice", "laminar_restrictor", "shuttle_valve", "proportional_valve_4_3", "servo_valve"),
    *("directional_valve_4_3", "load_sensing_valve", "double_rod_cylinder", "hydraulic_motor"),
}
"""Types that are the same seen from both sides: with A and B exchanged they do the opposite."""
REVERSED = {
    *("proportional_valve_4_3", "servo_valve", "directional_valve_4_3", "load_sensing_valve"),
    *("force_source", "torque_source"),
}
"""Types that do the opposite under the opposite command."""
UNTURNED = {
    *("cylinder", "single_acting_cylinder", "end_stop", "crane_arm"),
    *("velocity_source", "position_source", "position_actuator", "speed_source"),
}
TWO_SIDED = [kind for kind in ALL if kind not in UNTURNED and not LIBRARY.types[kind].outputs]


def with_both_commands(raw: Raw) -> Raw:
    """With double-rod cylinders of one stroke, their rods in the middle."""
    table = copy.deepcopy(raw)
    for part in table["components"].values():
        if part["type"] == "double_rod_cylinder":
            part["stroke"] = f"{STROKE} m"
    for start in table["nodes"].values():
        if "position" in start:
            start["position"] = f"{STROKE / 2} m"
    return table


def mirrored(raw: Raw) -> Raw:
    """A and B exchanged, commands and weights reversed: rods and shafts move the other way, pressures are the same."""
    table = copy.deepcopy(raw)
    for part in table["components"].values():
        if part["type"] in TURNED:
            part["ports"]["A"], part["ports"]["B"] = part["ports"]["B"], part["ports"]["A"]
        if part["type"] in REVERSED:
            part["command"] = f"minus_{part['command']}"
        if part["type"] == "load_mass":
            part["direction"] = f"-{part.get('direction', '90 deg')}"
    return table


@tries(25)
@given(circuits(TWO_SIDED, ["2 l", "5 l"], air=(0.0, 0.005)), SEEDS)
def test_a_mirrored_circuit_behaves_symmetrically(raw: Raw, seed: int) -> None:
    drawn = with_both_commands(raw)
    rng = np.random.default_rng(seed)
    signals = {f"command{k}": np.repeat(rng.uniform(-1.2, 1.2, 5), 100) for k in range(4)}
    signals |= {f"minus_{name}": -line for name, line in signals.items()}
    one, other = (
        run(table, {name: signals[name] for name in circuit_of(table).inputs()}, 500, "rk4", 10, 1e-4)
        for table in (drawn, mirrored(drawn))
    )
    for node in drawn["nodes"]:
        for value, scale, image in (
            ("p", 1e5, lambda p: p),
            ("x", 1e-3, lambda x: STROKE - x),
            ("v", 1e-3, np.negative),
            ("w", 1e-2, np.negative),
        ):
            if f"{node}.{value}" in one.names:
                assert_same(one[f"{node}.{value}"], image(other[f"{node}.{value}"]), scale, f"{node}.{value}")
