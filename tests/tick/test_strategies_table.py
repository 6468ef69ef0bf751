"""The table of strategies: what is made of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from rig_bench import bench_rig

from hilserver.fidelity.results import VARIANTS
from hilserver.rig import settings
from hilserver.rig.available_strategies import cannot, gains_nothing
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.kinds import INVERSE, LOOK_AHEAD, MANUAL
from hilserver.tick.bridge.strategies import (
    KINDS,
    STRATEGY_NAMES,
    Gains,
    Needs,
    Strategy,
    compensates,
    follows,
    kind_of,
    looks_ahead,
    needs_flow_sensor,
)

PAGE = Path(__file__).parents[2] / "docs/how-it-works.md"


def test_the_configuration_offers_what_is_in_the_table() -> None:
    assert get_args(settings.StrategyName) == STRATEGY_NAMES


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.name)
def test_every_strategy_is_explained(strategy: Strategy) -> None:
    """By its own text in reports, and in the documentation."""
    assert strategy.text
    assert VARIANTS.get(strategy.name, strategy.text) == strategy.text
    assert f"`{strategy.name}`" in PAGE.read_text()


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.name)
def test_the_compiled_dispatch_follows_the_table(strategy: Strategy) -> None:
    assert KINDS[kind_of(int(strategy))] is strategy.kind
    assert follows(int(strategy)) == strategy.kind.follows
    assert looks_ahead(int(strategy)) == strategy.kind.looks_ahead
    effects = [effect for effect in Compensates if compensates(int(strategy), effect)]
    assert sum(effects) == strategy.compensates
    assert needs_flow_sensor(int(strategy)) == (strategy.needs is Needs.FLOW_SENSOR)


@pytest.mark.parametrize("number", [-1, len(Strategy)])
def test_an_unknown_strategy_number_is_manual(number: int) -> None:
    assert KINDS[kind_of(number)] is MANUAL
    assert not follows(number)
    assert not looks_ahead(number)
    assert not any(compensates(number, effect) for effect in Compensates)
    assert not needs_flow_sensor(number)


def test_a_level_compensates_for_all_that_the_one_below_does() -> None:
    levels = [s for s in Strategy if s.kind in (INVERSE, LOOK_AHEAD)]
    for lower, upper in pairwise(levels):
        assert lower.compensates & upper.compensates == lower.compensates


def test_a_rig_can_do_what_its_sensors_allow() -> None:
    """Without a flow sensor and a cylinder neither flow servo nor feedback; all the others."""
    rig = bench_rig({"valves": {"main": {"flow": None}}})
    valve = rig.settings.valves["main"]
    reasons = {name: cannot(rig.settings, valve, name) for name in STRATEGY_NAMES}
    assert {name: reason for name, reason in reasons.items() if reason} == {
        "feedback": Needs.FLOW_OR_CYLINDER.value,
        "adaptive": Needs.FLOW_OR_CYLINDER.value,
        "flow_servo": Needs.FLOW_SENSOR.value,
    }
    measured = bench_rig()
    assert not any(cannot(measured.settings, measured.settings.valves["main"], name) for name in STRATEGY_NAMES)


def test_a_level_without_benefit_states_the_reason() -> None:
    """No overlap, no delay, no cylinder."""
    rig = bench_rig({"valves": {"main": {"flow": None}}})
    valve = rig.settings.valves["main"]
    assert gains_nothing(rig.settings, valve, "null_region") == Gains.OVERLAP.value
    assert gains_nothing(rig.settings, valve, "prediction") == Gains.DELAY_OR_CYLINDER.value.format(port="A")
    assert gains_nothing(rig.settings, valve, "inverse_lag") == ""
