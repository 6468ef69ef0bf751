"""What an adaptive bridge learns of its valve: found where it moves, held where it rests, within bounds, and stable.

The wild rigs are those of ``hilserver fidelity --vary``: all unknowns at once, by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lift_bench import LEAKAGE, both, hard, lift, of_valves, sines, true_valves
from valve_bench import valve as valve_on_bench

from hilserver.fidelity.unknowns import applicable, varied
from hilserver.numerics.arrays import Floats
from hilserver.numerics.linear import factorise
from hilserver.rig.build import assemble
from hilserver.rig.learned import learned_values
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.learning import (
    CAUTION,
    EFFECT,
    NOISE,
    OVERLAP,
    OVERLAP_RANGE,
    doubt,
    invert,
    learn,
    reset_nonfinite_learning,
    state_of_learning,
)
from hilserver.tick.codes import CommandKind, Learning, Saturation
from hilserver.tick.program import MIN_WORK
from hilserver.tick.records import blank, cells_of
from hilserver.tick.row import LEARNED, LearningState, ValveState, valve_state
from hilserver.tick.valve import slopes_of_edges, valve_flow

BAR = 1e5
ADAPTIVE = of_valves(bridge={"strategy": "adaptive"})
MOVED = sines((2.0, 1.5))[0]
"""A work cycle of 5 s that moves both valves to both sides."""
TRACKED = ("gain_PA", "gain_AT", "delay", "null", "overlap")


def fresh() -> ValveState:
    """The memory of a bridge that has learned nothing."""
    memory = blank(ValveState)
    memory.gain_PA = memory.gain_AT = 1.0
    return memory


def of_run(rig: Rig, rows: Floats, valve: str = "A") -> dict[str, Floats]:
    return {word: rig.layout.values(rows, f"valve.{valve}.{word}") for word in TRACKED}


def whole_cycle(rig: Rig, start: Mapping[str, float] | None = None) -> tuple[Floats, str]:
    """Rows of the work cycle, and the mode at its end; both bridges begin with ``start`` as if they had learned it."""
    with LockstepRun(rig) as run:
        for i in range(2):
            for word, value in (start or {}).items():
                setattr(valve_state(rig.plan, run.row, i), word, value)
        return run.run_cycle(), run.mode


# --- the equations ----------------------------------------------------------------------------------------------------


@given(
    U=st.floats(-0.9, 0.9), overlap=st.floats(0.0, 0.1), null=st.floats(-0.03, 0.03), p=st.floats(20 * BAR, 120 * BAR)
)
def test_slopes_are_the_derivatives_of_the_flow(U: float, overlap: float, null: float, p: float) -> None:
    """By null: of the spool's position; by overlap: of the characteristic. Compared with difference quotients."""
    v, b, h = valve_on_bench(overlap=overlap), fresh(), 1e-7
    if abs(abs(U) - overlap) < 1e-5:  # the kink
        return
    by_null, by_overlap = slopes_of_edges(U, p, 150 * BAR, 0.0, b, v)
    at = valve_flow(U, p, 150 * BAR, 0.0, b, v)
    shifted = valve_flow(U + h, p, 150 * BAR, 0.0, b, v)
    b.overlap = h
    lapped = valve_flow(U, p, 150 * BAR, 0.0, b, v)
    assert by_null == pytest.approx((shifted - at) / h, abs=1e-4 * v.Q_nominal)
    assert by_overlap == pytest.approx((lapped - at) / h, abs=1e-4 * v.Q_nominal)


def test_least_squares_find_what_made_the_volumes() -> None:
    """Random effects, and the unexplained volume that five given errors cause: they are found."""
    v, b, seen, work = valve_on_bench(overlap=0.02), fresh(), blank(LearningState), np.zeros(MIN_WORK)
    errors, random = np.array([0.7e-3, 0.04, -0.03, 0.012, 0.008]), np.random.default_rng(1)
    b.learning = 0
    for _ in range(2500):
        found = np.array([b.delay, b.gain_PA - 1.0, b.gain_AT - 1.0, b.null, b.overlap])
        effects = random.normal(size=LEARNED) * v.Q_nominal * np.array([0.3, 0.1, 0.1, 0.1, 0.1])
        cells_of(seen)[:LEARNED] = effects
        seen.unexplained = float(np.sign(EFFECT) * effects @ (errors - found))
        learn(b, seen, v, work, 1e-3)
    assert [b.gain_PA - 1.0, b.gain_AT - 1.0] == pytest.approx(errors[1:3], rel=0.03)
    for value, error, least in ((b.delay, errors[0], 0.6), (b.null, errors[3], 0.9), (b.overlap, errors[4], 0.75)):
        assert least * error < value < error, "less by its uncertainty"


@pytest.mark.parametrize("seed", range(4))
def test_what_is_certain_is_believed(seed: int) -> None:
    """The gains then minimise the sum of squares with these delay, null and overlap: solved by numpy without them."""
    random, doubted, gains = np.random.default_rng(seed), [0, 3, 4], [1, 2]
    factors = random.normal(size=(9, LEARNED))
    matrix, steps, distance = NOISE * (factors.T @ factors + np.eye(LEARNED)), *random.normal(size=(2, LEARNED))
    found, deviations = distance + steps, np.sqrt(NOISE * np.diag(np.linalg.inv(matrix)))
    caution = np.array(CAUTION) * np.where((np.arange(LEARNED) == OVERLAP) & (found > 0.0), 2.0, 1.0)
    believed = np.sign(found) * np.maximum(np.abs(found) - caution * deviations, 0.0)
    wanted = steps.copy()
    wanted[doubted] = (believed - distance)[doubted]
    moved = matrix[np.ix_(gains, doubted)] @ (wanted - steps)[doubted]
    wanted[gains] -= np.linalg.solve(matrix[np.ix_(gains, gains)], moved)
    flat, pivots, inverse = matrix.ravel().copy(), np.zeros(LEARNED), np.zeros(LEARNED * LEARNED)
    factorise(flat, LEARNED, pivots)
    invert(flat, pivots, inverse)
    doubt(inverse, distance, steps, np.zeros(LEARNED))
    assert steps == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("learns", "saturation", "moved", "state"),
    [
        (False, 0, True, Learning.OFF),
        (True, 0, True, Learning.TRACKED),
        (True, 0, False, Learning.NOT_EXCITED),
        (True, Saturation.NO_DROP, True, Learning.NOT_ACHIEVABLE),
        (True, Saturation.CAPACITY, True, Learning.NOT_ACHIEVABLE),
        (True, Saturation.OSCILLATION, True, Learning.OSCILLATION),
    ],
)
def test_learning_is_held_for_a_reason(learns: bool, saturation: int, moved: bool, state: Learning) -> None:
    v, b, seen = valve_on_bench(bridge={"learn": learns}), fresh(), blank(LearningState)
    b.saturation, seen.flow_change = int(saturation), 0.1 * v.Q_nominal if moved else 0.0
    seen.unexplained = 1e-5
    before = cells_of(seen).copy()
    assert state_of_learning(b, seen, v) == state
    learn(b, seen, v, np.zeros(MIN_WORK), 1e-3)
    assert b.learning == state
    assert np.array_equal(cells_of(seen), before) == (state is not Learning.TRACKED)


@pytest.mark.parametrize("field", ["gain_PA", "null", "overlap", "seen_45", "unexplained"])
def test_what_is_not_finite_is_forgotten(field: str) -> None:
    b, seen = fresh(), blank(LearningState)
    b.null, seen.seen_11 = 0.01, 1.0
    setattr(seen if field in LearningState.names() else b, field, nan)
    reset_nonfinite_learning(b, seen)
    assert (b.gain_PA, b.gain_AT, b.delay, b.null, b.overlap) == (1.0, 1.0, 0.0, 0.0, 0.0)
    assert not cells_of(seen).any()


# --- on the lift rig --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("null", "overlap", "known"), [(0.015, 0.03, 0.03), (-0.01, 0.02, 0.01)])
def test_null_and_overlap_are_found(null: float, overlap: float, known: float) -> None:
    """Null within 0.5 % of the stroke; an unknown overlap up to 0.7 % from below, and never too large.

    The gain takes over what is not certain of them.
    """
    moved = sines((2.0, 1.5) * 3)[0]
    rig = lift(both(moved, true_valves(null_offset=null, overlap=overlap), of_valves(overlap=known), ADAPTIVE))
    rows, mode = whole_cycle(rig)
    assert mode == "RUNNING"
    for valve in "AB":
        last = {word: values[-1] for word, values in of_run(rig, rows, valve).items()}
        assert last["null"] == pytest.approx(null, abs=0.005)
        assert overlap - 0.007 < known + last["overlap"] < overlap + 0.001
        assert last["gain_PA"] == pytest.approx(1.0, abs=0.1)


def test_nothing_drifts_over_a_long_rest() -> None:
    """Bit for bit, once the last movement has left the filter (1 s): with noise, leakage, a wrong null, over 15 s."""
    rig = lift(both(MOVED, hard(), true_valves(null_offset=0.01), ADAPTIVE))
    with LockstepRun(rig) as run:
        moved = run.run_cycle()
        run.set_input("joystick", 0.0)
        rows = np.array([run.run(1000)[-1] for _ in range(16)])
    for valve in "AB":
        assert moved[-1, rig.layout.column(f"valve.{valve}.null")] != 0.0
        assert (rig.layout.values(rows[1:], f"valve.{valve}.learning") == Learning.NOT_EXCITED).all()
        for word, values in of_run(rig, rows[1:], valve).items():
            assert np.array_equal(values, np.full(len(values), values[0])), (valve, word)


def test_one_key_switches_it_off() -> None:
    """Then `adaptive` is `feedback`, bit for bit."""
    wrong = both(MOVED, true_valves(null_offset=0.01, leakage=LEAKAGE))
    settings: list[dict[str, Any]] = [{"strategy": "adaptive", "learn": False}, {"strategy": "feedback"}]
    rigs = [lift(both(wrong, of_valves(bridge=bridge))) for bridge in settings]
    held, feedback = (whole_cycle(rig)[0] for rig in rigs)
    for valve in "AB":
        for word in ("command", *TRACKED):
            column = rigs[0].layout.column(f"valve.{valve}.{word}")
            assert np.array_equal(held[:, column], feedback[:, column]), word


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_it_recovers_from_a_jump_of_the_valve(side: float) -> None:
    """What was learned is suddenly wrong by as much as it can be: no oscillation, and found again within the cycle."""
    rig = lift(both(MOVED, true_valves(overlap=0.03), of_valves(overlap=0.03), ADAPTIVE))
    start = {"null": side * 0.03, "overlap": side * 0.9 * OVERLAP_RANGE, "gain_PA": 1.0 + side * 0.15, "gain_AT": 0.9}
    rows, mode = whole_cycle(rig, start)
    assert mode == "RUNNING"
    for valve in "AB":
        last = {word: values[-1] for word, values in of_run(rig, rows, valve).items()}
        assert last["null"] == pytest.approx(0.0, abs=0.006)
        assert last["overlap"] == pytest.approx(0.0, abs=0.006)
        assert not (rig.layout.values(rows[-3000:], f"valve.{valve}.saturation") & Saturation.OSCILLATION).any()


QUIET = {"p_A": "0.05 bar", "p_B": "0.05 bar", "x": "0.2 mm"}
"""Noise with which the estimator trusts the sensors so much that the valve hunts."""


def test_a_valve_that_hunts_at_rest_across_an_overlap_it_does_not_have_calms_down() -> None:
    """The overlap was learned 3 % too large: after 4 s of rest, less is left than what counts as an oscillation."""
    quiet = {"rig": {"channels": {name: {"noise": noise} for name, noise in QUIET.items()}}}
    rig = lift(both(ADAPTIVE, true_valves(overlap=0.0), quiet))
    with LockstepRun(rig) as run:
        for i in range(2):
            valve_state(rig.plan, run.row, i).overlap = OVERLAP_RANGE
        run.run(1)
        run.command(CommandKind.ARM)
        run.command(CommandKind.START)
        hunting, calm = run.run(2000), run.run(2500)[-500:]
    assert run.mode == "RUNNING"
    for valve in "AB":
        column = f"valve.{valve}.saturation"
        assert (rig.layout.values(hunting, column) & Saturation.OSCILLATION).any(), "otherwise this tests nothing"
        assert not (rig.layout.values(calm, column) & Saturation.OSCILLATION).any()
        assert np.ptp(rig.layout.values(calm, f"valve.{valve}.demand")) < 0.01


def test_a_sensor_that_is_later_than_stated_counts_in_the_delay() -> None:
    """1 ms of every sensor, and a spool of 60 instead of 80 Hz: 2·d·(1/ω' - 1/ω) = 0.93 ms of lag."""
    late = {name: {"delay": "2 ms"} for name in ("p_A", "p_B", "p_S", "p_T", "x")}
    sensors = {"rig": {"devices": {"rig": {"sensors": late}}}}
    for wrong, delay in ((sensors, 1e-3), (true_valves(f90="60 Hz"), 0.93e-3)):
        rig = lift(both(MOVED, wrong, ADAPTIVE))
        rows, _ = whole_cycle(rig)
        for valve in "AB":
            assert of_run(rig, rows, valve)["delay"][-1] == pytest.approx(delay, abs=0.4e-3)


# --- on wild rigs -----------------------------------------------------------------------------------------------------


def wild(seed: int, changes: dict[str, Any]) -> Rig:
    """The lift rig with everything that the bridge does not know, drawn by seed."""
    rig = lift(both(ADAPTIVE, changes))
    return assemble(varied(rig, "rig", applicable(rig, "rig"), seed), rig.file, rig.library)


def oscillating(rig: Rig, rows: Floats) -> float:
    """Share of the ticks in which an oscillation is reported, mean of both valves."""
    flags = [rig.layout.values(rows, f"valve.{valve}.saturation") & Saturation.OSCILLATION for valve in "AB"]
    return float(np.mean([flag > 0 for flag in flags]))


def test_a_bridge_that_has_seen_one_edge_only_does_not_hunt_at_rest() -> None:
    """Worn edges, hoses and late sensors look like an overlap of 1.5 %, which is one of 0.8 %, in the first movement.

    Until both edges have opened, null and overlap are not told apart; believed, it made the valve hunt for a second.
    (While the load comes to rest on its frame, a few hundredths of a second may count as an oscillation.)
    """
    rig = wild(4, {})
    with LockstepRun(rig) as run:
        run.start()
        rows = run.run(3500)
    for valve in "AB":
        assert np.ptp(rig.layout.values(rows, f"valve.{valve}.overlap")) > 0.0, "something is learned"
        flags = rig.layout.values(rows, f"valve.{valve}.saturation") & Saturation.OSCILLATION
        assert np.count_nonzero(flags) < 100


SEEDS = range(101, 107)


def test_wild_rigs_oscillate_no_more_than_without_learning_and_nothing_leaves_its_bounds() -> None:
    """Over the work cycle, also from any start within the bounds that a random machine may have left behind.

    Their loads swing on elastic frames, which is reported without learning too: 2 % of the ticks (`feedback`).
    """
    shares: dict[str, list[float]] = {"feedback": [], "adaptive": [], "from anywhere": []}
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        anywhere = {"null": random.uniform(-0.05, 0.05), "overlap": random.uniform(0.0, 0.03)}
        anywhere |= {"gain_PA": random.uniform(0.8, 1.2), "gain_AT": random.uniform(0.8, 1.2)}
        for name, found in shares.items():
            strategy = of_valves(bridge={"strategy": "feedback" if name == "feedback" else "adaptive"})
            rig = wild(seed, strategy)
            rows, mode = whole_cycle(rig, anywhere if name == "from anywhere" else None)
            assert mode == "RUNNING"
            found.append(oscillating(rig, rows))
            for valve in "AB":
                values = of_run(rig, rows, valve)
                assert np.abs(values["null"]).max() <= 0.05
                assert -1e-12 <= values["overlap"].min() <= values["overlap"].max() <= OVERLAP_RANGE
                assert max(np.abs(values[word] - 1.0).max() for word in ("gain_PA", "gain_AT")) <= 0.2 + 1e-12
    assert np.mean(shares["adaptive"]) < 1.2 * np.mean(shares["feedback"]) + 0.01
    assert np.mean(shares["from anywhere"]) < 1.2 * np.mean(shares["feedback"]) + 0.01


# --- as values of the rig file ----------------------------------------------------------------------------------------


def test_learned_values_are_those_of_the_rig_file_to_be() -> None:
    """A rig file with these values describes the valve that was simulated: null with the opposite sign."""
    rig = lift(both(MOVED, true_valves(null_offset=0.015, overlap=0.02), of_valves(overlap=0.03), ADAPTIVE))
    rows, _ = whole_cycle(rig)
    found = learned_values(rig, rows[-1])["A"]
    assert found["null"].value == pytest.approx(-0.015, abs=0.005)
    assert found["overlap"].value == pytest.approx(0.02, abs=0.005)
    assert found["overlap"].configured == 0.03
    assert all(value.known and not value.at_bound and isfinite(value.value) for value in found.values())
    assert found["nominal_flow"].value == pytest.approx(1e-3, rel=0.04)
    assert {value.state for value in found.values()} == {"tracked"}


def test_a_bridge_that_has_learned_nothing_is_not_listed() -> None:
    rig = lift()
    with LockstepRun(rig) as run:
        assert learned_values(rig, run.run(10)[-1]) == {}


def test_the_state_says_why_a_value_is_held() -> None:
    rig = lift(ADAPTIVE)
    with LockstepRun(rig) as run:
        row = run.run(10)[-1].copy()
    assert {v.state for v in learned_values(rig, row)["A"].values()} == {"held: the rig is not RUNNING"}
    off = lift(both(ADAPTIVE, of_valves(bridge={"learn": False})))
    assert {v.state for v in learned_values(off, row)["A"].values()} == {"off: learn = false"}
    block = valve_state(rig.plan, row, 0)
    block.strategy, block.null = 8, 0.05
    found = learned_values(rig, row)
    assert {v.state for v in found["A"].values()} == {"off: strategy feedback"}
    assert found["A"]["null"].at_bound
