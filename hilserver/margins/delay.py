r"""How late may the bridge be? The critical delay of the loop of virtual circuit, bridge and machine, and its margin.

The pressures at the machine's ports make the virtual circuit's flows, and these move the pressures. In between is the
bridge, and it is late. A damper whose force comes late drives: with a delay of a quarter period it is a spring, with
more it feeds the oscillation that it should damp ("negative damping": Horiuchi et al., Earthquake Engng. Struct. Dyn.
28 (1999) 1121). So there is a *critical delay*, from which on a rig swings whose virtual circuit would come to rest on
the machine. Such loops as delay differential equations: Wallace et al., Earthquake Engng. Struct. Dyn. 34 (2005) 1817.

Around a steady motion, with deviations of the ports' pressures p and of the flows q into them:

.. math::
   p = Z(s)\,q, \qquad q = K p + e^{-s\tau}\,R\,(Y(s) - K_d)\,p

Z is the machine's impedance, Y the virtual circuit's admittance. K belongs to the real valve: its flow falls when the
pressure behind it rises, at once, whatever the bridge does; only what the virtual circuit does otherwise comes late.
Thus a real valve at a low supply, whose K is like Y, makes the loop safe, and one at a high supply shows the whole
delay. R leads a valve's flow to its port, and to the one at its other edges. The loop has a root on the imaginary axis
where an eigenvalue of (1 - Z·K)^-1·Z·R·(Y - K_d) is of size 1; its angle by omega is the delay (frequency sweeping:
Chen, Gu & Nett, Systems & Control Letters 26 (1995) 107).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import atan, atan2, inf, pi

import numpy as np

from hilserver.circuit.analysis import Analysis, Complexes, Linear, NoEquilibrium
from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.rig.ladder import possible
from hilserver.rig.plan import time_constant
from hilserver.rig.settings import ValveSettings
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
from hilserver.tick.codes import Saturation
from hilserver.tick.estimator import TREND_TIME
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState
from hilserver.tick.valve import opening_for, valve_flow

SMALL = 2.0
"""Critical delay by the bridge's lateness below which there is a warning: as a gain margin of 6 dB, half is left."""
SHARES_OF_INPUT = (0.1, 0.5, 1.0)
SHARES_OF_STROKE = (0.1, 0.5, 0.9)
SHARES_OF_LOAD = (0.0, 0.5, -0.5)
"""Of the force of the circuit's highest pressure on the piston, where the load is not known."""
OFF = 0.1
"""How far parameters of valve and sensors may be off."""
LOWEST, HIGHEST, GRID = 0.3, 2e4, 400
"""Range of the sweep, 1/s, and its points; more around each resonance."""
SWINGS = -0.01
"""Damping ratio below which the virtual circuit itself swings; what is nearer to 0 may be the differences' error."""
USUAL = 2.0 * pi * 10.0
"""1/s: lateness is stated at this frequency where no delay makes the loop swing."""
LEADING = ("inverse_lag", "inverse_lag_leakage")
PREDICTING = ("prediction", "feedback", "adaptive")
"""Strategies that know the whole way; those between these and the leading ones lead the circuit's own states only."""
DIP = 1e4
"""Pa, over which the slope of a real valve's flow is taken."""


@dataclass(frozen=True)
class Loop:
    """The linearised loop at one operating point; ports in the order of K's lines, driven ones in that of R's columns.

    ``Z``: flows into the ports -> their pressures; ``Y``: their pressures -> the virtual flows into them.
    """

    Z: Linear
    Y: Linear
    K: Floats
    R: Floats
    driven: tuple[int, ...]

    def eigenvalues(self, omega: Floats) -> Complexes:
        """Of the loop without its delay, the largest first: complex[len(omega), ports]."""
        Z, Y = self.Z.response(omega), self.Y.response(omega)
        late = self.R @ (Y - self.K)[:, list(self.driven)]
        found = np.linalg.eigvals(np.linalg.solve(np.eye(len(self.K)) - Z @ self.K, Z @ late))
        order = np.argsort(-np.abs(found), axis=1)
        ordered: Complexes = np.take_along_axis(found.astype(complex), order, axis=1)
        return ordered

    def closed(self) -> Linear:
        """The virtual circuit directly on the machine: from flows into the ports to their pressures."""
        Z, Y = self.Z, self.Y
        A = np.block([[Z.A + Z.B @ Y.D @ Z.C, Z.B @ Y.C], [Y.B @ Z.C, Y.A]])
        B = np.vstack([Z.B, np.zeros((len(Y.A), Z.B.shape[1]))])
        C = np.hstack([Z.C, np.zeros((len(Z.C), len(Y.A)))])
        return Linear(A, B, C, Z.D, Z.states + Y.states, np.concatenate([Z.scale, Y.scale]))

    def crossings(self) -> Iterator[tuple[float, float]]:
        """(delay in s, omega in 1/s) of every root on the imaginary axis, each with its shortest delay."""
        from scipy.optimize import brentq  # here: the server imports this module and doesn't look for crossings

        omega = self._frequencies()
        sizes = np.abs(self.eigenvalues(omega)) - 1.0
        for k in range(sizes.shape[1]):
            for i in np.flatnonzero(sizes[:-1, k] * sizes[1:, k] < 0.0):
                at = brentq(self._size(k), omega[i], omega[i + 1], rtol=1e-9)
                angle = float(np.angle(self.eigenvalues(np.array([at]))[0, k])) % (2.0 * pi)
                yield angle / at, at

    def _size(self, k: int) -> Callable[[float], float]:
        return lambda omega: float(np.abs(self.eigenvalues(np.array([omega]))[0, k])) - 1.0

    def _frequencies(self) -> Floats:
        """An even grid on a logarithmic scale, and around each resonance one that closes in on it."""
        found = [np.geomspace(LOWEST, HIGHEST, GRID)]
        poles = np.concatenate([self.Z.poles(), self.Y.poles()])
        for pole in poles[poles.imag > 0.0]:
            away = max(-pole.real, 1e-4 * abs(pole)) * np.geomspace(0.01, 1e3, 40)
            around = np.concatenate([abs(pole) - away, abs(pole) + away])
            found.append(around[(around > LOWEST) & (around < HIGHEST)])
        return np.unique(np.concatenate(found))


@dataclass(frozen=True)
class Point:
    """Where the machine stands: inputs, share of the stroke, load as a share of the largest.

    ``crossings``: (delay, omega) at which its loop has a root on the imaginary axis. Of the virtual circuit on the
    machine without any delay: ``damping``, its least damping ratio (below 0 it swings by itself), and ``fastest``, the
    highest frequency of a motion of the ports' pressures, Hz.
    """

    inputs: Mapping[str, float]
    stroke: float
    load: float
    crossings: tuple[tuple[float, float], ...]
    damping: float
    fastest: float

    def __str__(self) -> str:
        parts = [f"{name} {value:g}" for name, value in self.inputs.items()]
        parts += [f"{self.stroke:.0%} of the stroke"] if self.stroke else []
        parts += [f"a load of {self.load:+.0%} of the largest"] if self.load else []
        return ", ".join(parts) or "at rest"


@dataclass(frozen=True)
class Margin:
    """How late a strategy is, s, where that matters most, against the critical delay there and its frequency, Hz.

    ``late_off``: the same with everything slower by OFF than the rig file says.
    """

    strategy: str
    late: float
    late_off: float
    critical: float
    frequency: float
    where: Point | None

    @property
    def margin(self) -> float:
        """Critical delay by lateness, with parameters off; infinite where no delay makes the loop swing."""
        return self.critical / self.late_off if self.late_off > 0.0 else inf


@dataclass(frozen=True)
class Stability:
    """What came out: the operating points, and a margin per strategy. ``origin``: of the machine, in words.

    ``supply_known``: whether the real valves' own damping is reckoned with. ``missing``: why nothing is known, if so.
    """

    origin: str
    points: tuple[Point, ...]
    margins: tuple[Margin, ...]
    supply_known: bool
    missing: str = ""

    def swinging(self) -> Point | None:
        """The operating point, if any, at which the virtual circuit swings on the machine without any delay."""
        worst = min(self.points, key=lambda point: point.damping, default=None)
        return worst if worst is not None and worst.damping < SWINGS else None

    def fastest(self) -> Point | None:
        """The operating point with the fastest motion of the ports' pressures."""
        return max(self.points, key=lambda point: point.fastest, default=None)

    def of(self, strategy: str) -> Margin | None:
        """The margin of a strategy."""
        return next((margin for margin in self.margins if margin.strategy == strategy), None)


def stability(rig: Rig, program: Program, row: Floats | None = None, pause: Pause = no_pause) -> Stability:
    """Examine the rig's circuit on its machine, for every strategy. ``row``: of a running rig, for its supply."""
    try:
        machine = machine_of(rig)
        if machine is None:
            return _unknown("the rig file has no [cylinders], which would say what machine the valves drive")
        whole, alone = circuit_on(rig, machine.table), machine_alone(rig, machine)
    except ConfigurationError as error:
        return _unknown("; ".join(str(problem) for problem in error.problems))
    driven = [name for name, v in rig.settings.valves.items() if v.port in machine.ports and _connected(rig, v.port)]
    if not driven:
        return _unknown("no valve drives a port that machine and virtual circuit have in common")
    real = real_pressures(rig, row)
    points = []
    for inputs, load, values in _rests(rig, program, machine, whole):
        for share in SHARES_OF_STROKE if machine.strokes else (0.0,):
            pause()
            loop = _loop(rig, program, machine, alone, values, share, driven, real)
            points.append(Point(inputs, share, load, tuple(sorted(loop.crossings())), *_motions(loop.closed())))
    if not points:
        return _unknown("the virtual circuit comes to no steady motion on the machine")
    margins = tuple(_margin(rig, name, driven, points) for name in possible(rig.settings, driven))
    return Stability(machine.origin, tuple(points), margins, all(real[name] is not None for name in driven))


def warnings(found: Stability, strategies: Collection[str]) -> Iterator[str]:
    """What of it is too small, in words, for these strategies."""
    if (point := found.swinging()) is not None:
        yield (
            f"stability: the virtual circuit itself swings on the machine, whatever the bridge (damping ratio "
            f"{point.damping:.2g} at {point})."
        )
    for strategy in strategies:
        margin = found.of(strategy)
        if margin is not None and margin.margin < SMALL:
            yield (
                f"stability: with strategy {strategy} the real flow comes {1e3 * margin.late:.2g} ms late "
                f"({1e3 * margin.late_off:.2g} ms with parameters {OFF:.0%} off). From {1e3 * margin.critical:.2g} ms "
                f"on the loop of circuit, valve and machine swings, with {margin.frequency:.2g} Hz, at {margin.where}: "
                f"a margin of {margin.margin:.2g}, at least {SMALL:g} is wanted."
            )


def _unknown(why: str) -> Stability:
    return Stability("", (), (), False, why)


def _connected(rig: Rig, port: str) -> bool:
    return f"{RIG}{port}.q" in rig.packed.values


# --- operating points -------------------------------------------------------------------------------------------------


def _rests(
    rig: Rig, program: Program, machine: Machine, whole: PackedCircuit
) -> Iterator[tuple[dict[str, float], float, dict[str, float]]]:
    """Inputs, load, and all values of each steady motion of the virtual circuit on the machine.

    Positions are held: else a machine that moves steadily never comes to rest.
    """
    held = [i for i, name in enumerate(whole.values[: whole.n_states]) if is_position(name)]
    highest = max((p for _, pressures in closed_ports(rig, program) for p in pressures.values()), default=0.0)
    for load in SHARES_OF_LOAD if machine.loads else (0.0,):
        for inputs in input_levels(rig, SHARES_OF_INPUT):
            analysis = Analysis(program, whole)
            given = {**inputs, **{name: load * area * highest for name, area in machine.loads.items()}}
            given |= machine.at_share(0.5)
            for name, value in given.items():
                analysis.values[whole.values.index(name)] = value
            try:
                analysis.steady_state(held)
            except NoEquilibrium:
                continue
            yield inputs, load, dict(zip(whole.values, analysis.values, strict=True))


def _motions(closed: Linear) -> tuple[float, float]:
    """Least damping ratio, and highest frequency of what has a part in a port's pressure, Hz; positions held."""
    closed = closed.without([name for name in closed.states if is_position(name)])
    poles = closed.poles()
    swinging = poles[np.abs(poles.imag) > 1e-3 * np.abs(poles)]
    damping = float((-swinging.real / np.abs(swinging)).min(initial=1.0))
    return damping, max((hertz for _, hertz in closed.significant(np.ones(closed.B.shape[1]))), default=0.0)


def _loop(
    rig: Rig,
    program: Program,
    machine: Machine,
    alone: PackedCircuit,
    values: Mapping[str, float],
    share: float,
    driven: Sequence[str],
    real: Mapping[str, tuple[float, float] | None],
) -> Loop:
    """The loop around a steady motion, with the machine at another share of its stroke."""
    circuit = Analysis(program, rig.packed)
    _take_over(circuit, values, RIG)
    seen = [port for port in machine.ports if _connected(rig, port)]
    names = [f"{RIG}{port}.q" for port in seen]
    Y = circuit.linearised([f"{RIG}{port}.p" for port in seen], names)
    spread = np.eye(len(machine.ports))[[machine.ports.index(port) for port in seen]]
    Y = replace(Y, B=Y.B @ spread, C=spread.T @ Y.C, D=spread.T @ Y.D @ spread)
    flows = dict(zip(seen, circuit.outputs(names), strict=True))
    moved = Analysis(program, alone)
    _take_over(moved, values)
    for name, value in machine.at_share(share).items():
        moved.values[alone.values.index(name)] = value
    Z = moved.linearised([f"flow_into_{port}" for port in machine.ports], [f"{port}.p" for port in machine.ports])
    K, R = np.zeros((len(machine.ports),) * 2), np.zeros((len(machine.ports), len(driven)))
    ports = [rig.settings.valves[name].port for name in driven]
    for column, name in enumerate(driven):
        _enter_valve(rig, name, machine.ports, flows[ports[column]], values, real[name], K, R[:, column])
    return Loop(Z, Y, K, R, tuple(machine.ports.index(port) for port in ports))


def _take_over(analysis: Analysis, values: Mapping[str, float], prefix: str = "") -> None:
    """Set the values of a part from those of the whole, in which the machine's nodes have no ``prefix``."""
    for place, name in enumerate(analysis.packed.values):
        whole = name.removeprefix(prefix)
        if whole in values:
            analysis.values[place] = values[whole]


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
    """What a real valve does at its ports while it passes ``q``: into the matrix K and its column of R."""
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
        """Of the flow into a port: by its pressure, by the spool's position."""
        p, h = values[f"{ports[port]}.p"], 1e-4
        by_p = valve_flow(turn * U, p + DIP, p_S, p_T, block, line) - valve_flow(
            turn * U, p - DIP, p_S, p_T, block, line
        )
        by_U = valve_flow(turn * (U + h), p, p_S, p_T, block, line) - valve_flow(
            turn * (U - h), p, p_S, p_T, block, line
        )
        return by_p / (2.0 * DIP), by_U / (2.0 * h)

    held = bool(int(block.saturation) & (Saturation.CAPACITY | Saturation.NO_DROP))  # at its end, it follows nothing
    K[own, own], slope = slopes(own, 1.0)
    R[own] = 0.0 if held else 1.0
    other = rig.settings.valves[name].other_port
    if other in ports:
        K[ports.index(other), ports.index(other)], turned = slopes(ports.index(other), -1.0)
        R[ports.index(other)] = turned / slope if slope != 0.0 and not held else 0.0


# --- how late the bridge is -------------------------------------------------------------------------------------------


def _margin(rig: Rig, strategy: str, driven: Sequence[str], points: Sequence[Point]) -> Margin:
    """The smallest margin of a strategy over all operating points."""

    def late(omega: float, off: float) -> float:
        return max(lateness(rig, name, strategy, omega, off) for name in driven)

    worst = Margin(strategy, late(USUAL, 0.0), late(USUAL, OFF), inf, USUAL / (2.0 * pi), None)
    for point in points:
        for critical, omega in point.crossings:
            found = Margin(strategy, late(omega, 0.0), late(omega, OFF), critical, omega / (2.0 * pi), point)
            worst = min(worst, found, key=lambda margin: margin.margin)
    return worst


def lateness(rig: Rig, valve: str, strategy: str, omega: float, off: float = 0.0) -> float:
    """Time by which the real flow follows the virtual one, s: phase lag at ``omega`` (1/s), over ``omega``.

    What the strategy compensates is taken off. ``off``: share by which sensors and valve are slower than it knows.
    """
    settings, v = rig.settings, rig.settings.valves[valve]
    sensor = settings.channels[settings.ports[v.port]]
    hold = 0.5 / settings.loop.rate
    filtered = atan(omega * sensor.filter) / omega
    known = sensor.delay + v.delay + hold + spool_lag(v, omega)
    late = (1.0 + off) * (sensor.delay + v.delay) + hold + filtered + spool_lag(v, omega, 1.0 + off)
    if strategy in PREDICTING:
        if any(v.port in (cylinder.port_A, cylinder.port_B) for cylinder in settings.cylinders.values()):
            return late - known
        return late - _lead(omega, v.delay + hold + time_constant(v), TREND_TIME)  # the pressure is carried on straight
    if strategy in LEADING:
        return late - _lead(omega, time_constant(v) + hold, v.bridge.lead_filter)
    if strategy == "flow_servo":
        return (1.0 + off) * sensor.delay + filtered + servo_lag(rig, valve, omega, off)
    return late


def _lead(omega: float, ahead: float, filtered: float) -> float:
    """Phase lead of ``1 + ahead·s/(1 + filtered·s)`` over ``omega``, s."""
    return float(np.angle(1.0 + 1j * omega * ahead / (1.0 + 1j * omega * filtered))) / omega


def spool_lag(v: ValveSettings, omega: float, slower: float = 1.0) -> float:
    """Phase lag of the spool over ``omega``, s."""
    if v.f90 is None:
        return atan(omega * slower * time_constant(v)) / omega
    w = omega * slower / (2.0 * pi * v.f90)
    return atan2(2.0 * v.damping * w, 1.0 - w * w) / omega


def servo_lag(rig: Rig, valve: str, omega: float, off: float) -> float:
    """Phase lag of the flow servo's closed loop over ``omega``, s, at the valve's nominal drop."""
    settings, v = rig.settings, rig.settings.valves[valve]
    assert v.flow is not None
    s, slower = 1j * omega, 1.0 + off
    integral = 1.0 / (s * v.bridge.integral_time) if v.bridge.integral_time > 0.0 else 0.0
    derivative = s * v.bridge.derivative_time / (1.0 + s * v.bridge.derivative_filter)
    actuator = np.exp(-s * (0.5 / settings.loop.rate + slower * v.delay + spool_lag(v, omega, slower)))
    seen = np.exp(-s * slower * settings.channels[v.flow].delay) / (1.0 + s * settings.channels[v.flow].filter)
    ahead = v.bridge.gain * (1.0 + integral) * actuator
    back = v.bridge.gain * (1.0 + integral + derivative) * actuator * seen
    return float(-np.angle(ahead / (1.0 + back))) / omega
