r"""Delay margin: the critical delay of the loop of virtual circuit, bridge and machine, against the bridge's delay.

The pressures at the machine's ports determine the flows of the virtual circuit, and these flows change the pressures.
The bridge in between delays them. A damper whose force is delayed by a quarter period acts as a spring; with a longer
delay it drives the oscillation that it should damp ("negative damping": Horiuchi et al., Earthquake Engng. Struct. Dyn.
28 (1999) 1121). There is thus a *critical delay*, beyond which the rig oscillates, although the virtual circuit would
come to rest on the machine. Such loops as delay differential equations: Wallace et al., Earthquake Engng. Struct. Dyn.
34 (2005) 1817.

Linearised about a steady motion, with deviations of the ports' pressures p and of the flows q into them:

.. math::
   p = Z(s)\,q, \qquad q = K p + e^{-s\tau}\,R\,(Y(s) - K_d)\,p

Z is the impedance of the machine, Y the admittance of the virtual circuit. K is that of the real valve, whose flow
falls immediately when the pressure downstream rises, independently of the bridge; only the difference to the virtual
circuit is delayed. So a real valve at a low supply, whose K is close to Y, makes the loop safe; one at a high supply
exposes it to the full delay. R distributes a valve's flow to its port and to the one at its other edges. The loop has a
root on the imaginary axis where an eigenvalue of (1 - Z·K)^-1·Z·R·(Y - K_d) has the magnitude 1; its angle divided by
omega is the delay (frequency sweeping: Chen, Gu & Nett, Systems & Control Letters 26 (1995) 107).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, pi

import numpy as np

from hilserver.circuit.analysis import OSCILLATES, Analysis, LinearModel, NoEquilibrium
from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError
from hilserver.margins.bridge_delay import bridge_delay, predicts
from hilserver.margins.loop import DelayedLoop
from hilserver.margins.softness import ANY, MIN_SHARE, Softness, correction_of, softness_of
from hilserver.numerics.arrays import Floats
from hilserver.rig.available_strategies import possible
from hilserver.rig.rig import Rig
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.simulation.machine import (
    Machine,
    Pause,
    circuit_on,
    closed_ports,
    input_levels,
    is_position,
    machine_alone,
    machine_of,
    no_pause,
    real_pressures,
)
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Saturation
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState
from hilserver.tick.valve import opening_for, valve_flow
from hilserver.units import shown_value

NO_STEADY_MOTION = "the virtual circuit reaches no steady motion on the machine"
MIN_MARGIN = 2.0
"""Critical delay divided by actual delay below which there is a warning; comparable to a gain margin of 6 dB."""
SHARES_OF_INPUT = (0.1, 0.5, 1.0)
SHARES_OF_STROKE = (0.1, 0.5, 0.9)
SHARES_OF_LOAD = (0.0, 0.5, -0.5)
"""Loads, as fractions of the force of the circuit's highest pressure on the piston, where the load is unknown."""
PARAMETER_ERROR = 0.1
"""Assumed relative error of the parameters of valve and sensors."""
UNSTABLE = -0.01
"""Damping ratio below which the virtual circuit itself is unstable; values nearer to 0 may be numerical error."""
STATED_AT = 2.0 * pi * 10.0
"""1/s, at which the delay is stated where no delay makes the loop oscillate."""
PRESSURE_STEP = 1e4
"""Pa, half the difference over which the slope of a real valve's flow is taken."""


@dataclass(frozen=True)
class OperatingPoint:
    """An operating point of the machine: inputs, share of the stroke, load as a fraction of the largest.

    ``crossings``: (delay, omega) at which the loop has a root on the imaginary axis. Of the virtual circuit on the
    machine without delay: ``damping``, its lowest damping ratio (below 0 it is unstable), and ``fastest``, the highest
    frequency of a mode of the ports' pressures, Hz. ``softness``: how much softer than stated the chambers may be.
    """

    inputs: Mapping[str, float]
    stroke: float
    load: float
    crossings: tuple[tuple[float, float], ...]
    damping: float
    fastest: float
    softness: Softness = ANY

    def __str__(self) -> str:
        parts = [f"{name} {value:g}" for name, value in self.inputs.items()]
        parts += [f"{self.stroke:.0%} of the stroke"] if self.stroke else []
        parts += [f"a load of {self.load:+.0%} of the largest"] if self.load else []
        return ", ".join(parts) or "at rest"


@dataclass(frozen=True)
class StrategyDelay:
    """Delay of a strategy, s, at the operating point with the least margin; critical delay there, frequency in Hz.

    ``delay_off``: the delay with sensors and valve slower than in the rig file by `PARAMETER_ERROR`, and the largest
    lag of slow devices. ``at_rest``: the delay above which the loop oscillates with all inputs at rest, without an
    assumed load, at any position, s.
    """

    strategy: str
    delay: float
    delay_off: float
    critical: float
    frequency: float
    where: OperatingPoint | None
    at_rest: float = inf

    @property
    def margin(self) -> float:
        """Critical delay divided by actual delay, with parameters off; infinite if any delay is stable."""
        return self.critical / self.delay_off if self.delay_off > 0.0 else inf


@dataclass(frozen=True)
class DelayResult:
    """The operating points, and a margin per strategy. ``origin``: of the machine, in words; ``driven``: the valves.

    ``supply_known``: whether the real valves' own damping is included. ``missing``: the reason if there is no result.
    """

    origin: str
    points: tuple[OperatingPoint, ...]
    margins: tuple[StrategyDelay, ...]
    supply_known: bool
    missing: str = ""
    driven: tuple[str, ...] = ()

    def unstable(self) -> OperatingPoint | None:
        """The operating point, if any, at which the virtual circuit is unstable on the machine without delay."""
        worst = min(self.points, key=lambda point: point.damping, default=None)
        return worst if worst is not None and worst.damping < UNSTABLE else None

    def fastest(self) -> OperatingPoint | None:
        """The operating point with the fastest mode of the ports' pressures."""
        return max(self.points, key=lambda point: point.fastest, default=None)

    def least_tolerant(self) -> OperatingPoint | None:
        """The operating point that tolerates the least softness; None if all tolerate any."""
        worst = min(self.points, key=lambda point: point.softness.share, default=None)
        return worst if worst is not None and worst.softness != ANY else None

    def of(self, strategy: str) -> StrategyDelay | None:
        """The margin of a strategy."""
        return next((margin for margin in self.margins if margin.strategy == strategy), None)


def delay_margins(rig: Rig, program: Program, row: Floats | None = None, pause: Pause = no_pause) -> DelayResult:
    """Margins of the rig's circuit on its machine, for every strategy. ``row``: of a running rig, for its supply."""
    try:
        machine = machine_of(rig)
        if machine is None:
            return _unknown("the rig file has no [cylinders] to describe the machine that the valves drive")
        coupled, alone = circuit_on(rig, machine), machine_alone(rig, machine)
    except ConfigurationError as error:
        return _unknown("; ".join(str(problem) for problem in error.problems))
    ports = machine.ports(rig)
    driven = [name for name, v in rig.settings.valves.items() if v.port in ports and _connected(rig, v.port)]
    if not driven:
        return _unknown("no valve drives a port that machine and virtual circuit share")
    real = real_pressures(rig, row)
    points = []
    for inputs, load, values in _steady_motions(rig, program, machine, coupled):
        for share in SHARES_OF_STROKE if machine.strokes() else (0.0,):
            pause()
            loop = _loop(rig, program, machine, alone, values, share, driven, real)
            closed = loop.closed()
            closed = closed.without([name for name in closed.states if is_position(name)])
            correction = correction_of(rig, ports, {port: values[f"{port}.p"] for port in ports}, share)
            softness = softness_of(closed, loop.Y, correction) if correction is not None else ANY
            crossings = tuple(sorted(loop.crossings()))
            points.append(OperatingPoint(inputs, share, load, crossings, *_motions(closed), softness))
    if not points:
        return _unknown(NO_STEADY_MOTION)
    margins = tuple(_margin(rig, name, driven, points) for name in possible(rig.settings, driven))
    supply_known = all(real[name] is not None for name in driven)
    return DelayResult(machine.origin, tuple(points), margins, supply_known, driven=tuple(driven))


def warnings(found: DelayResult, strategies: Collection[str]) -> Iterator[str]:
    """Insufficient margins of these strategies, in words."""
    if found.missing == NO_STEADY_MOTION:
        yield f"stability: the margins are unknown: {found.missing}. hilserver check --run shows how it moves."
    if (point := found.unstable()) is not None:
        yield (
            f"stability: the virtual circuit itself is unstable on the machine, with any bridge "
            f"(damping ratio {point.damping:.2g} at {point})."
        )
    for strategy in strategies:
        margin = found.of(strategy)
        if margin is not None and margin.margin < MIN_MARGIN:
            delay, off, critical = (
                shown_value(1e3 * each, "ms", 2) for each in (margin.delay, margin.delay_off, margin.critical)
            )
            yield (
                f"stability: with strategy {strategy} the delay of the real flow is {delay} "
                f"({off} with parameters {PARAMETER_ERROR:.0%} off). From {critical} on, the loop of circuit, valve "
                f"and machine oscillates at {shown_value(margin.frequency, 'Hz', 2)} ({margin.where}). The margin is "
                f"{margin.margin:.2g}; at least {MIN_MARGIN:g} is required."
            )
    correcting = [name for name in strategies if includes(Strategy[name].compensates, Compensates.VOLUME_ERROR)]
    point = found.least_tolerant()
    if correcting and point is not None and point.softness.share < MIN_SHARE:
        yield (
            f"stability: with strategy {' and '.join(correcting)} the loop oscillates at "
            f"{shown_value(point.softness.frequency, 'Hz', 2)} ({point}) where the chambers are "
            f"{point.softness.share:.0%} softer than in the rig file, as with a hose that it does not state; "
            f"{MIN_SHARE:.0%} should be harmless. State the volumes of chambers and hoses (hilserver identify finds "
            "them), or use a longer feedback_time."
        )


def refusals(rig: Rig, found: DelayResult, strategies: Collection[str]) -> Iterator[str]:
    """Slow devices that make the rig oscillate with these strategies, in words: it must not be armed."""
    slow = _slow_between(rig, found.driven)
    for strategy in strategies:
        margin = found.of(strategy)
        if margin is None or not slow.rates:
            continue
        delay = _certain_delay(rig, found.driven, margin, slow)
        if delay < margin.at_rest or delay <= _certain_delay(rig, found.driven, margin, replace(slow, rates={})):
            continue
        devices = " and ".join(f"{name} ({rate:g} Hz)" for name, rate in slow.rates.items())
        verb = "is" if len(slow.rates) == 1 else "are"
        yield (
            f"{devices} {verb} too slow for this circuit: with strategy {strategy} the "
            f"delay of the real flow is {1e3 * delay:.4g} ms. From {1e3 * margin.at_rest:.4g} ms on, the loop of "
            "circuit, valve and machine oscillates at rest, at any position. "
            f"{_remedy(rig, found.driven, margin, slow)}"
        )


def _slow_between(rig: Rig, valves: Sequence[str]) -> SlowDevices:
    """The slow devices that measure the pressures at the valves' ports or drive the valves."""
    settings = [rig.settings.valves[name] for name in valves]
    used = {rig.settings.channels[rig.settings.ports[v.port]].device for v in settings} | {v.device for v in settings}
    slow = rig.slow_devices
    return replace(slow, rates={name: rate for name, rate in slow.rates.items() if name in used})


def _certain_delay(rig: Rig, valves: Sequence[str], margin: StrategyDelay, slow: SlowDevices) -> float:
    """The delay by which slow devices are judged: its mean; of a prediction, which knows the mean, its uncertainty."""
    off, omega = PARAMETER_ERROR if predicts(margin.strategy) else 0.0, 2.0 * pi * margin.frequency
    return max(bridge_delay(rig, name, margin.strategy, omega, off, slow) for name in valves)


def _remedy(rig: Rig, valves: Sequence[str], margin: StrategyDelay, slow: SlowDevices) -> str:
    """The rate above which the rig comes to rest, if any."""
    fast = "a device that the loop itself reads and writes"
    rate, fastest = min(slow.rates.values()), slow.loop_rate
    while rate < fastest:
        rate *= 1.02
        if _certain_delay(rig, valves, margin, replace(slow, rates=dict.fromkeys(slow.rates, rate))) < margin.at_rest:
            return f"Required: at least {rate:.0f} Hz, or {fast}."
    return f"Connect pressure sensors and valves to {fast}."


def _unknown(why: str) -> DelayResult:
    return DelayResult("", (), (), False, why)


def _connected(rig: Rig, port: str) -> bool:
    return f"{RIG}{port}.q" in rig.packed.values


# --- operating points -------------------------------------------------------------------------------------------------


def _steady_motions(
    rig: Rig, program: Program, machine: Machine, coupled: PackedCircuit
) -> Iterator[tuple[dict[str, float], float, dict[str, float]]]:
    """Inputs, load, and all values of each steady motion of the virtual circuit on the machine.

    Positions are held constant: a machine that moves steadily has no equilibrium otherwise.
    """
    held = [i for i, name in enumerate(coupled.values[: coupled.n_states]) if is_position(name)]
    highest = max((p for _, pressures in closed_ports(rig, program) for p in pressures.values()), default=0.0)
    areas = {signal: rig.settings.cylinders[name].areas()[0] for signal, name in machine.loads.items()}
    for load in SHARES_OF_LOAD if machine.loads else (0.0,):
        for inputs in input_levels(rig, SHARES_OF_INPUT):
            analysis = Analysis(program, coupled)
            given = {**inputs, **{name: load * area * highest for name, area in areas.items()}}
            given |= machine.at_share(0.5)
            for name, value in given.items():
                analysis.values[coupled.values.index(name)] = value
            try:
                analysis.steady_state(held)
            except NoEquilibrium:
                continue
            yield inputs, load, dict(zip(coupled.values, analysis.values, strict=True))


def _motions(closed: LinearModel) -> tuple[float, float]:
    """Minimum damping ratio, and highest frequency of a mode of a port's pressure, Hz."""
    poles = closed.poles()
    oscillating = poles[np.abs(poles.imag) > OSCILLATES * np.abs(poles)]
    damping = float((-oscillating.real / np.abs(oscillating)).min(initial=1.0))
    significant = closed.significant(np.ones(closed.B.shape[1]))
    return damping, max((motion.frequency for motion in significant), default=0.0)


def _loop(
    rig: Rig,
    program: Program,
    machine: Machine,
    alone: PackedCircuit,
    values: Mapping[str, float],
    share: float,
    driven: Sequence[str],
    real: Mapping[str, tuple[float, float] | None],
) -> DelayedLoop:
    """The loop linearised about a steady motion, with the machine at another share of its stroke."""
    circuit = Analysis(program, rig.packed)
    _take_over(circuit, values, RIG)
    machine_ports = machine.ports(rig)
    connected = [port for port in machine_ports if _connected(rig, port)]
    names = [f"{RIG}{port}.q" for port in connected]
    Y = circuit.linearised([f"{RIG}{port}.p" for port in connected], names)
    spread = np.eye(len(machine_ports))[[machine_ports.index(port) for port in connected]]
    Y = replace(Y, B=Y.B @ spread, C=spread.T @ Y.C, D=spread.T @ Y.D @ spread)
    flows = dict(zip(connected, circuit.outputs(names), strict=True))
    moved = Analysis(program, alone)
    _take_over(moved, values)
    for name, value in machine.at_share(share).items():
        moved.values[alone.values.index(name)] = value
    Z = moved.linearised([f"flow_into_{port}" for port in machine_ports], [f"{port}.p" for port in machine_ports])
    K, R = np.zeros((len(machine_ports),) * 2), np.zeros((len(machine_ports), len(driven)))
    ports = [rig.settings.valves[name].port for name in driven]
    for column, name in enumerate(driven):
        _enter_valve(rig, name, machine_ports, flows[ports[column]], values, real[name], K, R[:, column])
    return DelayedLoop(Z, Y, K, R, tuple(machine_ports.index(port) for port in ports))


def _take_over(analysis: Analysis, values: Mapping[str, float], prefix: str = "") -> None:
    """Set the values of a part from those of the coupled circuit, in which the machine's nodes have no ``prefix``."""
    for place, name in enumerate(analysis.packed.values):
        coupled = name.removeprefix(prefix)
        if coupled in values:
            analysis.values[place] = values[coupled]


def _enter_valve(
    rig: Rig,
    name: str,
    ports: Sequence[str],
    q: float,
    values: Mapping[str, float],
    real: tuple[float, float] | None,
    K: Floats,
    R: Floats,
) -> None:
    """Enter a real valve that passes ``q`` into the matrix K and its column of R."""
    own = ports.index(rig.settings.valves[name].port)
    R[own] = 1.0
    if real is None:
        return
    p_S, p_T = real
    block, line = blank(ValveState), rig.plan.valve[list(rig.settings.valves).index(name)]
    block.gain_PA = block.gain_AT = 1.0
    p = values[f"{ports[own]}.p"]
    U = opening_for(q, p, p_S, p_T, line.overlap, block, line)

    def slopes(port: int, turn: float) -> tuple[float, float]:
        """Derivatives of the flow into a port: by its pressure, by the spool's position."""
        p, h = values[f"{ports[port]}.p"], 1e-4
        by_p = valve_flow(turn * U, p + PRESSURE_STEP, p_S, p_T, block, line) - valve_flow(
            turn * U, p - PRESSURE_STEP, p_S, p_T, block, line
        )
        by_U = valve_flow(turn * (U + h), p, p_S, p_T, block, line) - valve_flow(
            turn * (U - h), p, p_S, p_T, block, line
        )
        return by_p / (2.0 * PRESSURE_STEP), by_U / (2.0 * h)

    held = bool(int(block.saturation) & (Saturation.CAPACITY | Saturation.NO_DROP))  # saturated, it follows nothing
    K[own, own], slope = slopes(own, 1.0)
    R[own] = 0.0 if held else 1.0
    other = rig.settings.valves[name].other_port
    if other in ports:
        K[ports.index(other), ports.index(other)], turned = slopes(ports.index(other), -1.0)
        R[ports.index(other)] = turned / slope if slope != 0.0 and not held else 0.0


# --- margins ----------------------------------------------------------------------------------------------


def _margin(rig: Rig, strategy: str, driven: Sequence[str], points: Sequence[OperatingPoint]) -> StrategyDelay:
    """The smallest margin of a strategy over all operating points."""
    initial = next(input_levels(rig, ()))
    resting = [point.crossings for point in points if point.load == 0.0 and point.inputs == initial]
    at_rest = max((crossings[0][0] if crossings else inf for crossings in resting), default=inf)

    def delay(omega: float, off: float) -> float:
        return max(bridge_delay(rig, name, strategy, omega, off) for name in driven)

    def margin(critical: float, omega: float, point: OperatingPoint | None) -> StrategyDelay:
        delays = delay(omega, 0.0), delay(omega, PARAMETER_ERROR)
        return StrategyDelay(strategy, *delays, critical, omega / (2.0 * pi), point, at_rest)

    crossings = [margin(*crossing, point) for point in points for crossing in point.crossings]
    return min([margin(inf, STATED_AT, None), *crossings], key=lambda found: found.margin)
