"""Circuit runs: a circuit alone, without a rig, with inputs from a work cycle; all its values over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from hilserver.circuit.analysis import too_long
from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.circuit.regimes import stiffest
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean, problems_of
from hilserver.mechanics.model import read_mechanism
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.balance import Balance, balance
from hilserver.simulation.change_points import change_point_note
from hilserver.simulation.driven import drivers
from hilserver.simulation.pacing import Look, Paced, Pacing, check_speed
from hilserver.simulation.packed_run import given_inputs, initial_values, run_packed, solved_by
from hilserver.simulation.step_error import TOLERANCE, Quantity, StepError, check_tolerance, step_error
from hilserver.toml import read_toml

TICK = 1e-3
"""Time between two values of a run, s; divided by the circuit's ``substeps``, as on a rig with the usual 1 kHz."""
BALL_SPEEDS = (".speed_x", ".speed_y", ".speed_z")
"""Endings of the names of a ball joint's speeds: it has no single angle that could be shown."""
DEFAULT_DURATION = 10.0
"""Duration in s if neither a work cycle nor the caller gives one."""


@dataclass(frozen=True)
class RunSettings:
    """How a circuit is run.

    ``tick``: s, divided by the circuit's ``substeps``; in each, inputs are sampled that the run holds. ``output_step``:
    s between two values of the result, a multiple of the tick; default: the tick. ``tolerance``: of the step's error,
    as a fraction of the largest value of a quantity. ``hold_inputs``: hold all inputs for a tick, as the loop must.
    ``speed``: pace the run at this multiple of real time; default: without a clock, as fast as possible.
    """

    tick: float = TICK
    output_step: float | None = None
    tolerance: float = TOLERANCE
    hold_inputs: bool = False
    speed: float | None = None

    def __post_init__(self) -> None:
        if not 1e-7 <= self.tick <= 1.0:
            raise HilserverError(f"tick: {self.tick:g} s is outside the range 1e-7 … 1 s.")
        if self.speed is not None:
            check_speed(self.speed)
        check_tolerance(self.tolerance)
        if abs(self.every * self.tick - (self.output_step or self.tick)) > 1e-6 * self.tick or self.every < 1:
            text = f"{self.output_step:g} s is not a multiple of the tick of {self.tick:g} s"
            raise HilserverError(f"output step: {text}. Set both, for example --tick 0.5ms --output-step 1ms.")

    @property
    def every(self) -> int:
        """Ticks from one value of the result to the next."""
        return 1 if self.output_step is None else round(self.output_step / self.tick)


DEFAULT_SETTINGS = RunSettings()


@dataclass(frozen=True)
class CircuitRun:
    """The result of a circuit run: time (s) of each output step, and all values of the circuit by name, SI.

    ``inputs``: names of the signals that the work cycle set; ``balance``: of oil and energy; ``error``: of its step;
    ``notes``: what the reader should know; ``paced``: how well a paced run kept to the clock.
    """

    name: str
    circuit: Circuit
    packed: PackedCircuit
    library: Library
    inputs: tuple[str, ...]
    time: Floats
    series: Mapping[str, Floats]
    balance: Balance
    settings: RunSettings = DEFAULT_SETTINGS
    error: StepError | None = None
    notes: tuple[str, ...] = ()
    paced: Paced | None = None

    @property
    def output_step(self) -> float:
        """Time between two values, s."""
        return self.settings.tick * self.settings.every


def is_circuit_file(file: Path) -> bool:
    """Whether a file is a circuit or mechanism file, not a rig file. Raises ConfigurationError if it can't be read."""
    return bool({"components", "mechanisms", "bodies"} & read_toml(file).keys())


def read_circuit_file(file: Path, library: Library) -> Circuit:
    """Read a circuit file, or a mechanism file as a circuit of one mechanism. Raises ConfigurationError."""
    source = read_toml(file)
    if "bodies" not in source:
        return read_circuit(source, library, str(file))
    read_mechanism(source, str(file))
    name = file.stem.replace(".", "_").replace(" ", "_")
    return read_circuit({"mechanisms": {name: {"definition": source}}}, library, str(file))


def run_circuit_file(
    file: Path,
    library: Library,
    cycle_file: Path | None = None,
    duration: float | None = None,
    settings: RunSettings = DEFAULT_SETTINGS,
    watch: Watch | None = None,
) -> CircuitRun:
    """Run a circuit file over a work cycle file; ``duration`` in s, default: that of the cycle, or 10 s.

    ``watch``: informed of the progress of a paced run.

    Raises ConfigurationError with all problems of both files and of their combination, HilserverError if the result
    is no longer finite.
    """
    circuit = read_circuit_file(file, library)
    cycle = read_cycle(cycle_file) if cycle_file is not None else None
    problems = [*_machine_ports(circuit, str(file)), *_misfits(circuit, cycle, str(file), str(cycle_file))]
    if problems:
        raise ConfigurationError(problems)
    return run_circuit(
        circuit, library, cycle, duration, name=file.stem, file=str(file), settings=settings, watch=watch
    )


def read_cycle(file: Path) -> CycleSettings:
    """A work cycle file. Raises ConfigurationError."""
    source = read_toml(file)
    try:
        return CycleSettings.model_validate(source)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, source, file=str(file), names=CycleSettings.model_fields)) from None


def run_circuit(
    circuit: Circuit,
    library: Library,
    cycle: CycleSettings | None = None,
    duration: float | None = None,
    name: str = "circuit",
    file: str = "",
    settings: RunSettings = DEFAULT_SETTINGS,
    watch: Watch | None = None,
) -> CircuitRun:
    """Run a circuit from its initial values; inputs that the cycle does not set stay 0.

    Raises ConfigurationError if it can't be packed, HilserverError if the result is no longer finite.
    """
    length = duration if duration is not None else (cycle.duration if cycle else DEFAULT_DURATION)
    driven = _DrivenCircuit.of(circuit, library, cycle, max(round(length / settings.tick), 1), settings, file)
    inputs = tuple(signal for signal in circuit.inputs() if cycle and signal in cycle.inputs)
    pacing = driven.pacing(watch)
    every = driven.rows(circuit.solver.substeps, circuit.solver.integrator, pacing=pacing)
    paced = pacing.paced() if pacing is not None else None
    rows = every[settings.every - 1 :: settings.every]
    time = np.arange(1.0, len(rows) + 1.0, dtype=np.float64) * settings.tick * settings.every
    packed = driven.packed
    series = {name: rows[:, i] for i, name in enumerate(packed.names)}
    notes = tuple(_change_points(circuit, time, series))
    lost = ~np.isfinite(rows).all(axis=1)
    if lost.any() and notes:
        raise HilserverError(f"{file or name}: the run diverged. {notes[0]}")
    error = step_error(circuit.solver, settings.tick, len(driven.given), time, driven.quantities, settings.tolerance)
    if lost.any():
        k = int(np.argmax(lost))
        wrong = packed.names[int(np.argmax(~np.isfinite(rows[k])))]
        raise HilserverError(_diverged(wrong, float(time[k]), error, file or name))
    found = balance(driven.program, library, driven.driven, packed, initial_values(packed), every, settings.tick)
    return CircuitRun(name, circuit, packed, library, inputs, time, series, found, settings, error, notes, paced)


Watch = Callable[[float, list[Quantity]], object]
"""Called from time to time during a paced run, with the simulated time, s, and the quantities at that time."""


def _look(watch: Watch, circuit: Circuit, names: Sequence[str], tick: float) -> Look:
    """Gives the values of a circuit to a watcher of quantities."""
    return lambda ticks, values: watch(
        ticks * tick, quantities(circuit, dict(zip(names, values[:, None], strict=True)))
    )


def _change_points(circuit: Circuit, time: Floats, series: Mapping[str, Floats]) -> Iterator[str]:
    for placed in circuit.mechanisms:
        if note := change_point_note(placed, time, series):
            yield note


@dataclass(frozen=True)
class _DrivenCircuit:
    """A packed circuit with its inputs, to be run with several steps."""

    driven: Circuit
    program: Program
    packed: PackedCircuit
    held: tuple[str, ...]
    given: Floats
    settings: RunSettings

    @classmethod
    def of(
        cls, circuit: Circuit, library: Library, cycle: CycleSettings | None, ticks: int, s: RunSettings, file: str
    ) -> _DrivenCircuit:
        """Inputs that change continuously become signals of the circuit; the others are held in each tick."""
        driven = circuit
        if cycle is not None and not s.hold_inputs:
            driven = replace(circuit, placed=(*circuit.placed, *drivers(circuit, cycle)))
        packed, program = pack(driven, library, file=file, accounts=True), compiled_program(library)
        held = tuple(signal for signal in driven.inputs() if cycle and signal in cycle.inputs)
        return cls(driven, program, packed, held, given_inputs(cycle, held, ticks, s.tick), s)

    def pacing(self, watch: Watch | None) -> Pacing | None:
        """The clock of the run, if it is paced."""
        s, names, look = self.settings, self.packed.names, None
        if s.speed is None:
            return None
        if watch is not None:
            look = _look(watch, self.driven, names, s.tick)
        return Pacing(s.tick, s.speed, look)

    def rows(self, substeps: int, integrator: str, halvings: int = 0, pacing: Pacing | None = None) -> Floats:
        """All values (columns: ``packed.names``) in each tick; see `solved_by`."""
        solved = solved_by(self.packed, substeps, integrator, halvings)
        return run_packed(self.program, solved, self.settings.tick, self.held, self.given, pacing=pacing)

    def quantities(self, substeps: int, integrator: str, halvings: int) -> list[Quantity]:
        """The quantities of such a run."""
        rows = self.rows(substeps, integrator, halvings)[self.settings.every - 1 :: self.settings.every]
        return quantities(self.driven, {name: rows[:, i] for i, name in enumerate(self.packed.names)})


def _machine_ports(circuit: Circuit, file: str) -> list[Problem]:
    text = "is a port of the real machine. A circuit that is run alone must include its cylinder and load."
    return [Problem(f"{RIG}{port} {text}", "components", file) for port in circuit.rig_ports()]


def _misfits(circuit: Circuit, cycle: CycleSettings | None, file: str, cycle_file: str) -> list[Problem]:
    """Problems of inputs that are not set, and of inputs of the cycle that do not exist."""
    needed, led = circuit.inputs(), list(cycle.inputs) if cycle else []
    text = "is not set by any component: set it with a work cycle (--cycle FILE) or with a signal component."
    missing = [Problem(f'signal "{name}" {text}', "components", file) for name in needed if name not in led]
    return missing + [
        Problem(f'"{name}" is not an input of {file}.' + did_you_mean(name, needed), f"inputs.{name}", cycle_file)
        for name in led
        if name not in needed
    ]


def _diverged(wrong: str, at: float, error: StepError, what: str) -> str:
    return (
        f"{what}: {wrong} is not finite after {at:g} s: the step of {error.step * 1e6:.0f} µs is "
        f"too long for this circuit. {error.remedy}"
    )


# --- the discretisation error -----------------------------------------------------------------------------------------


def step_note(run: CircuitRun, looks: int = 20) -> str | None:
    """What to change if the integrator is unstable in a regime that the circuit can enter; otherwise None.

    Examined at the start and at ``looks`` times of the run.
    """
    packed, solver, tick = run.packed, run.circuit.solver, run.settings.tick
    rows = np.column_stack([run.series[name] for name in packed.values])
    program = compiled_program(run.library)
    at = np.linspace(0, len(rows) - 1, looks).astype(int)
    found = min(
        (stiffest(program, run.circuit, packed, tick / solver.substeps, values) for values in (None, *rows[at])),
        key=lambda each: each.longest_step(solver.integrator),
    )
    return too_long(found, solver.integrator, tick, solver.substeps)


# --- results ----------------------------------------------------------------------------------------------------------


def panels(run: CircuitRun) -> list[Quantity]:
    """Panels of inputs, pressures, flows, positions and speeds that the circuit has: (label, SI unit, lines by name).

    Of equal or opposite flows (into and out of a pump) only the first is shown, and no flow below 1 % of the maximum
    (such as into a load-sensing line).
    """
    circuit = run.circuit
    signals = dict.fromkeys(
        s for p in circuit.placed for port in p.component.outputs if isinstance(s := p.signals[port], str)
    )
    chosen: list[Quantity] = [
        ("signal", "", _lines(run.series, (*run.inputs, *signals), str)),
        *quantities(circuit, run.series),
    ]
    shown = [(label, unit, _different(lines) if label == "flow" else lines) for label, unit, lines in chosen]
    return [panel for panel in shown if panel[2]]


def quantities(circuit: Circuit, series: Mapping[str, Floats]) -> list[Quantity]:
    """Pressures, flows, positions and speeds: (label, SI unit, values by name); empty if the circuit has none."""
    return [
        ("pressure", "Pa", _lines(series, [f"{node}.p" for node in circuit.hydraulic_nodes()], _node)),
        ("flow", "m^3/s", _lines(series, [n for n in series if ".q_" in n], str)),
        ("position", "m", _lines(series, [f"{node}.x" for node in circuit.mechanical_nodes()], _node)),
        ("velocity", "m/s", _lines(series, [f"{node}.v" for node in circuit.mechanical_nodes()], _node)),
        ("angle", "rad", _angles(circuit, series)),
        ("speed", "rad/s", _lines(series, [f"{node}.w" for node in circuit.rotational_nodes()], _node)),
        ("rotation", "rad/s", _lines(series, [n for n in series if n.endswith(BALL_SPEEDS)], str)),
    ]


def _lines(series: Mapping[str, Floats], names: Iterable[str], shown: Callable[[str], str]) -> dict[str, Floats]:
    return {shown(name): series[name] for name in names if name in series}


def _node(name: str) -> str:
    return name.rpartition(".")[0]


def _different(lines: Mapping[str, Floats]) -> dict[str, Floats]:
    """Without lines that are small compared with the others, and those that equal another except for the sign."""
    kept: dict[str, Floats] = {}
    sizes = {name: float(np.abs(line).max(initial=0.0)) for name, line in lines.items()}
    largest = max(sizes.values(), default=0.0)
    for name, line in lines.items():
        size = sizes[name]
        if size > 0.01 * largest and not any(
            np.abs(line - sign * other).max() < 1e-3 * size for other in kept.values() for sign in (1.0, -1.0)
        ):
            kept[name] = line
    return kept


def _angles(circuit: Circuit, series: Mapping[str, Floats]) -> dict[str, Floats]:
    """The angles of all bodies (in joint coordinates: of all joints) that turn."""
    names = [f"{m.name}.{what}" for m in circuit.mechanisms for what in (*m.mechanism.bodies, *m.mechanism.joints)]
    lines = {name: series[f"{name}.angle"] for name in names if f"{name}.angle" in series}
    return {name: line for name, line in lines.items() if float(np.ptp(line)) > 1e-6}
