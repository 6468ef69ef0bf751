r"""Adaptive bridges: what a valve's model lacks, from the volume that the real valve has passed.

A real flow that is later than expected by τ, and larger by a share g, leaves a volume unexplained; so does a valve
whose edges open at other positions of the spool than expected, by a shift of its null n and a larger overlap o:

.. math:: D = \int Q_{expected}\,dt - V_{real} = \tau\,Q_{expected} - g\int Q_{expected}\,dt
   - n\int \frac{\partial Q}{\partial n}\,dt - o\int \frac{\partial Q}{\partial o}\,dt

The volume follows from measured position and pressures (or flow). All terms pass the same high-pass filter, so that a
leak or an old error does not count. Delay, gains, null and overlap minimise the squares of the unexplained volume,
older ticks counting less, plus those of their distances from the configured values; see e.g. Ljung, System
identification (1999) ch. 7.4 and 11.2. What the movements do not tell apart, such as null and overlap while only one
edge opens, therefore stays near the configured values. A bridge that assumes too large an overlap jumps across it, to
and fro at rest; one that assumes too small an overlap is only late. Of a larger overlap, the bridge therefore uses only
the part that is certain, and takes the other values that are then the most probable. Where the valve is at rest, or its
volume is not known, nothing is learned, and while the loop oscillates, the bridge retreats to a smaller overlap.
Compiled into the tick.
"""

from __future__ import annotations

from math import isfinite, sqrt

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.linear import factorise, solve
from hilserver.numerics.shape import clip
from hilserver.tick.codes import Learning, Saturation, Unseen
from hilserver.tick.plan import ValveRecord
from hilserver.tick.records import cells_of
from hilserver.tick.row import LEARNED, LearningState, ValveState
from hilserver.tick.valve import UNAVAILABLE

MEMORY = 0.2
"""s: time constant of the high-pass filter."""
FORGET_TIME = 10.0
"""s: time in which an observation loses 63 % of its weight."""
LEARNING_TIME = 0.3
"""s: time in which 63 % of an error that has been found is corrected."""
EFFECT = (2.5e-3, -0.05, -0.05, -0.01, -0.01)
"""Standard deviations of delay (s), gains, null and overlap before the first observation, with the sign of their
effect on the unexplained volume."""
NOISE = 1e-8
"""s^3: square of a volume error by the sensors and by what the model of the machine lacks, 0.2 ms of nominal flow,
times its duration of 0.25 s."""
EXCITED = 0.05
"""Fraction of the nominal flow: the volume left unexplained by smaller flows and changes is leakage and noise."""
GAIN_RANGE = 0.2
"""Limits of the tracked flow gain relative to the datasheet's."""
DELAY_RANGE = 4e-3
"""s: largest deviation of the tracked delay from the configured one."""
NULL_RANGE = 0.05
"""Largest tracked shift of the null, as a fraction of full stroke."""
OVERLAP_RANGE = 0.03
"""Largest deviation of the tracked overlap from the configured one, likewise."""
CAUTION = (0.5, 0.0, 0.0, 1.0, 1.0)
"""Standard deviations by which the distance of delay, gains, null and overlap from the configured ones is
underestimated; of a larger overlap, twice as many."""
OVERLAP = 4
"""Place of the overlap among the values."""
RETREAT_TIME = 0.5
"""s: time in which the overlap returns to the configured one while the loop oscillates."""
UNEXPLAINED = LearningState.names().index("unexplained")
"""Place of the unexplained volume among the cells of `LearningState`."""
SEEN = LearningState.names().index("seen_11")
"""Place of the products of the effects."""
RIGHT = LearningState.names().index("seen_1")
"""Place of the products of effects and unexplained volume."""


@compilable
def note_volume(
    expected_before: float,
    volume_before: float,
    slopes: tuple[float, float],
    b: ValveState,
    seen: LearningState,
    elapsed: float,
) -> None:
    """Add what was expected of the valve in the last tick, and what it has passed, to the filtered terms."""
    share, expected = MEMORY / (MEMORY + elapsed), 0.5 * elapsed * (b.flow_expected + expected_before)
    seen.unexplained = share * (seen.unexplained + expected - (b.volume - volume_before))
    seen.flow_change = share * (seen.flow_change + b.flow_expected - expected_before)
    seen.passed_PA = share * (seen.passed_PA + max(expected, 0.0))
    seen.passed_AT = share * (seen.passed_AT + min(expected, 0.0))
    seen.passed_by_null = share * (seen.passed_by_null + elapsed * slopes[0])
    seen.passed_by_overlap = share * (seen.passed_by_overlap + elapsed * slopes[1])


@compilable
def forget_volumes(seen: LearningState) -> None:
    """Begin anew with the filtered terms."""
    seen.unexplained = seen.flow_change = seen.passed_PA = seen.passed_AT = 0.0
    seen.passed_by_null = seen.passed_by_overlap = 0.0


@compilable
def learn(b: ValveState, seen: LearningState, v: ValveRecord, work: Floats, elapsed: float) -> None:
    """Correct what is learned of a valve, within its ranges, unless it has to be held."""
    b.learning = state_of_learning(b, seen, v)
    if b.learning == Learning.OSCILLATION:
        retreat(b, seen, elapsed)
    if b.learning != Learning.TRACKED:
        return
    keep, cells, effects = FORGET_TIME / (FORGET_TIME + elapsed), cells_of(seen), work[:LEARNED]
    for i in range(LEARNED):
        effects[i] = EFFECT[i] * cells[i] / v.Q_nominal
    off, place = seen.unexplained / v.Q_nominal, SEEN
    for i in range(LEARNED):
        cells[RIGHT + i] = keep * (cells[RIGHT + i] + elapsed * effects[i] * off)
        for j in range(i, LEARNED):
            cells[place] = keep * (cells[place] + elapsed * effects[i] * effects[j])
            place += 1
    correct(b, seen, v, work, min(elapsed / LEARNING_TIME, 0.1))


@compilable
def retreat(b: ValveState, seen: LearningState, elapsed: float) -> None:
    """While the loop oscillates, forget what was seen, and return from a larger overlap to the configured one.

    With an overlap that it assumes too large, the bridge jumps across one that does not exist, to and fro even at rest.
    """
    keep, cells, overlap = RETREAT_TIME / (RETREAT_TIME + elapsed), cells_of(seen), b.overlap
    for i in range(SEEN, cells.shape[0]):
        cells[i] *= keep
    b.overlap = overlap * keep if overlap > 0.0 else overlap
    seen.unexplained += seen.passed_by_overlap * (b.overlap - overlap)


@compilable
def state_of_learning(b: ValveState, seen: LearningState, v: ValveRecord) -> int:
    """Whether the learned values follow, or why they are held."""
    if v.learns == 0:
        return Learning.OFF.value
    if b.saturation & Saturation.OSCILLATION.value:
        return Learning.OSCILLATION.value
    if b.unseen == Unseen.END_OF_RANGE:
        return Learning.END_OF_RANGE.value
    if b.unseen == Unseen.SOFT_OIL:
        return Learning.SOFT_OIL.value
    if b.unseen == Unseen.VOID:
        return Learning.VOID.value
    if b.saturation & UNAVAILABLE:
        return Learning.NOT_ACHIEVABLE.value
    least = EXCITED * v.Q_nominal
    if abs(seen.flow_change) > least or seen.passed_PA - seen.passed_AT > MEMORY * least:
        return Learning.TRACKED.value
    return Learning.NOT_EXCITED.value


@compilable
def correct(b: ValveState, seen: LearningState, v: ValveRecord, work: Floats, share: float) -> None:
    """Move part of the way to the least-squares solution; the observations then leave less unexplained."""
    matrix, lines = work[: LEARNED * LEARNED], work[LEARNED * LEARNED :]
    steps, pivots = lines[:LEARNED], lines[LEARNED : 2 * LEARNED]
    before, after = lines[2 * LEARNED : 3 * LEARNED], lines[3 * LEARNED : 4 * LEARNED]
    inverse = lines[4 * LEARNED : (4 + LEARNED) * LEARNED]
    distances(b, before)
    least_squares(seen, before, matrix, steps, pivots)
    invert(matrix, pivots, inverse)
    doubt(inverse, before, steps, after)
    b.delay = clip(b.delay + share * EFFECT[0] * steps[0], -min(v.delay, DELAY_RANGE), DELAY_RANGE)
    b.gain_PA = clip(b.gain_PA - share * EFFECT[1] * steps[1], 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
    b.gain_AT = clip(b.gain_AT - share * EFFECT[2] * steps[2], 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
    b.null = clip(b.null - share * EFFECT[3] * steps[3], -NULL_RANGE, NULL_RANGE)
    b.overlap = clip(b.overlap - share * EFFECT[4] * steps[4], -min(v.overlap, OVERLAP_RANGE), OVERLAP_RANGE)
    distances(b, after)
    for i in range(LEARNED):
        steps[i] = after[i] - before[i]
    cells, place = cells_of(seen), SEEN
    for i in range(LEARNED):
        seen.unexplained -= EFFECT[i] * cells[i] * steps[i]
        for j in range(i, LEARNED):
            cells[RIGHT + i] -= cells[place] * steps[j]
            if j > i:
                cells[RIGHT + j] -= cells[place] * steps[i]
            place += 1


@compilable
def distances(b: ValveState, into: Floats) -> None:
    """Distances of the learned values from the configured ones, in their standard deviations."""
    into[0] = b.delay / EFFECT[0]
    into[1], into[2] = (1.0 - b.gain_PA) / EFFECT[1], (1.0 - b.gain_AT) / EFFECT[2]
    into[3], into[4] = -b.null / EFFECT[3], -b.overlap / EFFECT[4]


@compilable
def least_squares(seen: LearningState, distance: Floats, matrix: Floats, steps: Floats, pivots: Floats) -> None:
    """Steps of the learned values to those that explain the observations best, in their standard deviations.

    ``distance``: of the present ones from the configured ones; it counts as much as observations with `NOISE` would.
    """
    cells, place = cells_of(seen), SEEN
    for i in range(LEARNED):
        steps[i] = cells[RIGHT + i] - NOISE * distance[i]
        for j in range(i, LEARNED):
            matrix[i * LEARNED + j] = matrix[j * LEARNED + i] = cells[place]
            place += 1
        matrix[i * LEARNED + i] += NOISE
    factorise(matrix, LEARNED, pivots)
    solve(matrix, steps, LEARNED, pivots)


@compilable
def invert(matrix: Floats, pivots: Floats, into: Floats) -> None:
    """The inverse of the factorised ``matrix``: times `NOISE`, the covariance of the values."""
    for i in range(LEARNED):
        column = into[i * LEARNED : (i + 1) * LEARNED]
        for j in range(LEARNED):
            column[j] = 1.0 if i == j else 0.0
        solve(matrix, column, LEARNED, pivots)


@compilable
def believed(i: int, found: float, variance: float) -> float:
    """What is certain of the distance of a value from the configured one."""
    caution = 2.0 * CAUTION[i] if i == OVERLAP and found > 0.0 else CAUTION[i]
    least = max(abs(found) - caution * sqrt(NOISE * max(variance, 0.0)), 0.0)
    return least if found > 0.0 else -least


@compilable
def doubt(inverse: Floats, distance: Floats, steps: Floats, certain: Floats) -> None:
    """Reduce the steps to what is certain of each value, and the others as they depend on it.

    They are then the most probable ones with these values (conditional mean of a normal distribution).
    """
    for i in range(LEARNED):
        certain[i] = believed(i, distance[i] + steps[i], inverse[i * LEARNED + i])
    for k in range(LEARNED):
        if CAUTION[k] == 0.0:
            continue
        column = inverse[k * LEARNED : (k + 1) * LEARNED]
        of_one, less = column[k], certain[k] - distance[k] - steps[k]
        for i in range(LEARNED):
            steps[i] += less * column[i] / of_one
        for i in range(LEARNED):
            if i != k:
                for j in range(LEARNED):
                    inverse[i * LEARNED + j] -= column[i] * column[j] / of_one


@compilable
def reset_nonfinite_learning(b: ValveState, seen: LearningState) -> None:
    """Start again from the configured values where one is no longer finite."""
    cells = cells_of(seen)
    total = b.gain_PA + b.gain_AT + b.delay + b.null + b.overlap
    for i in range(cells.shape[0]):
        total += cells[i]
    if not isfinite(total):
        b.gain_PA, b.gain_AT, b.delay, b.null, b.overlap = 1.0, 1.0, 0.0, 0.0, 0.0
        for i in range(cells.shape[0]):
            cells[i] = 0.0
