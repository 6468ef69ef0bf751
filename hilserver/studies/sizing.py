"""The smallest real valve of a catalogue whose margins and fidelity hold over the tolerances of a rig."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.comparison import simulated_device
from hilserver.fidelity.vary import strategy_for
from hilserver.margins.margins import margins
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.studies.catalogue import Candidate
from hilserver.studies.execution import evaluate, patience_with
from hilserver.studies.figures import FIDELITY, SATURATED, Figure, read_figures
from hilserver.studies.own_calls import ending_own_calls
from hilserver.studies.plans import values_of_plan
from hilserver.studies.settings import varied_values
from hilserver.studies.studied_rig import StudiedRig
from hilserver.studies.subject import VariantFailedError
from hilserver.studies.varied import VariedValue
from hilserver.studies.varied_rig import RigValues
from hilserver.virtual_commissioning.criteria import CRITERIA

SAMPLES = 20
"""Default number of rigs within the tolerances."""
LIMIT = 120.0
"""s of computing time after which a run is aborted."""
REPLACED = (
    "nominal_flow", "nominal_flow_to_tank", "f45", "f90", "lag", "damping", "leakage", "overlap", "opening_rate",
    "null_offset",
)  # fmt: skip
"""Keys of a valve in rig and drive that a valve of the catalogue replaces."""
LIMITS: Mapping[str, float] = {each.name: each.doubtful for each in CRITERIA}
"""Of the figures, by criterion: those of virtual commissioning, above which a strategy is doubtful."""

Progress = Callable[[str, float], None]
"""Is called with what is done at present, and the share of the candidates that are done."""


@dataclass(frozen=True)
class JudgedValve:
    """A valve of the catalogue on the rig.

    ``reasons``: why it is refused; ``capacity``: the smallest capacity margin within the valve's tolerances;
    ``worst``: the largest value of each
    figure within the tolerances, and ``runs``, how many there were; all empty where it was not examined.
    """

    candidate: Candidate
    examined: bool = True
    reasons: tuple[str, ...] = ()
    capacity: float = np.nan
    worst: Mapping[str, float] = field(default_factory=dict)
    runs: int = 0

    @property
    def holds(self) -> bool:
        """Whether margins and fidelity hold."""
        return self.examined and not self.reasons


@dataclass(frozen=True)
class Sizing:
    """All valves of a catalogue on a rig, the smallest first; ``valves``: those of the rig that they replace."""

    rig: Path
    strategy: str
    valves: tuple[str, ...]
    varied: tuple[VariedValue, ...]
    figures: tuple[Figure, ...]
    judged: tuple[JudgedValve, ...]

    @property
    def chosen(self) -> JudgedValve | None:
        """The smallest that holds."""
        return next((each for each in self.judged if each.holds), None)


def size_valves(
    file: Path,
    candidates: Sequence[Candidate],
    strategy: str | None = None,
    valves: Sequence[str] = (),
    samples: int = SAMPLES,
    workers: int = 0,
    every: bool = False,
    limits: Mapping[str, float] = LIMITS,
    progress: Progress = lambda what, done: None,
) -> Sizing:
    """Try the valves of a catalogue on a simulated rig, for all of its valves or those named, the smallest first.

    The ones after the first that holds are not examined, unless ``every``. Raises HilserverError if the rig can't be
    simulated.
    """
    with ending_own_calls():
        rig = load_rig(file)
    if rig.cycle is None:
        raise HilserverError(f"{file}: a valve is sized for a work cycle, which this rig file does not name.")
    values, chosen = RigValues(rig), strategy_for(rig, strategy)
    names = tuple(valves) or tuple(rig.settings.valves)
    for name in names:
        component_of(values, name)
    judged, varied, figures = list[JudgedValve](), tuple[VariedValue, ...](), tuple[Figure, ...]()
    for number, candidate in enumerate(candidates):
        if not every and any(each.holds for each in judged):
            judged.append(JudgedValve(candidate, examined=False))
            continue
        progress(candidate.name, number / len(candidates))
        try:
            studied = StudiedRig(with_valve(values, names, candidate.written), chosen, file.name)
            extremes = [with_valve(values, names, valve).rig for valve in candidate.extremes]
        except ConfigurationError as error:
            judged.append(JudgedValve(candidate, reasons=(f"impossible: {str(error).splitlines()[0]}",)))
            continue
        varied, figures = varied_values(studied, {}, (), str(file)), sizing_figures(studied, names, limits)
        capacity, reasons = insufficient_margins(extremes, names, chosen)
        found = JudgedValve(candidate, True, tuple(reasons), capacity)
        judged.append(found if reasons else judge(studied, found, varied, figures, samples, workers))
    return Sizing(file, chosen, names, varied, figures, tuple(judged))


def component_of(values: RigValues, valve: str) -> str:
    """The servo valve of the simulated drive that a valve of the rig file commands. Raises HilserverError."""
    rig = values.rig
    if valve not in rig.settings.valves:
        raise HilserverError(
            f"{rig.file}: {valve} is not a valve of the rig. Its valves: {', '.join(rig.settings.valves)}."
        )
    settings, device = rig.settings.valves[valve], simulated_device(rig)
    signal = device.config.actuators[settings.output].to if settings.device == device.name else ""
    components = values.written["drive"].get("components", {})
    found = [name for name, table in components.items() if table.get("command") == signal]
    if len(found) != 1 or components[found[0]]["type"] != "servo_valve":
        text = f"valves.{valve} does not command a servo_valve of the simulated drive, which could be replaced."
        raise HilserverError(f"{rig.file}: {text}")
    return str(found[0])


def with_valve(values: RigValues, names: Sequence[str], valve: Mapping[str, Any]) -> RigValues:
    """The rig with this valve, of which it is told the nominal values. Raises ConfigurationError."""
    rig, written = values.rig, dict(values.written)
    told = dict(rig.sources["rig"]["valves"])
    drive = dict(written["drive"]["components"])
    for name in names:
        told[name] = _replaced(told[name], valve)
        component = component_of(values, name)
        drive[component] = _replaced(drive[component], valve)
    written["drive"] = {**written["drive"], "components": drive}
    devices = {**rig.sources["devices"], values.device: written}
    sources = {**rig.sources, "rig": {**rig.sources["rig"], "valves": told}, "devices": devices}
    return RigValues(assemble(sources, rig.file, rig.library), written)


def _replaced(table: Mapping[str, Any], valve: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in table.items() if key not in REPLACED}, **valve}


def sizing_figures(studied: StudiedRig, names: Sequence[str], limits: Mapping[str, float]) -> tuple[Figure, ...]:
    """The figures that must hold: positions, flows into the valves' own ports, noise and saturation."""
    found = dict[str, dict[str, Any]]()
    ports = {studied.rig.settings.valves[name].port for name in names}
    for quantity in studied.special[FIDELITY]:
        what, _, where = quantity.partition(" ")
        if what == "position" or (what == "flow" and where in ports):
            found[quantity] = {"figure": f"{FIDELITY}({quantity})", "below": limits[what]}
    for name in names:
        found[f"noise {name}"] = {"figure": f"noise(valve.{name}.command)", "below": limits["noise"]}
        found[f"saturated {name}"] = {"figure": f"{SATURATED}({name})", "below": limits["saturated"]}
    return read_figures(found, studied.quantities, studied.duration, str(studied.rig.file), studied.special)


def judge(
    studied: StudiedRig,
    valve: JudgedValve,
    varied: Sequence[VariedValue],
    figures: tuple[Figure, ...],
    samples: int,
    workers: int,
) -> JudgedValve:
    """The fidelity of a valve whose margins hold, with nominal values and within the tolerances."""
    subject = studied.subject(varied, figures, LIMIT)
    values = values_of_plan("latin_hypercube", [each.tolerance for each in varied], samples, 0, seed=1)
    try:
        with ending_own_calls():
            nominal = subject.prepare().nominal
    except VariantFailedError as error:
        return replace(valve, reasons=(f"with nominal values, the rig {error}",))
    batch = max(1, -(-samples // (2 * max(workers, 1))))
    batches = list(evaluate(subject, values, len(figures), 0, workers, batch, patience_with(LIMIT)))
    found = np.vstack([nominal, *(each.figures for each in batches)])
    reasons = list[str]()
    failures = {number: reason for each in batches for number, reason in each.failures.items()}
    if failures:
        number, reason = next(iter(failures.items()))
        reasons.append(
            f"{len(failures)} of {samples} rigs failed, the first ({_text(varied, values[number])}): {reason}"
        )
    worst = dict(zip([each.name for each in figures], np.nanmax(found, axis=0).tolist(), strict=True))
    for place, figure in enumerate(figures):
        if (x := worst[figure.name]) > figure.below:
            number = int(np.nanargmax(found[:, place])) - 1
            where = _text(varied, values[number]) if number >= 0 else "nominal values"
            reasons.append(f"{figure.name}: {x:.3g} at worst, allowed {figure.below:g} ({where})")
    return replace(valve, reasons=tuple(reasons), worst=worst, runs=len(found))


def _text(varied: Sequence[VariedValue], values: Any) -> str:
    return ", ".join(f"{each.key} {each.shown(float(x), 3)}" for each, x in zip(varied, values, strict=True))


def insufficient_margins(rigs: Sequence[Rig], names: Sequence[str], strategy: str) -> tuple[float, list[str]]:
    """The smallest capacity margin of these valves, and the insufficient margins that depend on a valve, in words."""
    smallest, reasons = np.inf, dict[str, None]()
    for rig in rigs:
        found = margins(rig, compiled_program(rig.library))
        mine = tuple(each for each in found.capacity.frequencies if each.what.startswith("valve "))
        own = replace(found, capacity=replace(found.capacity, frequencies=mine))
        smallest = min([smallest, *(each.margin for each in found.capacity.capacities if each.valve in names)])
        reasons |= dict.fromkeys(own.warnings([strategy]))
    return float(smallest), list(reasons)
