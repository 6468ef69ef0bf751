"""Stages of the circuit in a tick: in each, the calls of the integrator, their steps, and what they are for."""

from __future__ import annotations

from math import ceil

from hilserver.circuit.engine import INTEGRATOR, SUBSTEPS, Integrator, Purpose
from hilserver.numerics.arrays import Floats, Indices, signed
from hilserver.numerics.compilable import compilable
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.strategies import compensates, looks_ahead
from hilserver.tick.estimator import predicts
from hilserver.tick.node_ahead import calls_foreseen, length_of_call, steps_of_call
from hilserver.tick.plan import Plan
from hilserver.tick.row import valve_state
from hilserver.tick.stages import FARTHEST, POINTS, Stage, first_of
from hilserver.tick.valve import delay_of

EXCHANGE = 2e-4
"""s: longest step in which circuit and cylinders are simulated separately."""


@compilable
def is_ahead(stage: int) -> bool:
    """Whether a stage is a look-ahead."""
    return stage == Stage.HELD or stage == Stage.PREDICTED


@compilable
def is_on_copy(stage: int) -> bool:
    """Whether a stage runs on a copy of the circuit."""
    return is_ahead(stage) or stage == Stage.NODES


@compilable
def ticks_of(plan: Plan, row: Floats, stage: int, missed: int) -> int:
    """Ticks that a stage has to integrate."""
    if stage == Stage.CATCH_UP:
        return missed
    if stage == Stage.THIS_TICK:
        return 0 if predicts(plan, row) else 1
    ticks = 0
    for i in range(plan.valve.shape[0]):
        b, v = valve_state(plan, row, i), plan.valve[i]
        if not looks_ahead(b.strategy):
            continue
        predictive = compensates(b.strategy, Compensates.DELAY)
        if stage == Stage.HELD and not predictive:
            ticks = max(ticks, POINTS)
        if stage == Stage.PREDICTED and predictive:
            spare = 1.0 if compensates(b.strategy, Compensates.PARAMETERS) else 0.0  # the tracked delay may still rise
            ticks = max(ticks, first_of(delay_of(b, v) / plan.loop[0].dt + spare, FARTHEST) + POINTS)
    return ticks


@compilable
def exchanges_of(plan: Plan, stage: int, substeps: int) -> int:
    """Number of alternating steps of circuit and cylinders per tick."""
    return min(ceil(plan.loop[0].dt / EXCHANGE - 1e-6), substeps) if stage == Stage.PREDICTED else 1


@compilable
def substeps_of(plan: Plan, ix: Indices, stage: int, exchanges: int) -> int:
    """Steps of the integrator in one of these steps; in a stage that has none, in a tick."""
    if stage == Stage.NODES:
        return steps_of_call(plan)
    return ceil(signed(ix, SUBSTEPS) / exchanges)


@compilable
def step_of(plan: Plan, stage: int, exchanges: int, substeps: int) -> float:
    """A step of the integrator, s."""
    if stage == Stage.NODES:
        return length_of_call(plan) / substeps
    return float(plan.loop[0].dt / (exchanges * substeps))


@compilable
def steps_of(ix: Indices, stage: int, ticks: int, substeps: int, call: int) -> int:
    """Steps of the integrator in a call."""
    if stage == Stage.NODES:
        return substeps
    if is_ahead(stage):
        return substeps if is_step(ix, stage, call) else 0
    return ticks * signed(ix, SUBSTEPS)


@compilable
def calls_per_exchange(ix: Indices) -> int:
    """For the step; and before it for the slopes, if these decide whether a chamber is a state of the circuit."""
    return 1 if ix[INTEGRATOR] == Integrator.ROSENBROCK else 2


@compilable
def calls_of(plan: Plan, ix: Indices, row: Floats, stage: int, ticks: int, exchanges: int) -> int:
    """Calls of the integrator: one for a stage of the circuit, or per tick with held pressures.

    With predicted pressures: one for the flows now, and then those of the exchanges.
    """
    if stage == Stage.NODES:
        return calls_foreseen(plan, ix, row)
    if not is_ahead(stage):
        return min(ticks, 1)
    if stage == Stage.HELD or ticks == 0:
        return ticks
    return 1 + calls_per_exchange(ix) * exchanges * ticks


@compilable
def exchange_of(ix: Indices, call: int) -> int:
    """The alternating step of a look-ahead with predicted pressures to which a call belongs."""
    return max(call - 1, 0) // calls_per_exchange(ix)


@compilable
def tick_of(ix: Indices, stage: int, exchanges: int, call: int) -> int:
    """The tick of a look-ahead to which a call belongs."""
    return call if stage == Stage.HELD else exchange_of(ix, call) // exchanges


@compilable
def is_step(ix: Indices, stage: int, call: int) -> bool:
    """Whether a call of the look-ahead moves the circuit's copy on."""
    return stage == Stage.HELD or (call > 0 and call % calls_per_exchange(ix) == 0)


@compilable
def ends_first_tick(ix: Indices, stage: int, exchanges: int, call: int) -> bool:
    """Whether a call ends the first tick of the look-ahead from which the circuit takes its values."""
    return stage == Stage.PREDICTED and call == calls_per_exchange(ix) * exchanges


@compilable
def purpose_of(ix: Indices, stage: int, exchanges: int, call: int) -> int:
    """For what a call integrates."""
    if stage == Stage.NODES:
        return Purpose.AHEAD.value
    only_ports = is_ahead(stage) and not ends_first_tick(ix, stage, exchanges, call)
    return Purpose.PORTS.value if only_ports else Purpose.ALL.value
