r"""Volumes at the real valves: what the virtual circuit has passed, what the real valve has passed, and the difference.

.. math:: V_{virtual} = V_{real} + V_{error} + V_{lost}

The error is compensated by the command (`Compensates.VOLUME_ERROR`). Until then the circuit receives the pressure p +
V_ahead/C that the chamber will have with the missing oil: the flow of a valve that is late or wrong does not disturb
the circuit; only the motion of the piston acts on it. This is the damping-impedance method of power hardware in the
loop with the chamber as impedance: Ren, Steurer & Baldwin, Improve the stability and the accuracy of power
hardware-in-the-loop simulation by selecting appropriate interface algorithms, IEEE Trans. Ind. Appl. 44 (2008) 1286.
V_ahead is what is late: oil that a wrong valve fails to pass, as the filter of the machine has found it
(`flow_estimated` - `flow_expected`), is no part of it. Without feedback this oil never arrives; with feedback it is the
lasting part of the error, V - V_ahead, for which the command makes up with the feedback time T like for the rest:

.. math:: \dot V_{ahead} = \dot V + q_{excess} + \frac{V - V_{ahead}}{T} - \frac{V_{ahead}}{T_a}

(without the third term where nothing is corrected). V_ahead is forgotten with the time T_a, since the filter knows no
flow exactly. With feedback, T_a has to be several times the time tau by which the valve is late: what the circuit no
longer takes for passed it passes once more itself, if it is stiff, and the command corrects it as well. Both act on the
chamber after tau, and their loop, which swings at about :math:`1/\sqrt{T T_a}`, is damped the less the nearer T_a is
to tau (decision 0087). Where the flow is not achievable, or a pressure is beyond the range of its sensor, all of the
error counts as late, but with the T_a of strategies without feedback.

An error that cannot be compensated is lost: beyond a bound, at an end stop, without a pressure drop for some time,
after a gap (`hilserver.tick.plan.is_gap`), where piston or motor move without oil, and under a strategy without
feedback, which forgets the error. ``b`` is the valve's block of the row, ``v`` its line of the plan. Compiled into the
tick.
"""

from __future__ import annotations

from math import isfinite

from hilserver.circuit.engine import PORTS
from hilserver.numerics.arrays import Floats, Indices, signed
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.strategies import compensates
from hilserver.tick.codes import Mode, Unseen
from hilserver.tick.cylinder import MIN_PRESSURE, chamber_A, chamber_B, is_known
from hilserver.tick.plan import Plan, is_gap
from hilserver.tick.row import ValveState, cylinder_state, header, port_state, valve_state
from hilserver.tick.valve import UNAVAILABLE, delay_of

LARGEST_ERROR = 0.03
"""s of nominal flow: the largest volume error that is kept."""
FORGET_TIME = 0.15
"""s: time in which a strategy without feedback forgets a volume error."""
NO_DROP_TIME = 0.02
"""s: time in which a volume error is given up while there is no pressure drop."""
AHEAD_TIME = 0.008
"""s: time after which the circuit sees the real pressure again, without feedback. It is longer than usual delays of a
valve that the rig file does not state, so that valve and circuit do not oscillate, and so short that a lasting error of
the flow hardly shifts the pressure."""
LATE_TIMES = 6.0
"""The same with feedback, where the missing oil is on its way, in units of the time by which the valve is late."""
LARGEST_SHIFT = 5e6
"""Pa: the largest pressure shift by a volume error."""


@compilable
def place_of_flow(ix: Indices, port: int) -> int:
    """Place of a port's flow among the circuit's values; beyond them where the circuit is not connected to it."""
    return signed(ix, signed(ix, PORTS) + 3 * port)


@compilable
def flow_of(ix: Indices, z: Floats, port: int) -> float:
    """Flow of the circuit into a port: mean over its last steps."""
    place = place_of_flow(ix, port)
    return float(z[place]) if place < z.shape[0] else 0.0


@compilable
def flow_at_end(ix: Indices, z: Floats, work: Floats, port: int) -> float:
    """The same at the end of these steps, as the integrator has left it in ``work``."""
    return float(work[place_of_sum(ix, port)]) if place_of_flow(ix, port) < z.shape[0] else 0.0


@compilable
def place_of_sum(ix: Indices, port: int) -> int:
    """Place of the sum of the flows into a port in the integrator's ``work``."""
    return signed(ix, signed(ix, PORTS) + 3 * port + 1)


@compilable
def place_of_pressure(ix: Indices, port: int) -> int:
    """Place of a port's pressure among the circuit's values, as `place_of_flow`."""
    return signed(ix, signed(ix, PORTS) + 3 * port + 2)


@compilable
def count_volumes(plan: Plan, ix: Indices, row: Floats, z: Floats, time: float) -> None:
    """Add what the circuit has passed in its last steps, which took ``time`` s, to the virtual volumes."""
    for i in range(plan.valve.shape[0]):
        valve_state(plan, row, i).volume_virtual += time * flow_of(ix, z, plan.valve[i].port)


@compilable
def is_driving(plan: Plan, row: Floats, i: int) -> bool:
    """Whether a valve's strategy has set its command since the last tick."""
    head = header(row)
    return bool(head.mode == Mode.RUNNING and isfinite(valve_state(plan, row, i).fade))


@compilable
def time_ahead(delay: float, lag: float, dt: float) -> float:
    """Time for which oil that is being corrected counts as passed, s; by ``delay`` and ``lag`` of the valve."""
    return max(LATE_TIMES * (delay + lag + 0.5 * dt), AHEAD_TIME)


@compilable
def balance_volumes(plan: Plan, row: Floats, i: int, elapsed: float) -> None:
    """Bring a valve's volume error up to this tick. What exceeds its bound is lost: there is no wind-up."""
    b, v = valve_state(plan, row, i), plan.valve[i]
    in_missed_ticks = (elapsed - plan.loop[0].dt) * b.flow_virtual  # the circuit integrates them later in this tick
    virtual = b.volume_virtual + in_missed_ticks
    more = (virtual - b.volume_virtual_before) - (b.volume - b.volume_before)
    b.volume_virtual_before, b.volume_before = virtual, b.volume
    if not is_driving(plan, row, i):
        forget_volume_error(b)
        return
    more = more if isfinite(more) else 0.0
    error, bound = b.volume_error + more, LARGEST_ERROR * v.Q_nominal
    share = (1.0 - b.end_stop_share) * NO_DROP_TIME / (NO_DROP_TIME + b.no_drop_share * elapsed)
    excess = b.flow_estimated - b.flow_expected
    found = more + (elapsed * excess if isfinite(excess) else 0.0)
    on_its_way, corrected, forgotten = more, 0.0, elapsed / AHEAD_TIME
    if not compensates(b.strategy, Compensates.VOLUME_ERROR):
        share *= FORGET_TIME / (FORGET_TIME + elapsed)
        on_its_way = found
    elif b.unseen != Unseen.END_OF_RANGE and not b.saturation & UNAVAILABLE:
        on_its_way, corrected = found, elapsed / v.feedback_time
        forgotten = elapsed / time_ahead(delay_of(b, v), v.tau, plan.loop[0].dt)
    if (
        is_gap(plan, elapsed)
        or b.unseen == Unseen.VOID
        or (v.cylinder >= 0 and not is_known(cylinder_state(plan, row, v.cylinder)))
    ):
        share = 0.0  # nobody knows what the real valve has passed
    kept = share * clip(error, -bound, bound)
    ahead = (b.volume_ahead + on_its_way + corrected * clip(error, -bound, bound)) / (1.0 + corrected + forgotten)
    b.volume_ahead = share * ahead  # implicit: stable for any feedback time
    b.volume_error = kept
    b.volume_lost += error - kept


@compilable
def lose_volumes(plan: Plan, ix: Indices, row: Floats, z: Floats) -> None:
    """After the circuit's steps over a gap: what it has passed there, other than foreseen above, is lost as well."""
    for i in range(plan.valve.shape[0]):
        b = valve_state(plan, row, i)
        if not is_driving(plan, row, i):
            continue
        foreseen = b.volume_virtual_before + plan.loop[0].dt * flow_of(ix, z, plan.valve[i].port)
        b.volume_lost += b.volume_virtual - foreseen
        b.volume_virtual_before += b.volume_virtual - foreseen


@compilable
def forget_volume_error(b: ValveState) -> None:
    """Give up the error that has not been compensated."""
    b.volume_lost += b.volume_error
    b.volume_error = b.volume_ahead = 0.0


@compilable
def shift_pressure(plan: Plan, row: Floats, i: int) -> None:
    """Let the circuit see the pressure that a valve's port would have if the volume error were compensated."""
    b, v = valve_state(plan, row, i), plan.valve[i]
    if v.cylinder < 0 or not compensates(b.strategy, Compensates.DELAY) or not is_driving(plan, row, i):
        return
    k, m, seen = cylinder_state(plan, row, v.cylinder), plan.cylinder[v.cylinder], port_state(plan, row, v.port)
    if is_known(k):
        C = chamber_B(k.x, k.p_B, m) if v.is_B else chamber_A(k.x, k.p_A, m)
        shift = clip(b.volume_ahead / C, -LARGEST_SHIFT, LARGEST_SHIFT)
        seen.port_shift = max(shift, min(MIN_PRESSURE - seen.port, 0.0))
        seen.port += seen.port_shift
