"""Part of the tick: playouts. Sines on operator inputs, with drives controlled to reach a target response.

The drive is D·sin(ωt + φ), the measured response of a channel at its frequency a complex amplitude R, that which is
wanted T. Once per block of cycles the drive is multiplied by 1 + g (T/R - 1): for a linear plant, R approaches T
whatever the plant's gain and phase at this frequency are, if 0 < g < 2. A block consists of a cycle in which the drive
moves to its new value, cycles in which the plant settles, and one that is measured.
"""

from __future__ import annotations

from math import cos, isfinite, nan, pi, sin, sqrt, tan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.codes import CommandKind, Mode, PlayoutState, ResultCode
from hilserver.tick.delayed_inputs import move_to
from hilserver.tick.plan import Plan
from hilserver.tick.row import CommandRecord, PlayoutMemory, header, playout_memory

LEAST_TICKS = 20
"""Ticks per cycle, at least."""
MOST_TICKS = 10**8
"""Ticks per cycle, at most."""
LEARNING = 60
"""Blocks within which the response must first be within its tolerance."""
PATIENCE = 2
"""Consecutive blocks out of tolerance that end a playout."""
LEAST_RESPONSE = 1e-4
"""Response, as a fraction of that wanted, below which there is none: the drive is not changed."""

# --- commands --------------------------------------------------------------------------------------------------------


@compilable
def command_playout(plan: Plan, row: Floats, given: CommandRecord) -> ResultCode:
    """Carry out one of the commands of playouts: three that begin one, and one that ends it; returns its result."""
    if not 0.0 <= given.a < plan.loop[0].playouts:
        return ResultCode.BAD_VALUE
    p = playout_memory(plan, row, int(given.a))
    if given.kind == CommandKind.PLAY_END:
        if not is_playing(p):
            return ResultCode.WRONG_MODE
        leave_now(row, p, PlayoutState.ENDED.value)
        return ResultCode.DONE
    if is_playing(p) or header(row).mode != Mode.RUNNING:
        return ResultCode.WRONG_MODE
    if not (isfinite(given.b) and isfinite(given.c) and isfinite(given.d) and isfinite(given.e) and isfinite(given.f)):
        return ResultCode.BAD_VALUE
    if given.kind == CommandKind.PLAY_TARGET:
        return set_target(plan, p, given)
    if given.kind == CommandKind.PLAY_DRIVE:
        return set_drive(p, given)
    return begin_playout(p, given)


@compilable
def set_target(plan: Plan, p: PlayoutMemory, given: CommandRecord) -> ResultCode:
    """The first one: number, input, column of the response, ticks per cycle, amplitude wanted, its phase."""
    place = plan.layout[0]
    is_known = 0.0 <= given.b < plan.input.shape[0] and 0.0 <= given.c < place.circuit + place.circuit_space
    if not (is_known and LEAST_TICKS <= given.d <= MOST_TICKS and given.e > 0.0):
        return ResultCode.BAD_VALUE
    p.state, p.input, p.column, p.ticks = PlayoutState.FREE.value, int(given.b), int(given.c), int(given.d)
    p.wanted_sin, p.wanted_cos = given.e * cos(given.f), given.e * sin(given.f)
    return ResultCode.DONE


@compilable
def set_drive(p: PlayoutMemory, given: CommandRecord) -> ResultCode:
    """The second one: number, mean, first amplitude, largest amplitude, gain, tolerance of the response's amplitude."""
    if not (0.0 <= given.c <= given.d and 0.0 <= given.e < 2.0 and given.f > 0.0):
        return ResultCode.BAD_VALUE
    p.drive_mean, p.drive_sin, p.drive_cos, p.limit = given.b, given.c, 0.0, given.d
    p.mean_set, p.gain, p.tolerance = given.b, given.e, given.f
    return ResultCode.DONE


@compilable
def begin_playout(p: PlayoutMemory, given: CommandRecord) -> ResultCode:
    """The third one: number, cycles, those done before, cycles per block, centre of the response, gain for it."""
    if not (p.ticks >= LEAST_TICKS and 0.0 <= given.c < given.b < 1e15 and 2.0 <= given.d <= 1e6):
        return ResultCode.BAD_VALUE
    p.cycles, p.count, p.block = int(given.b), int(given.c), int(given.d)
    p.centre, p.centre_gain = given.e, given.f
    p.place = p.learning = p.outside = p.outcome = 0
    p.from_sin = p.from_cos = p.measured_sin = p.measured_cos = 0.0
    p.measured_mean = nan
    p.state = PlayoutState.WAITING.value
    return ResultCode.DONE


@compilable
def end_playouts(plan: Plan, row: Floats, number: int) -> None:
    """Something else sets input ``number`` now: no playout moves it any further."""
    for i in range(plan.loop[0].playouts):
        p = playout_memory(plan, row, i)
        if is_playing(p) and p.input == number:
            p.state = PlayoutState.ABORTED.value


@compilable
def forget_responses(plan: Plan, row: Floats) -> None:
    """The circuit's values are in other columns now: end the playouts that measure them."""
    for i in range(plan.loop[0].playouts):
        p = playout_memory(plan, row, i)
        if is_playing(p) and p.column >= plan.layout[0].circuit:
            leave_now(row, p, PlayoutState.ABORTED.value)


@compilable
def is_playing(p: PlayoutMemory) -> bool:
    """Whether a playout moves its input, or is about to."""
    return PlayoutState.WAITING <= p.state <= PlayoutState.FADING


# --- in every tick ---------------------------------------------------------------------------------------------------


@compilable
def play(plan: Plan, row: Floats) -> None:
    """Move the inputs of all playouts. All with the same number of ticks per cycle have the same phase reference."""
    head = header(row)
    for i in range(plan.loop[0].playouts):
        p = playout_memory(plan, row, i)
        if not is_playing(p):
            continue
        if head.mode != Mode.RUNNING:
            p.state = PlayoutState.ABORTED.value
            continue
        k = int(head.tick) % p.ticks
        if k <= head.missed and p.state != PlayoutState.FADING:  # a cycle begins, or has begun in a missed tick
            begin_cycle(p, row[plan.layout[0].input + p.input])
        if p.state == PlayoutState.WAITING:
            continue
        s, c = sin(2.0 * pi * k / p.ticks), cos(2.0 * pi * k / p.ticks)
        add_sample(p, row[p.column], s, c)
        share = (k + 1.0) / p.ticks if p.place == 0 else 1.0
        if p.state == PlayoutState.FADING:
            p.faded += head.missed + 1
            share = min(p.faded / p.ticks, 1.0)
            if p.faded >= p.ticks:
                p.state = p.outcome
        d_sin, d_cos = between(p.from_sin, p.drive_sin, share), between(p.from_cos, p.drive_cos, share)
        entry, value = plan.input[p.input], between(p.from_mean, p.drive_mean, share) + d_sin * s + d_cos * c
        move_to(plan, row, p.input, clip(value, entry.low, entry.high))


@compilable
def add_sample(p: PlayoutMemory, response: float, s: float, c: float) -> None:
    """Add a sample of the response to the sums of this cycle."""
    p.sum_sin += response * s
    p.sum_cos += response * c
    p.sum_mean += response
    p.samples += 1


@compilable
def between(first: float, last: float, share: float) -> float:
    """The value at this share of the way from ``first`` to ``last``."""
    return first + share * (last - first)


@compilable
def begin_cycle(p: PlayoutMemory, now: float) -> None:
    """A cycle is over, or the first one begins; ``now``: present value of the input."""
    if p.state == PlayoutState.WAITING:
        p.state, p.from_mean = PlayoutState.LEARNING.value, now
    else:
        end_cycle(p)
    p.sum_sin = p.sum_cos = p.sum_mean = 0.0
    p.samples = 0


@compilable
def end_cycle(p: PlayoutMemory) -> None:
    """Count a cycle, evaluate it if it is the last one of its block, end the playout when it is done.

    A block ends with a whole cycle: one without missed ticks.
    """
    p.count += 1
    p.place += 1
    is_whole = p.samples == p.ticks
    if is_whole:
        measure(p)
    else:
        p.measured_mean = nan
    if p.count >= p.cycles:
        fade_out(p, PlayoutState.COMPLETED.value)
    elif p.place >= p.block and is_whole:
        p.place = 0
        p.from_sin, p.from_cos, p.from_mean = p.drive_sin, p.drive_cos, p.drive_mean
        evaluate(p)


@compilable
def length(x: float, y: float) -> float:
    """Of a vector. (The libraries of C differ in the last bit of their own function.)"""
    return sqrt(x * x + y * y)


@compilable
def measure(p: PlayoutMemory) -> None:
    """The fundamental of the last cycle, without the drift from the mean of the cycle before to that of this one.

    A line of the slope b per tick has the sums -b n/2 cot(pi/n) with the sine and -b n/2 with the cosine.
    """
    scale, mean = 2.0 / p.ticks, p.sum_mean / p.ticks
    slope = (mean - p.measured_mean) / p.ticks if isfinite(p.measured_mean) else 0.0
    p.measured_sin = scale * p.sum_sin + slope / tan(pi / p.ticks)
    p.measured_cos = scale * p.sum_cos + slope
    p.measured_mean = mean


@compilable
def evaluate(p: PlayoutMemory) -> None:
    """Compare the response with that which is wanted, and correct the drive."""
    wanted, measured = length(p.wanted_sin, p.wanted_cos), length(p.measured_sin, p.measured_cos)
    if abs(measured - wanted) <= p.tolerance * wanted:
        p.state, p.outside = PlayoutState.CONTROLLED.value, 0
    elif p.state == PlayoutState.CONTROLLED:
        p.outside += 1
    else:
        p.learning += 1
    if p.outside >= PATIENCE or p.learning >= LEARNING or not isfinite(measured):
        fade_out(p, PlayoutState.DEVIATED.value)
        return
    p.drive_mean = p.mean_set + p.centre_gain * (p.centre - p.measured_mean)
    if measured <= LEAST_RESPONSE * wanted:
        return
    # T/R - 1, at most 1: the drive is at most doubled
    square = measured * measured
    re = (p.wanted_sin * p.measured_sin + p.wanted_cos * p.measured_cos) / square - 1.0
    im = (p.wanted_cos * p.measured_sin - p.wanted_sin * p.measured_cos) / square
    step = p.gain / max(length(re, im), 1.0)
    re, im = 1.0 + step * re, step * im
    new_sin, new_cos = p.drive_sin * re - p.drive_cos * im, p.drive_sin * im + p.drive_cos * re
    share = min(p.limit / max(length(new_sin, new_cos), 1e-12), 1.0)
    p.drive_sin, p.drive_cos = share * new_sin, share * new_cos


@compilable
def fade_out(p: PlayoutMemory, outcome: int) -> None:
    """At the end of a cycle: bring the input to the playout's mean in the time of a cycle.

    This mean is the one of the command, not that which holds the centre: nothing holds it from now on.
    """
    p.from_sin, p.from_cos, p.from_mean = p.drive_sin, p.drive_cos, p.drive_mean
    p.drive_sin, p.drive_cos, p.drive_mean = 0.0, 0.0, p.mean_set
    p.state, p.outcome, p.faded = PlayoutState.FADING.value, outcome, 0


@compilable
def leave_now(row: Floats, p: PlayoutMemory, outcome: int) -> None:
    """Within a cycle: fade out from the drive as it is now; at once if it has not begun."""
    if p.state == PlayoutState.WAITING:
        p.state = outcome
    elif p.state != PlayoutState.FADING:
        head = header(row)
        k = int(head.tick) % p.ticks
        if p.place == 0 and k > head.missed:  # the drive is on its way to its new value
            share = k / p.ticks
            p.drive_sin, p.drive_cos = between(p.from_sin, p.drive_sin, share), between(p.from_cos, p.drive_cos, share)
            p.drive_mean = between(p.from_mean, p.drive_mean, share)
        fade_out(p, outcome)
