"""The model behind the identification: its derivatives, its invariances, and the oil between valve and piston."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from identification_coverage import changed_rig
from scipy.integrate import solve_ivp

from hilserver.identify.chamber import Chamber, ChamberSignals
from hilserver.identify.experiment import Experiment
from hilserver.identify.fit import STEP, Whitener, _Problem
from hilserver.identify.identification import identify_valve
from hilserver.identify.influences import ROD_SPEED
from hilserver.identify.recorded import Recording
from hilserver.identify.sequence import recorded_sequence
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig

DT = 1e-3
LATER = 3
"""Ticks."""


@pytest.fixture(scope="module")
def recorded() -> tuple[Rig, Recording]:
    """A lift rig with all unknowns, by a seed that no figure of the page is from."""
    rig = changed_rig("lift", 101)
    return rig, recorded_sequence(rig, ["A"], 20.0, 0.6, end_stops=False)


def test_derivatives_are_those_of_the_residuals(recorded: tuple[Rig, Recording]) -> None:
    """By central differences, in the middle of a fit: a solver stops anywhere where they are not."""
    experiment = Experiment(*recorded, "A")
    parameters = experiment.parameters(True)
    values = {name: p.start for name, p in parameters.items()}
    values |= {"leakage": 0.01, "overlap": 0.02, "hose A": 0.3, "restriction A": 3e5, "piston_leakage": 1e-12}
    values |= {"delay p_A": 0.7e-3, "more delay p_A": 0.2e-3, "gain p_A": 1e-3}
    modelled = zip(experiment.signals, experiment.predict(values), strict=True)
    whiteners = {s.name: Whitener.of(s.measured - y, s.used, s.summed) for s, y in modelled}
    problem = _Problem(parameters, experiment.signals, experiment.predict, whiteners)
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
    recording = recorded_sequence(rig, [valve], 4.0, 0.6, end_stops=False)
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


@pytest.mark.parametrize("before", ["an unstated hose", "a stated line"])
def test_oil_behind_a_restriction_and_after_a_hose(before: str) -> None:
    """The pressures at the ports show more volume than the valve passes: by integrating the line's equations.

    A hose or line at the port, a restriction, the chamber; leakage past the piston into a chamber whose oil leaves
    through a restriction of its own. Compliances are constant and the flow is slow, so that smoothing changes nothing.
    """
    rig = changed_rig("lift", 1, [])
    chamber = Chamber(rig, rig.settings.valves["A"], "A", 1.0, 0, DT)
    area_A, area_B = chamber.cylinder.areas()
    C_hose, C, leak, speed, p_B = 4e-13, 6e-13, 3e-12, 0.15, 40e5
    R, R_B = (drop / (ROD_SPEED * area_A) ** 2 for drop in (5e5, 3e5))
    time = np.arange(400) * DT

    def flow(t: float | Floats) -> Floats:
        return np.asarray(area_A * speed * (1.0 + 0.5 * np.sin(2.0 * np.pi * 5.0 * t)))

    def change(t: float, state: Floats) -> list[float]:
        port, piston, _, _ = state
        through = np.sign(port - piston) * np.sqrt(abs(port - piston) / R)
        lost = leak * (piston - (p_B + R_B * (area_B * speed) ** 2))
        return [(float(flow(t)) - through) / C_hose, (through - area_A * speed - lost) / C, float(flow(t)), through]

    start = [60e5, 60e5 - R * float(flow(0.0)) ** 2, 0.0, 0.0]
    found = solve_ivp(change, (0.0, float(time[-1])), start, "LSODA", time, rtol=1e-10, atol=1e-14)
    port, _, passed, _ = found.y
    middle = 0.5 * (port[1:] + port[:-1])
    by_ports = area_A * speed * DT + (C_hose + C) * np.diff(port) + leak * (middle - p_B) * DT
    zero = np.zeros(len(time) - 1)
    kinds = ("an unstated hose", "a stated line")
    in_hose, in_line = (C_hose * np.diff(port) if kind == before else zero for kind in kinds)
    signals = ChamberSignals(port, port, zero, zero, in_hose, zero, zero, in_line, zero + C, zero)
    values = {"elasticity A": 1.0, "hose A": 1.0, "restriction A": 5e5, "restriction B": 3e5, "piston_leakage": leak}
    more = chamber.behind_restriction(np.diff(passed), signals, values)
    true = by_ports - np.diff(passed)
    inner = slice(5, -5)
    assert float(np.ptp(true[inner])) > 20.0 * float(np.max(np.abs(more - true)[inner]))
