r"""The displacement bridge: from the position of a virtual structure to the command of an actuator.

The position-controlled actuator moves a real specimen, whose measured force acts on the structure. The actuator lags
behind its command, and a lagging force feeds the oscillation that it should damp, so the bridge must move the specimen
to the position of the structure at the same time. It knows a linear model of actuator and specimen, with parameters
that are uncertain within a stated spread:

.. math:: h_{k+1} = A(\theta)\,h_k + b(\theta)\,(u_k + d), \quad (x_k, f_k) = S h_k, \quad
   A(\theta) = A_0 + \textstyle\sum_i \theta_i A_i

An extended Kalman filter estimates h, an input disturbance d and the parameters together; they are random walks
(:math:`\theta` in standard deviations of its spread). So are two delays beyond the stated ones, of the command and of
the force. If commands act later by :math:`\tau`, the filter has the state that the actuator would have without this
delay, and the sensors show an earlier one: :math:`S h(t - \tau) \approx S h - \tau S\dot h + \tfrac12\tau^2 S\ddot h`.
The actuator is then made to be ahead by :math:`\tau`.

The filter learns only from motion that is surely there (`CERTAIN`): an estimate that follows the noise of the sensors
correlates with what they show next, from which such a filter would learn wrong parameters at rest (Ljung). If
measurements are late, the filter runs later by their age, and its state is moved on to the present by the commands
since. The command follows from the gains of a linear-quadratic regulator of structure *and* actuator, which makes x - y
small; the gains are quadratic functions of :math:`\theta`. :mod:`hilserver.displacement.design` calculates all of this.

Sources: Anderson & Moore, Optimal Filtering (1979), sec. 8.2 (extended filter), and Optimal Control (1990), ch. 4
(tracking); Ljung, IEEE TAC 24 (1979) 36 (parameters as states); Horiuchi et al., Earthquake Engng. Struct. Dyn. 28
(1999) 1121 (delay as negative damping).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from math import isfinite, nan
from typing import NamedTuple

from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.riccati import multiply, transpose
from hilserver.numerics.shape import clip

MAX_DEVIATIONS = 4.0
"""Largest deviation of a parameter from its nominal value that the bridge believes, in standard deviations."""
CERTAIN = 5.0
"""Standard deviations of the estimate of a state, below which it may be nothing but noise.

With 3, a parameter of the benchmark's actuator still drifts to its bound within 300 s of rest, with 4 by half a
standard deviation, with 5 by a quarter of one, although it claims to know none of them.
"""
SENSORS = 2
"""Displacement and force."""
DELAYS = 2
"""The last values that are estimated: by how much commands act later than stated, and how much later the force is
measured than the displacement, in standard deviations."""
LOAD_SCALE = 1e3
"""Typical size of a force on the specimen that its model does not contain, N: unit of the last state, if it is one."""
VELOCITY, VELOCITY_SCALE = 1, 0.1
"""Place of the velocity in the actuator's state, and its unit there, m/s."""


class Law(IntEnum):
    """The part of the bridge that computes the command."""

    DIRECT = 0
    """The position itself."""
    CLASSICAL = 1
    """A lead compensator and a PI controller."""
    STATE_FEEDBACK = 2
    """Kalman filter and linear-quadratic regulator."""
    MANUAL = 3
    """By hand: it does not follow the structure."""


class DelayCompensation(Enum):
    """How the delay of the measured force is treated."""

    ACCEPTED = "accepted"
    LEAD = "the actuator leads by it"
    PREDICTED = "the structure receives the predicted force"


class DisplacementStrategy(IntEnum):
    """The strategies of the displacement bridge, from the lowest level up, each with its law and what it adds."""

    law: Law
    tracks: bool
    compensation: DelayCompensation
    text: str

    def __new__(
        cls,
        number: int,
        law: Law = Law.DIRECT,
        tracks: bool = False,
        compensation: DelayCompensation = DelayCompensation.ACCEPTED,
        text: str = "",
    ) -> DisplacementStrategy:
        """A member of the table."""
        member = int.__new__(cls, number)
        member._value_, member.law, member.tracks, member.compensation, member.text = (
            number,
            law,
            tracks,
            compensation,
            text,
        )
        return member

    direct = 0, Law.DIRECT, False, DelayCompensation.ACCEPTED, "the virtual position is the command"
    pi_lead = (
        1,
        Law.CLASSICAL,
        False,
        DelayCompensation.ACCEPTED,
        "PI controller of the position, with a lead compensator",
    )
    state_feedback = (
        2,
        Law.STATE_FEEDBACK,
        False,
        DelayCompensation.ACCEPTED,
        "state feedback of structure and actuator, whose parameters are taken as nominal",
    )
    adaptive = (
        3,
        Law.STATE_FEEDBACK,
        True,
        DelayCompensation.ACCEPTED,
        "as state_feedback, with the parameters of actuator and specimen tracked",
    )
    adaptive_lead = (
        4,
        Law.STATE_FEEDBACK,
        True,
        DelayCompensation.LEAD,
        "as adaptive, with the actuator ahead of the structure by the delay of the measured force",
    )
    prediction = (
        5,
        Law.STATE_FEEDBACK,
        True,
        DelayCompensation.PREDICTED,
        "as adaptive, with the force predicted that acts on the structure in the coming tick",
    )
    manual = 6, Law.MANUAL, False, DelayCompensation.ACCEPTED, "moved by hand, at the jog speed at most"


FOLLOWING = tuple(each.name for each in DisplacementStrategy if each.law in (Law.DIRECT, Law.STATE_FEEDBACK))
"""Names of the strategies with which an actuator of a rig follows the circuit."""
AVAILABLE_IN_RIGS = (*FOLLOWING, DisplacementStrategy.manual.name)
"""Names of all strategies that it can have."""


class DisplacementBridge(NamedTuple):
    """The constants of the bridge. The actuator's states are in units of the design; displacements m, forces N.

    ``step``, ``input``: transition of the actuator's state over a tick and its change by the command;
    ``step_slopes``, ``input_slopes``: their derivatives with respect to each parameter, one below the other.
    ``seen``: displacement and force from the state, with their rates of change ``seen_rates``, 1/s, and the rates of
    change of these, ``seen_curves``, 1/s²; ``variance`` of these measurements. ``lateness``: standard deviations of the
    two delays beyond the stated ones, s; 0: there is no such delay. ``drift``: variance that
    each entry of the estimate gains in a tick. ``gains``: the change of the command for the structure's state,
    ground acceleration, force on the structure, actuator's state, disturbance and past commands, in this order;
    ``gain_slopes``, ``gain_curves``: their first derivatives with respect to each parameter, and their second ones
    with respect to each pair, a line each. ``slow``: velocity up to which the actuator counts as being at rest.
    ``limit``: the largest command, m. ``command_late``: ticks from a command until it acts; ``displacement_late``,
    ``force_late``: age of the measurements in ticks.
    """

    step: Matrix
    input: Floats
    step_slopes: Matrix
    input_slopes: Matrix
    seen: Matrix
    seen_rates: Matrix
    seen_curves: Matrix
    variance: Floats
    lateness: Floats
    drift: Floats
    gains: Floats
    gain_slopes: Matrix
    gain_curves: Matrix
    slow: float
    limit: float
    command_late: int
    displacement_late: int
    force_late: int


class DisplacementMemory(NamedTuple):
    """The memory of the bridge from one tick to the next.

    ``estimate``: state of the actuator when the measurements were taken, disturbance of its command, parameters,
    `DELAYS`; with its ``covariance``. ``now``: state of the actuator now. ``commands``: the last ones, newest first.
    ``displacements``, ``forces``: measurements since the one that is as old as the later of the two. Scratch space:
    ``transition``, ``turned`` and ``half`` like the covariance, and two lines, ``along`` and ``sight``.
    """

    estimate: Floats
    covariance: Matrix
    now: Floats
    commands: Floats
    displacements: Floats
    forces: Floats
    transition: Matrix
    turned: Matrix
    half: Matrix
    along: Floats
    sight: Floats


@compilable
def later(line: Floats, value: float) -> float:
    """The value that entered this line as many ticks ago as it is long, less one; ``value`` enters it now."""
    for i in range(line.shape[0] - 1, 0, -1):
        line[i] = line[i - 1]
    line[0] = value
    return float(line[line.shape[0] - 1])


@compilable
def correct_actuator(bridge: DisplacementBridge, memory: DisplacementMemory, displacement: float, force: float) -> None:
    """Correct the estimate by the measured displacement (m) and force (N) of this tick, one after the other.

    A measurement that is not a number is left out.
    """
    h, P, along, sight = memory.estimate, memory.covariance, memory.along, memory.sight
    states = bridge.step.shape[0]
    then = (later(memory.displacements, displacement), later(memory.forces, force))
    for sensor in range(SENSORS):
        residual, total = then[sensor], bridge.variance[sensor]
        if not isfinite(residual):
            continue
        _set_sight(bridge, memory, sensor)
        for j in range(states):
            residual -= sight[j] * h[j]
        for i in range(h.shape[0]):
            along[i] = 0.0
            for j in range(h.shape[0]):
                along[i] += P[i, j] * sight[j]
        for j in range(h.shape[0]):
            total += sight[j] * along[j]
        for i in range(h.shape[0]):
            h[i] += along[i] * residual / total
            for j in range(h.shape[0]):
                P[i, j] -= along[i] * along[j] / total
    for i in range(states + 1, h.shape[0]):
        h[i] = clip(h[i], -MAX_DEVIATIONS, MAX_DEVIATIONS)
    h[h.shape[0] - 1] = max(h[h.shape[0] - 1], 0.0)  # no sensor of the force is earlier than stated
    _look_ahead(bridge, memory)


@compilable
def _set_sight(bridge: DisplacementBridge, memory: DisplacementMemory, sensor: int) -> None:
    """What a sensor shows for the estimate, linearised by states and delays, which are learned from certain motion."""
    h, sight = memory.estimate, memory.sight
    states, delays = bridge.step.shape[0], h.shape[0] - DELAYS
    late = lateness_of(bridge, memory, sensor)
    slope, moves = 0.0, abs(h[VELOCITY]) > bridge.slow
    for j in range(h.shape[0]):
        sight[j] = 0.0
    for j in range(states):
        sight[j] = _share(bridge, sensor, j, late)
        if moves:
            certain = _certain(float(h[j]), float(memory.covariance[j, j]))
            slope -= _share_of_rate(bridge, sensor, j, late) * certain
    for delay in range(sensor + 1):
        sight[delays + delay] = slope * bridge.lateness[delay]


@compilable
def lateness_of(bridge: DisplacementBridge, memory: DisplacementMemory, sensor: int) -> float:
    """By how much later than stated a sensor shows what a command causes, s; 0: displacement, 1: force."""
    late, first = 0.0, memory.estimate.shape[0] - DELAYS
    for delay in range(sensor + 1):
        late += bridge.lateness[delay] * memory.estimate[first + delay]
    return late


@compilable
def displacement_command(
    bridge: DisplacementBridge, memory: DisplacementMemory, structure: Floats, ground: float, force: float
) -> float:
    """The command, m, from the state of the virtual structure; nan for one that the bridge was not designed for.

    ``ground``: its ground acceleration, m/s²; ``force``: the measured force that acts on it during this tick, N, which
    a strategy that predicts the force doesn't use.
    """
    states, size = bridge.step.shape[0], structure.shape[0]
    disturbance = size + 2 + states
    past = max(bridge.command_late, 1)
    if disturbance + 1 + past != bridge.gains.shape[0]:
        return nan
    change, theta = 0.0, memory.estimate[states + 1 : states + 1 + bridge.gain_slopes.shape[0]]
    for j in range(bridge.gains.shape[0]):
        gain = gain_at(theta, bridge.gains, bridge.gain_slopes, bridge.gain_curves, j)
        if j < size:
            change += gain * structure[j]
        elif j == size:
            change += gain * ground
        elif j == size + 1:
            change += gain * force
        elif j < disturbance:
            change += gain * memory.now[j - size - 2]
        elif j == disturbance:
            change += gain * float(memory.estimate[states])
        else:
            change += gain * memory.commands[j - disturbance - 1]
    return clip(float(memory.commands[0]) - change, -bridge.limit, bridge.limit)


@compilable
def gain_at(theta: Floats, gains: Floats, slopes: Matrix, curves: Matrix, j: int) -> float:
    """A gain of the regulator for these parameters, a quadratic function of them."""
    gain: float = gains[j]
    tracked = theta.shape[0]
    for p in range(tracked):
        slope = slopes[p, j]
        for other in range(tracked):
            slope += 0.5 * theta[other] * curves[p * tracked + other, j]
        gain += theta[p] * slope
    return gain


@compilable
def seen(bridge: DisplacementBridge, state: Floats, sensor: int, late: float) -> float:
    """What a sensor shows of a state of the actuator, ``late`` s later.

    0: the displacement, m; 1: the force of the specimen, N.
    """
    value = 0.0
    for j in range(bridge.step.shape[0]):
        value += _share(bridge, sensor, j, late) * state[j]
    return value


@compilable
def seen_rate(bridge: DisplacementBridge, state: Floats, sensor: int, late: float) -> float:
    """The rate of change of this, m/s or N/s."""
    value = 0.0
    for j in range(bridge.step.shape[0]):
        value += _share_of_rate(bridge, sensor, j, late) * state[j]
    return value


@compilable
def _share(bridge: DisplacementBridge, sensor: int, j: int, late: float) -> float:
    """Share of state ``j`` in what a sensor shows ``late`` s later."""
    rate, curve = bridge.seen_rates[sensor, j], bridge.seen_curves[sensor, j]
    return float(bridge.seen[sensor, j] - late * (rate - 0.5 * late * curve))


@compilable
def _share_of_rate(bridge: DisplacementBridge, sensor: int, j: int, late: float) -> float:
    """The same in its rate of change, 1/s."""
    return float(bridge.seen_rates[sensor, j] - late * bridge.seen_curves[sensor, j])


@compilable
def seen_force(bridge: DisplacementBridge, memory: DisplacementMemory) -> float:
    """The force of the specimen now, N, according to the estimate, where no delay but the stated ones is tracked."""
    return seen(bridge, memory.now, 1, 0.0)


@compilable
def predict_actuator(bridge: DisplacementBridge, memory: DisplacementMemory, command: float) -> None:
    """Move the estimate on by a tick with this command, m: the one that was really given."""
    h, P, F = memory.estimate, memory.covariance, memory.transition
    states, size = bridge.step.shape[0], h.shape[0]
    acting = later(memory.commands, command)
    _set_model(bridge, memory)
    _set_sensitivity(bridge, memory, acting + float(h[states]))
    _move(memory, h, states, acting)
    transpose(F, memory.turned)
    multiply(F, P, memory.half)
    multiply(memory.half, memory.turned, P)
    for i in range(size):
        P[i, i] += bridge.drift[i]
        for j in range(i):  # rounding must not make it unsymmetric in the long run
            P[i, j] = P[j, i] = 0.5 * (P[i, j] + P[j, i])
    _look_ahead(bridge, memory)


@compilable
def _set_model(bridge: DisplacementBridge, memory: DisplacementMemory) -> None:
    """Transition of the actuator's state, and its change by the disturbance, with the estimated parameters."""
    h, F = memory.estimate, memory.transition
    states = bridge.step.shape[0]
    for i in range(states):
        F[i, states] = bridge.input[i]
        for j in range(states):
            F[i, j] = bridge.step[i, j]
        for p in range(bridge.input_slopes.shape[0]):
            theta = h[states + 1 + p]
            F[i, states] += theta * bridge.input_slopes[p, i]
            for j in range(states):
                F[i, j] += theta * bridge.step_slopes[p * states + i, j]


@compilable
def _set_sensitivity(bridge: DisplacementBridge, memory: DisplacementMemory, acting: float) -> None:
    """Change of the actuator's next state by each parameter, as far as its motion is certain.

    At rest nothing is learned: there, any parameter explains a force as well as another.
    """
    F, sure = memory.transition, memory.along
    states = bridge.step.shape[0]
    moves = abs(memory.estimate[VELOCITY]) > bridge.slow
    for j in range(states):
        sure[j] = _certain(float(memory.estimate[j]), float(memory.covariance[j, j])) if moves else 0.0
    sure[states] = _certain(acting, float(memory.covariance[states, states])) if moves else 0.0
    for p in range(bridge.input_slopes.shape[0]):
        for i in range(states):
            slope = bridge.input_slopes[p, i] * sure[states]
            for j in range(states):
                slope += bridge.step_slopes[p * states + i, j] * sure[j]
            F[i, states + 1 + p] = slope


@compilable
def _certain(value: float, variance: float) -> float:
    """The value, or 0 where it may be nothing but noise."""
    return value if value * value > CERTAIN * CERTAIN * variance else 0.0


@compilable
def _move(memory: DisplacementMemory, state: Floats, states: int, command: float) -> None:
    """Move a state of the actuator on by a tick in which this command acts, m."""
    F, moved = memory.transition, memory.along
    acting = command + memory.estimate[states]
    for i in range(states):
        moved[i] = F[i, states] * acting
        for j in range(states):
            moved[i] += F[i, j] * state[j]
    for i in range(states):
        state[i] = moved[i]


@compilable
def _look_ahead(bridge: DisplacementBridge, memory: DisplacementMemory) -> None:
    """Move the state of the actuator from the time of the measurements to now, by the commands since."""
    states = bridge.step.shape[0]
    for i in range(states):
        memory.now[i] = memory.estimate[i]
    age = max(bridge.displacement_late, bridge.force_late)
    if age > 0:
        _set_model(bridge, memory)
    for since in range(age - 1, -1, -1):
        _move(memory, memory.now, states, memory.commands[bridge.command_late + since])
