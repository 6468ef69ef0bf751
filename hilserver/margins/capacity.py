r"""Capacity, speed and rate: is the real valve large and fast enough for the circuit, and the tick short enough?

**Capacity.** The flow coefficient of the real valve must be at least the total one of the circuit at the same pressure
drop ([Virtual hydraulics] ch. 5). That of the circuit is found from its steady states: its inputs at the ends of their
ranges, a port's pressure between zero and the highest that the circuit reaches there. With p_0 the pressure without
flow, and g the orifice law,

.. math:: C = \max_p \frac{|Q(p)|}{g(|p_0 - p|)}

for the flow into the port (the real valve's edge P-A) and out of it (A-T). The margin at the real supply decides: the
flow that the real valve passes at full command, divided by the flow that the circuit requests.

**Speed.** The inputs are stepped from their initial values to the ends of their ranges, at constant pressures of the
ports: the fastest change of the real valve's opening that the circuit requests, compared with the fastest that the
spool reaches between null and full command, and with ``slew``. Right after a step the flow may exceed that at rest,
until a supply is drawn down: the capacity includes it.

**Rate.** The tick rate must be 10 times the highest significant frequency ([Virtual hydraulics] ch. 5): of the circuit,
for modes that contribute to a port's flow, except for pressures that settle without oscillating; of the real valve; of
the machine; and (see :mod:`hilserver.margins.delay`) of the circuit on the machine, where a stiff virtual supply acts
on a small chamber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import copysign, inf, pi

import numpy as np

from hilserver.circuit.analysis import OSCILLATES, Analysis, NoEquilibrium
from hilserver.circuit.model import RIG
from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.rig.rig import Rig
from hilserver.rig.valves import NO_FLOW, corner_frequency, spool_speed
from hilserver.simulation.machine import (
    Pause,
    closed_ports,
    input_levels,
    machine_alone,
    machine_of,
    no_pause,
    real_pressures,
)
from hilserver.tick.records import blank, plain
from hilserver.tick.row import ValveState
from hilserver.tick.valve import valve_flow
from hilserver.units import shown_value

SHARES_OF_PRESSURE = (0.0, 0.25, 0.5, 0.75, 0.95)
"""Of the highest pressure at a port."""
STEP_TIME = 0.2
"""s over which the circuit is simulated after a step of an input."""
TICKS_PER_PERIOD = 10.0
"""Ticks per period of the highest significant frequency that are required."""
CONTENT = ".content"
"""End of the name of a state that holds the pressure of a node."""
HARDLY = 0.01
"""Margin below which the real valve passes next to nothing: its supply is hardly above the pressure of the port."""
TO_PORT, TO_TANK = "P to port", "port to T"


@dataclass(frozen=True)
class PortFlow:
    """A flow into a port, m³/s, at a pressure; ``closed``: the port's pressure without flow. SI.

    ``before``: the flow one tick before, after a step of an input; equal to ``q`` at rest.
    """

    port: str
    inputs: Mapping[str, float]
    p: float
    closed: float
    q: float
    before: float
    at_rest: bool


@dataclass(frozen=True)
class Capacity:
    """Flow coefficients of circuit and real valve in one direction, m³/(s·sqrt(Pa)), and the margin at the real supply.

    ``margin``: flow that the real valve passes at full command divided by the requested flow, smallest over the
    working range; infinite without a flow in this direction. ``worst``: where it is smallest. ``supply``: real supply
    pressure that the margin is calculated with, Pa. ``largest``: largest steady flow in this direction under load.
    """

    valve: str
    direction: str
    needed: float
    real: float
    margin: float
    worst: PortFlow | None
    supply: float
    largest: PortFlow | None

    @property
    def same_drop(self) -> float:
        """Real divided by needed coefficient: the margin at the same pressure drop."""
        return self.real / self.needed if self.needed > 0.0 else inf


@dataclass(frozen=True)
class OpeningSpeed:
    """Fastest change of the real valve's opening, 1/s: after a step, that of the spool, and that allowed by slew."""

    valve: str
    requested: float
    spool: float
    slew: float
    step: Mapping[str, float]

    @property
    def margin(self) -> float:
        """Possible divided by requested."""
        return min(self.spool, self.slew) / self.requested if self.requested > 0.0 else inf


@dataclass(frozen=True)
class SignificantFrequency:
    """A significant frequency, Hz, what it belongs to, and the ticks per period."""

    what: str
    hertz: float
    ticks: float


@dataclass(frozen=True)
class CapacityResult:
    """Margins of all valves, and the frequencies. ``assumed``: valves whose real supply pressure is unknown.

    The highest pressure that the circuit reaches at a port is taken for it.
    """

    capacities: tuple[Capacity, ...]
    speeds: tuple[OpeningSpeed, ...]
    frequencies: tuple[SignificantFrequency, ...]
    assumed: tuple[str, ...]


def capacity_margins(rig: Rig, program: Program, row: Floats | None = None, pause: Pause = no_pause) -> CapacityResult:
    """Compare the rig's circuit with its real valves. ``row``: of a running rig, for its supply pressures."""
    closed = list(closed_ports(rig, program))
    highest = max((p for _, pressures in closed for p in pressures.values()), default=0.0)
    flows = [
        *_flows_at_rest(rig, program, closed, highest, pause),
        *_flows_after_steps(rig, program, closed, highest, pause),
    ]
    known = real_pressures(rig, row)
    capacities, speeds = [], []
    for name in rig.settings.valves:
        real = known[name] or (highest, 0.0)
        mine = [flow for flow in flows if flow.port == rig.settings.valves[name].port]
        capacities += [_capacity(rig, name, direction, mine, real) for direction in (TO_PORT, TO_TANK)]
        speeds.append(_speed(rig, name, mine, real))
    assumed = tuple(name for name, pressures in known.items() if pressures is None)
    frequencies = tuple(_frequencies(rig, program, closed, highest, pause))
    return CapacityResult(tuple(capacities), tuple(speeds), frequencies, assumed)


def warnings(found: CapacityResult) -> Iterator[str]:
    """Insufficient margins, in words."""
    for capacity in found.capacities:
        if (flow := capacity.worst) is not None and capacity.margin < 1.0:
            supply = "an assumed supply" if capacity.valve in found.assumed else "its supply"
            yield (
                f"valves.{capacity.valve}: {capacity.direction}, {_requested(capacity.margin, flow)} with {supply} of "
                f"{shown_value(capacity.supply, 'Pa', 3)}. The run will report saturation there."
            )
    for speed in found.speeds:
        if speed.margin < 1.0:
            limit = "slew limit" if speed.slew < speed.spool else "spool"
            yield (
                f"valves.{speed.valve}: a step of the inputs ({inputs_text(speed.step)}) requests a change of the "
                f"opening by {speed.requested:.3g} full strokes per second; the {limit} allows "
                f"{min(speed.spool, speed.slew):.3g}."
            )
    for frequency in found.frequencies:
        shown = f"{frequency.ticks:.2g}"
        if float(shown) < TICKS_PER_PERIOD:
            yield (
                f"loop.rate: {frequency.what} has {shown_value(frequency.hertz, 'Hz', 3)}, {shown} ticks per period. "
                f"The bridge needs {TICKS_PER_PERIOD:g} to follow it."
            )


def _requested(margin: float, flow: PortFlow) -> str:
    """A flow that the real valve can't pass, and by how much it is too large, in words."""
    shown = flow_text(flow)
    if margin < HARDLY:
        return f"the virtual circuit requests {shown}, where the real valve passes practically no flow,"
    times = f"{1.0 / margin:.{3 if 1.0 / margin >= 1.01 else 5}g}"
    return f"the virtual circuit requests {times} times the flow that the real valve can pass ({shown})"


def flow_text(flow: PortFlow) -> str:
    """A flow and its operating point, in words."""
    when = "" if flow.at_rest else ", right after a step"
    at = f"{shown_value(flow.p, 'Pa', 3)} in port {flow.port}, {inputs_text(flow.inputs)}"
    return f"{shown_value(abs(flow.q), 'm^3/s', 3)} at {at}{when}"


def inputs_text(inputs: Mapping[str, float]) -> str:
    """Inputs and their values, in words."""
    return ", ".join(f"{name} {value:g}" for name, value in inputs.items()) or "no input"


# --- flows of the circuit ---------------------------------------------------------------------------------------------

Closed = Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
"""Inputs at the ends of their ranges, and the pressures of the closed ports with them."""


def _flows_at_rest(rig: Rig, program: Program, closed: Closed, highest: float, pause: Pause) -> Iterator[PortFlow]:
    """Steady flows over the pressure of one port, with the others closed or at the highest pressure."""
    for inputs, pressures in closed:
        for port in pressures:
            for others in (pressures, dict.fromkeys(pressures, highest)):
                pause()
                for share in SHARES_OF_PRESSURE:
                    at = {**others, port: share * highest}
                    if (analysis := _steady(rig, program, inputs, at)) is not None:
                        analysis.rates(analysis.values[: analysis.n].copy())
                        q = float(analysis.outputs([f"{RIG}{port}.q"])[0])
                        yield PortFlow(port, inputs, at[port], pressures[port], q, q, True)


def _flows_after_steps(rig: Rig, program: Program, closed: Closed, highest: float, pause: Pause) -> Iterator[PortFlow]:
    """Flows in every tick after a step of the inputs from their initial values to the ends of their ranges."""
    dt, substeps = 1.0 / rig.settings.loop.rate, rig.circuit.solver.substeps
    start = next(input_levels(rig, ()))
    for target, pressures in closed:
        for share in SHARES_OF_PRESSURE:
            pause()
            analysis = _steady(rig, program, start, dict.fromkeys(pressures, share * highest))
            if analysis is None:
                continue
            _set_values(analysis, target)
            ports = list(pressures)
            names = [f"{RIG}{port}.q" for port in ports]
            before = analysis.outputs(names)
            for _ in range(round(STEP_TIME / dt)):
                now = analysis.advance(substeps, dt / substeps).outputs(names)
                for i, port in enumerate(ports):
                    yield PortFlow(
                        port, target, share * highest, pressures[port], float(now[i]), float(before[i]), False
                    )
                before = now


def _steady(rig: Rig, program: Program, inputs: Mapping[str, float], pressures: Mapping[str, float]) -> Analysis | None:
    """The steady state of the circuit with these inputs and pressures at its ports; None without one."""
    analysis = Analysis(program, rig.packed)
    _set_values(analysis, {**inputs, **{f"{RIG}{port}.p": p for port, p in pressures.items()}})
    try:
        analysis.steady_state()
    except NoEquilibrium:
        return None
    return analysis


def _set_values(analysis: Analysis, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        analysis.values[analysis.packed.values.index(name)] = value


# --- against the real valve -------------------------------------------------------------------------------------------


def _capacity(rig: Rig, name: str, direction: str, flows: Sequence[PortFlow], real: tuple[float, float]) -> Capacity:
    v, sign = rig.settings.valves[name], 1.0 if direction == TO_PORT else -1.0
    point = v.nominal_flow if direction == TO_PORT else v.nominal_flow_AT
    needed, margin, worst = 0.0, inf, None
    full_flow = _full_flow(rig, name, real)
    for flow in flows:
        if sign * flow.q < NO_FLOW * v.nominal_flow.flow:
            continue
        drop = sign * (flow.closed - flow.p)
        if drop >= v.transition_pressure:
            needed = max(needed, abs(flow.q) / root_of_drop(drop, v.transition_pressure))
        possible = sign * full_flow(sign, flow.p)
        if possible / abs(flow.q) < margin:
            margin, worst = max(possible, 0.0) / abs(flow.q), flow
    steady = (flow for flow in flows if flow.at_rest and flow.p > 0.0 and sign * flow.q > 0.0)
    largest = max(steady, key=lambda flow: abs(flow.q), default=None)
    return Capacity(name, direction, needed, point.coefficient(), margin, worst, real[0], largest)


def _full_flow(rig: Rig, name: str, real: tuple[float, float]) -> Callable[[float, float], float]:
    """The flow into the port through the real valve, as a function of full command (1 or -1) and port pressure."""
    block, line = plain(blank(ValveState)), plain(rig.plan.valve[list(rig.settings.valves).index(name)])
    block.gain_PA = block.gain_AT = 1.0
    return lambda command, p: valve_flow(command, p, *real, block, line)


def _speed(rig: Rig, name: str, flows: Sequence[PortFlow], real: tuple[float, float]) -> OpeningSpeed:
    v, fastest = rig.settings.valves[name], 0.0
    step: Mapping[str, float] = {}
    full_flow = _full_flow(rig, name, real)
    for flow in (flow for flow in flows if not flow.at_rest):
        openings = [_opening(q, full_flow(1.0 if q > 0.0 else -1.0, flow.p)) for q in (flow.before, flow.q)]
        rate = abs(openings[1] - openings[0]) * rig.settings.loop.rate
        if rate > fastest:
            fastest, step = float(rate), flow.inputs
    return OpeningSpeed(name, fastest, spool_speed(v), v.slew, step)


def _opening(q: float, possible: float) -> float:
    """Fraction of full opening at which the real valve passes ``q``, at most 1."""
    return copysign(min(abs(q / possible), 1.0), q) if possible * q > 0.0 else 0.0


# --- frequencies ------------------------------------------------------------------------------------------------------


def _frequencies(
    rig: Rig, program: Program, closed: Closed, highest: float, pause: Pause
) -> Iterator[SignificantFrequency]:
    rate = rig.settings.loop.rate
    if found := _of_circuit(rig, program, closed, highest, pause):
        state, hertz = max(found.items(), key=lambda item: item[1])
        yield SignificantFrequency(f"the virtual circuit ({state})", hertz, rate / hertz)
    for name, v in rig.settings.valves.items():
        yield SignificantFrequency(f"valve {name} (-45°)", corner_frequency(v), rate / corner_frequency(v))
    if hertz := _of_machine(rig, program):
        yield SignificantFrequency("the machine", hertz, rate / hertz)


def _of_circuit(rig: Rig, program: Program, closed: Closed, highest: float, pause: Pause) -> dict[str, float]:
    """Highest significant frequencies, Hz, by the state that contributes most.

    Also with the inputs half-way: a spool at its end stop does not move. A pressure that settles without oscillating,
    as in a small line, does not count: from one tick to the next it only follows the slower states.
    """
    found: dict[str, float] = {}
    ports = rig.circuit.rig_ports()
    for inputs in (*(inputs for inputs, _ in closed), *input_levels(rig, (0.5,))):
        for share in SHARES_OF_PRESSURE:
            pause()
            analysis = _steady(rig, program, inputs, dict.fromkeys(ports, share * highest))
            if analysis is None:
                continue
            names = [f"{RIG}{port}.p" for port in ports]
            linear = analysis.linearised([*inputs, *names], [f"{RIG}{port}.q" for port in ports])
            sizes = [np.ptp(rig.settings.inputs[name].range) for name in inputs] + [highest] * len(names)
            for motion in linear.significant(np.array(sizes)):
                if motion.oscillates or not motion.state.endswith(CONTENT):
                    found[motion.state] = max(found.get(motion.state, 0.0), motion.frequency)
    return found


def _of_machine(rig: Rig, program: Program) -> float:
    """The machine's highest resonance with its ports closed, over its stroke, Hz; 0 if it has none."""
    machine = machine_of(rig)
    if machine is None:
        return 0.0
    alone, highest = machine_alone(rig, machine), 0.0
    for share in (0.1, 0.5, 0.9):
        analysis = Analysis(program, alone)
        _set_values(analysis, machine.at_share(share))
        poles = analysis.linearised().poles()
        highest = max(highest, float(np.abs(poles[np.abs(poles.imag) > OSCILLATES * np.abs(poles)]).max(initial=0.0)))
    return highest / (2.0 * pi)
