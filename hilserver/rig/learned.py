"""What adaptive bridges have learned of their valves, as values of the rig file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.protocol.driven import LearnedValue
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.tick.bridge.learning import DELAY_RANGE, GAIN_RANGE, NOISE, NULL_RANGE, OVERLAP_RANGE, RIGHT, SEEN
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Learning, Mode
from hilserver.tick.records import cells_of
from hilserver.tick.row import LEARNED, LearningState, ValveState, header, learning_state, valve_state

AT_BOUND = 1e-6
"""Fraction of its range within which a value counts as at a bound."""
KNOWN = 0.5
"""A value is known if its standard deviation is less than this share of that before the first observation."""


class _Tracked(NamedTuple):
    """A value of the rig file: its key, unit, configured value, learned value, range, and whether it is known."""

    key: str
    unit: str
    configured: float
    value: float
    lower: float
    upper: float
    known: bool


def learned_values(rig: Rig, row: Floats) -> dict[str, dict[str, LearnedValue]]:
    """The learned values of each valve that learns or has learned, by valve and key of the rig file, SI."""
    found = {}
    for i, (name, settings) in enumerate(rig.settings.valves.items()):
        b, seen = valve_state(rig.plan, row, i), learning_state(rig.plan, row, i)
        tracked, why = tuple(_tracked(settings, b, seen)), why_held(row, settings, b)
        if Strategy(int(b.strategy)) is Strategy.adaptive or any(t.value != t.configured for t in tracked):
            found[name] = {t.key: _published(t, why) for t in tracked}
    return found


def why_held(row: Floats, settings: ValveSettings, b: ValveState) -> str:
    """Why the values of the valve are not tracked at present, as a text; empty if they are."""
    if not settings.bridge.learn:
        return "off: learn = false"
    if Strategy(int(b.strategy)) is not Strategy.adaptive:
        return f"off: strategy {Strategy(int(b.strategy)).name}"
    if header(row).mode != Mode.RUNNING:
        return "held: the rig is not RUNNING"
    state = Learning(int(b.learning))
    return "" if state is Learning.TRACKED else state.text


def _tracked(v: ValveSettings, b: ValveState, seen: LearningState) -> Iterator[_Tracked]:
    to_tank, shift = v.nominal_flow_AT, -v.polarity * float(b.null)
    earliest, latest, delay = max(v.delay - DELAY_RANGE, 0.0), v.delay + DELAY_RANGE, max(v.delay + float(b.delay), 0.0)
    of_delay, of_PA, of_AT, of_null, of_overlap = are_known(seen)
    yield _Tracked("nominal_flow", "m^3/s", *_scaled(v.nominal_flow.flow, float(b.gain_PA)), of_PA)
    yield _Tracked("nominal_flow_to_tank", "m^3/s", *_scaled(to_tank.flow, float(b.gain_AT)), of_AT)
    yield _Tracked("delay", "s", v.delay, delay, earliest, latest, of_delay)
    if v.flow_signal is None:  # else the overlap is a part of the curve
        low, high = max(v.overlap - OVERLAP_RANGE, 0.0), v.overlap + OVERLAP_RANGE
        yield _Tracked("overlap", "", v.overlap, v.overlap + float(b.overlap), low, high, of_overlap)
    yield _Tracked("null", "", v.null, v.null + shift, v.null - NULL_RANGE, v.null + NULL_RANGE, of_null)


def are_known(seen: LearningState) -> list[bool]:
    """Whether the observations determine delay, gains, null and overlap, each while the others are unknown too.

    Of two values that the movements do not tell apart, such as null and overlap while only one edge opens, neither is.
    """
    upper = np.zeros((LEARNED, LEARNED))
    upper[np.triu_indices(LEARNED)] = cells_of(seen)[SEEN:RIGHT]
    matrix = upper + np.triu(upper, 1).T + NOISE * np.eye(LEARNED)
    variances = NOISE * np.diag(np.linalg.inv(matrix))
    return [bool(0.0 <= variance < KNOWN**2) for variance in variances]


def _scaled(flow: float, gain: float) -> tuple[float, float, float, float]:
    """A flow as configured, as learned, and its range."""
    return flow, flow * gain, flow * (1.0 - GAIN_RANGE), flow * (1.0 + GAIN_RANGE)


def _published(t: _Tracked, why: str) -> LearnedValue:
    near = AT_BOUND * (t.upper - t.lower)
    bound = t.value != t.configured and not t.lower + near < t.value < t.upper - near
    state = why or ("at a bound" if bound else "tracked" if t.known else "not excited yet")
    return LearnedValue(
        value=t.value,
        configured=t.configured,
        minimum=t.lower,
        maximum=t.upper,
        unit=t.unit,
        known=t.known,
        at_bound=bound,
        state=state,
    )
