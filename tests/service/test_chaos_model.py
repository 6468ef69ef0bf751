"""The model of the chaos run reports what may not be, and nothing else; a failing sequence becomes its shortest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from chaos_model import CONFIRMED_WITHIN, SAFE_WITHIN, Look, Model, Steps, as_text, from_text, random_steps, shortest

from hilserver.tick.codes import Mode

STEP = 0.01


def seen(*parts: tuple[float, Mode, float | None, bool | None], ticks: bool = True) -> Model:
    """A model that has seen these: for how long, mode, valve, pump. Not ``ticks``: it stands still in the last."""
    model, at, tick = Model(), 0.0, 0
    for number, (seconds, mode, valve, pump) in enumerate(parts):
        for _ in range(round(seconds / STEP)):
            at += STEP
            tick += 10 if ticks or number < len(parts) - 1 else 0
            model.see(Look(at, tick, mode, valve, pump))
    return model


R, A, S, F, N = Mode.RUNNING, Mode.ARMED, Mode.SAFE, Mode.FAULT, Mode.SAFE_NOT_CONFIRMED
LATE = SAFE_WITHIN + CONFIRMED_WITHIN


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (seen((5.0, R, 3.0, True), (0.5, A, 1.0, True), (5.0, A, 0.0, True)), ""),
        (seen((5.0, R, 3.0, True), (LATE, A, 1e-3, True)), "the valve is open"),
        (seen((5.0, R, 3.0, True), (LATE, R, 3.0, True), ticks=False), "the valve is open"),
        (seen((5.0, R, 3.0, True), (LATE, R, None, None), ticks=False), ""),
        (seen((5.0, R, 3.0, True), (LATE, F, 0.0, True)), ""),
        (seen((5.0, R, 3.0, True), (1.0, S, 0.0, True), (LATE, N, 0.0, True)), ""),
        (seen((5.0, R, 3.0, True), (LATE, S, 0.0, True)), "SAFE for"),
    ],
)
def test_what_may_not_be_is_reported(model: Model, said: str) -> None:
    assert [said in text for text in model.wrong] == [True] * bool(said)


def test_a_rig_that_must_stop_is_seen_to_have_stopped_for_a_moment() -> None:
    model = seen((1.0, R, 3.0, None), (0.1, F, 1.0, None), (0.5, R, 3.0, None))
    model.require_stopped(0.5, "it was tripped")
    assert model.wrong == []
    model.see(Look(1.61, 1610, R, 3.0, stopped=True))
    model.require_stopped(1.6, "it was tripped and reset again between two looks")
    assert model.wrong == []
    model.require_stopped(1.62, "it was tripped")
    assert model.wrong == ["still RUNNING, though it was tripped"]


def test_a_piston_that_moves_unseen_must_not_go_on_moving() -> None:
    """A sensor that shows the same again and again; with a stop in between it has moved half as far."""
    for modes, wrong in (([R] * 20, True), ([R] * 10 + [F] + [R] * 9, False)):
        model = Model()
        for number, mode in enumerate(modes):
            model.see(Look(0.1 * number, 100 * number, mode, 3.0, None, 0.01 * number))
        assert [f"{0.1 + 0.01:.2f} m unseen" in text for text in model.wrong] == [True] * wrong


def test_a_loop_that_goes_on_after_a_pause_ramps_to_null_from_there() -> None:
    """The device has closed the valve meanwhile; the ramp begins where the command was."""
    model = seen((1.0, R, 3.0, None), (2.0, R, 0.0, None), ticks=False)
    for k in range(1, 300):
        model.see(Look(3.0 + 0.01 * k, 2000 + k, N, 3.0))
        assert bool(model.wrong) == (0.01 * k > SAFE_WITHIN + 0.025)


def test_while_this_machine_stands_still_nothing_is_known() -> None:
    model = Model()
    for at in (0.0, 0.01, 100.0, 100.01):
        model.see(Look(at, round(at * 1000), A, 3.0))
    assert model.wrong == []


@pytest.mark.parametrize(
    ("fails", "left"),
    [
        (lambda steps: {3, 12} <= {step.at for step in steps}, [3, 12]),
        (lambda steps: any(step.at == 0 for step in steps), [0]),
        (lambda steps: len(steps) >= 5, None),
    ],
)
def test_the_shortest_failing_part_is_found(fails: Callable[[Steps], bool], left: list[int] | None) -> None:
    steps = from_text(str([[k, "x", 1.0] for k in range(20)]).replace("'", '"'))
    found = shortest(steps, fails)
    assert fails(found)
    assert [step.at for step in found] == left if left is not None else len(found) == 5


def test_a_seed_gives_the_same_sequence_and_its_text_too() -> None:
    first, again = (random_steps(np.random.default_rng(7), ("a", "b"), 9, 10.0) for _ in range(2))
    assert first == again == from_text(as_text(first))
    assert [step.at for step in first] == sorted(step.at for step in first)
