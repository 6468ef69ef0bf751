"""The model behind the identification: its derivatives, its invariances, and the oil between valve and piston."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from unknown_rigs import changed_rig

from hilserver.identify.chamber import Chamber
from hilserver.identify.excitation import Extent
from hilserver.identify.experiment import Experiment
from hilserver.identify.fit import Whitener, _Problem, _relaxation
from hilserver.identify.identification import identify_valve
from hilserver.identify.influences import LAMINAR, OTHER_EDGES, ROD_SPEED
from hilserver.identify.linearised import STEP, LinearisedModel
from hilserver.identify.motor_chamber import CASE_LEAKAGE
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.toml import copied

DT = 1e-3
LATER = 3
"""Ticks."""


@pytest.fixture(scope="module")
def recorded() -> tuple[Rig, Recording]:
    """A lift rig with all unknowns, by a seed that no figure of the page is from."""
    rig = changed_rig("lift", 101)
    return rig, recorded_excitation(rig, ["A"], Extent(20.0, 0.6, end_stops=False))


def test_what_acts_like_the_leakage_of_a_motor_is_no_parameter_of_a_cylinder(recorded: tuple[Rig, Recording]) -> None:
    """It would take time, and change next to nothing (decision 0085)."""
    experiment = Experiment(*recorded, "A")
    parameters = experiment.parameters(True)
    assert not experiment.of_motor
    assert parameters.keys().isdisjoint([LAMINAR, CASE_LEAKAGE, *OTHER_EDGES])
    assert parameters.keys() >= {f"delay {name}" for name in experiment.pressures()}


@pytest.mark.parametrize(
    ("along", "relaxation", "along_valley"), [(-0.5, 0.5, 0.5), (0.2, 1.0, 1.0), (0.75, 1.0, 4.0), (0.9, 1.0, 5.0)]
)
def test_successive_changes_are_summed_up_along_a_valley(along: float, relaxation: float, along_valley: float) -> None:
    """As a geometric series, up to five times a change; two opposite ones are halved everywhere."""
    step = np.array([1.0, -2.0])
    assert _relaxation(step, along * step, 4.0, 5.0, along_valley=False) == pytest.approx(relaxation)
    assert _relaxation(step, along * step, 4.0, 5.0, along_valley=True) == pytest.approx(along_valley)


def test_derivatives_are_those_of_the_residuals(recorded: tuple[Rig, Recording]) -> None:
    """By central differences, in the middle of a fit: a solver stops anywhere where they are not."""
    experiment = Experiment(*recorded, "A")
    parameters = experiment.parameters(True)
    values = {name: p.start for name, p in parameters.items()}
    values |= {"leakage": 0.01, "overlap": 0.02, "hose A": 0.3, "restriction A": 3e5, "piston_leakage": 1e-12}
    values |= {"delay p_A": 0.7e-3, "more delay p_A": 0.2e-3, "gain p_A": 1e-3}
    modelled = zip(experiment.signals, experiment.predict(values), strict=True)
    whiteners = {s.name: Whitener.of(s.measured - y, s.used, s.summed) for s, y in modelled}
    softer = {**values, "elasticity A": 0.9}
    noise = {s.name: s.noise(softer) for s in experiment.signals if s.noise is not None}
    problem = _Problem(
        parameters, experiment.signals, LinearisedModel(parameters, experiment.predict), whiteners, noise
    )
    assert noise
    J = problem.penalised_jacobian(values)
    for column, (name, p) in zip(J.T, parameters.items(), strict=True):
        moving, h = p.slope or name, STEP * p.size
        here = values.get(moving, 0.0)
        if not p.lower < here - h < here + h < p.upper:
            continue
        after, before = (problem.penalised(values | {moving: here + step}) for step in (h, -h))
        wrong = float(np.linalg.norm(column - (after - before) / (2.0 * STEP)))
        assert wrong < 0.02 * float(np.linalg.norm(column)) + 1e-6, name


@pytest.mark.parametrize(("name", "valve"), [("lift", "A"), ("demo", "main")])
def test_a_kept_prediction_is_that_of_the_same_values(name: str, valve: str) -> None:
    """Each signal depends on no other value than those it is kept by: each parameter is changed in turn."""
    rig = changed_rig(name, 101)
    recording = recorded_excitation(rig, [valve], Extent(4.0, 0.6, end_stops=False))
    experiment = Experiment(rig, recording, valve)
    values = {n: p.start for n, p in experiment.parameters(True).items()} | {"leakage": 0.01, "overlap": 0.02}
    base = experiment.predict(values)
    kept = 0
    for parameter, p in experiment.parameters(True).items():
        for moving in filter(None, (parameter, p.slope)):
            changed = values | {moving: values.get(moving, 0.0) + 0.1 * p.size}
            found, anew = experiment.predict(changed), Experiment(rig, recording, valve).predict(changed)
            assert all(map(np.array_equal, found, anew)), moving
            kept += sum(a is b for a, b in zip(found, base, strict=True))
    assert kept > 5 or len(base) == 1


@pytest.mark.slow
def test_sensors_that_are_all_later_make_the_valve_later_and_change_nothing_else(
    recorded: tuple[Rig, Recording],
) -> None:
    """Else a fit would decide by its model's errors what no recording shows.

    Within the standard deviation at which the rounds of a fit end (DONE).
    """
    rig, recording = recorded
    channels = {n: np.concatenate([np.full(LATER, v[0]), v[:-LATER]]) for n, v in recording.channels.items()}
    now = identify_valve(rig, recording, "A", order=2).fit
    then = identify_valve(rig, replace(recording, channels=channels), "A", order=2).fit
    later = then.values.pop("lag") - now.values.pop("lag")
    assert later == pytest.approx(LATER * recording.dt, abs=0.05 * recording.dt)
    for name, value in now.values.items():
        assert then.values[name] == pytest.approx(value, abs=now.deviations[name]), name


@pytest.mark.parametrize("frequency", [5.0, 30.0])
@pytest.mark.parametrize("level", [60e5, 12e5])
@pytest.mark.parametrize("before", ["an unstated hose", "a stated line", "a restriction stated as laminar"])
def test_oil_behind_a_restriction_and_after_a_hose(before: str, level: float, frequency: float) -> None:
    """The volume into the port by its pressure and the position is what passed it: by integrating the equations.

    A hose or line at the port, a restriction, the chamber; oil with air; leakage past the piston into a chamber whose
    oil leaves through a restriction of its own; both are turbulent, or both laminar. The flow oscillates about a steady
    one; ``level``: Pa at the piston. As measured at the ticks, without noise: within 3 % of what the restriction
    changes. (The other chamber's restriction is taken to be passed in proportion to this one's, which is 1 % of it.)
    """
    rig = changed_rig("lift", 1, [])
    sources = copied(rig.sources)
    if before == "a stated line":
        sources["rig"]["cylinders"]["lift"]["line_volume_A"] = "0.1 l"
    p_tr = 20e5 if before == "a restriction stated as laminar" else 1.0
    point = {"flow": "1 l/min", "drop": "1 bar", "transition_pressure": f"{p_tr!r} Pa"}
    sources["rig"]["cylinders"]["lift"] |= {"restriction_A": point, "restriction_B": point}
    rig = assemble(sources, rig.file, rig.library)
    chamber = Chamber(rig, rig.settings.valves["A"], "A", 1.0, 0, DT)
    area_A, area_B = chamber.actuator.areas()
    oil, hose, leak, speed, p_B = chamber.line, 0.0 if before == "a stated line" else 0.5, 3e-12, 0.15, 40e5
    elasticity, air, more = 1.2, 0.008, 0.1
    K, K_B = (ROD_SPEED * area_A / root_of_drop(drop, p_tr) for drop in (5e5, 3e5))
    time = np.arange(400) * DT
    omega = 2.0 * np.pi * frequency

    def flow(t: float | Floats) -> Floats:
        return np.asarray(area_A * speed * (1.0 + 0.3 * np.sin(omega * t)))

    def softness(p: float) -> float:
        """1/B of oil with air that is compressed polytropically, from the volume of air."""
        rest = (oil.p_0 / (p + oil.p_0)) ** (1.0 / oil.kappa)
        return float(elasticity / oil.B_o + air * rest / (oil.kappa * (p + oil.p_0)))

    def drop_of(root: float) -> float:
        return float(brentq(lambda drop: root_of_drop(drop, p_tr) - root, 0.0, 100e5, xtol=1e-3))

    def position(t: Any) -> Floats:
        return np.asarray(0.3 + speed * t)

    def change(t: float, state: Floats) -> list[float]:
        port, piston, _ = state
        through = K * root_of_drop(port - piston, p_tr)
        lost = leak * (piston - (p_B + drop_of(area_B * speed / K_B)))
        before_it = chamber.line_volume + hose * chamber.dead
        soft = before_it * softness(port) + hose * chamber.dead / (2e5 * np.sqrt(port))
        behind = (1.0 + more) * chamber.dead + area_A * float(position(t)) - before_it
        compressed = through - area_A * speed - lost
        return [(float(flow(t)) - through) / soft, compressed / (behind * softness(piston)), float(flow(t))]

    start = [level + drop_of(float(flow(0.0)) / K), level, 0.0]
    port, _, passed = solve_ivp(change, (0.0, float(time[-1])), start, "LSODA", time, rtol=1e-10, atol=1e-14).y
    channels = {"p_A": port, "p_B": np.full(len(time), p_B), "x": position(time)}
    channels |= {"p_S": np.full(len(time), 210e5), "p_T": np.zeros(len(time))}
    now = chamber.signals(channels, chamber.capacitance(channels), 1e5)
    values = {"elasticity A": elasticity, "air A": air, "hose A": hose, "dead volume A": more, "piston_leakage": leak}
    restricted = values | {"restriction A": 5e5, "restriction B": 3e5}
    inner, wrong, whole = (
        slice(20, -20),
        *(chamber.into(np.diff(passed), now, v) - np.diff(passed) for v in (restricted, values)),
    )
    assert port.min() > 1e5
    assert float(np.max(np.abs(wrong[inner]))) < 0.03 * float(np.ptp(whole[inner]))


@pytest.mark.parametrize(("stated", "expected"), [(None, 1e4), ("0.2 bar", 2e4), ("50 bar", 5e6), ("1 Pa", 1.0)])
def test_a_fit_begins_with_the_stated_transition_of_a_restriction(stated: str | None, expected: float) -> None:
    """Also where it is beyond what is usual: the start lies within the bounds."""
    rig = changed_rig("lift", 1, [])
    sources = copied(rig.sources)
    if stated is not None:
        point = {"flow": "10 l/min", "drop": "2 bar", "transition_pressure": stated}
        sources["rig"]["cylinders"]["lift"]["restriction_A"] = point
    rig = assemble(sources, rig.file, rig.library)
    chamber = Chamber(rig, rig.settings.valves["A"], "A", 1.0, 0, DT)
    transition = chamber.parameters()["transition A"]
    assert 10.0**transition.start == pytest.approx(expected)
    assert transition.lower <= transition.start <= transition.upper
