"""Sweeps of an operator input as work cycles: input, sines, and a sweep alone or after the rig's own work cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hilserver.errors import HilserverError, did_you_mean
from hilserver.fidelity.reference import commanded_by
from hilserver.rig.cycle import CycleSettings, Sweep
from hilserver.rig.rig import Rig
from hilserver.tick.bridge.strategies import Strategy

AMPLITUDE = 0.3
"""Default amplitude of the sines: share of half the input's range."""


def about_foreseen(cycles: Iterable[CycleSettings | None], strategies: Iterable[str]) -> Iterator[str]:
    """What the reader must know where a strategy with look-ahead knew the inputs of these cycles in advance."""
    known = any(cycle is not None and cycle.foreseen for cycle in cycles)
    if known and any(Strategy[name].kind.looks_ahead for name in strategies if name in Strategy.__members__):
        yield (
            "The strategies with look-ahead knew the inputs in advance, as they do in every work cycle. With manual "
            "inputs, jumps and fast movements are delayed, unless the inputs have a delay: foreseen = false in the "
            "cycle's file shows by how much."
        )


def default_input(rig: Rig) -> str:
    """The input that commands the virtual valve at the port of the rig's first valve, or the rig's only input.

    Raises HilserverError if there is neither.
    """
    inputs = list(rig.settings.inputs)
    for valve in rig.settings.valves.values():
        found = commanded_by(rig.circuit, valve.port)
        if found is not None and found[0] in inputs:
            return found[0]
    if len(inputs) == 1:
        return inputs[0]
    if not inputs:
        raise HilserverError(f"{rig.file}: the rig has no operator input to sweep.")
    raise HilserverError(f"{rig.file}: choose the input to sweep with --input: {', '.join(inputs)}.")


def sweep_of(
    rig: Rig, name: str, frequencies: Sequence[float] = (), share: float = AMPLITUDE, mean: float | None = None
) -> dict[str, Any]:
    """The table of a sweep of an input.

    ``frequencies``: Hz, default those of `Sweep`; ``share``: amplitude divided by half the input's range; ``mean``:
    default the input's initial value. Raises HilserverError if rig and sweep don't fit.
    """
    if name not in rig.settings.inputs:
        text = did_you_mean(name, rig.settings.inputs)
        raise HilserverError(f'{rig.file}: "{name}" is not an input of the rig.{text}')
    settings, rate = rig.settings.inputs[name], rig.settings.loop.rate
    low, high = settings.range
    middle, amplitude = settings.initial if mean is None else mean, share * 0.5 * (high - low)
    if not (amplitude > 0.0 and low <= middle - amplitude and middle + amplitude <= high):
        raise HilserverError(
            f"{rig.file}: sines of amplitude {amplitude:g} about {middle:g} leave the range of input {name}, "
            f"{low:g} … {high:g}: select another --amplitude or --mean."
        )
    hertz = sorted(set(frequencies)) or list(Sweep().frequencies)
    for f in hertz:
        if not 0.0 < f <= 0.1 * rate:
            raise HilserverError(
                f"{rig.file}: a sine of {f:g} Hz can't be measured at {rate:g} ticks per second. Allowed: "
                f"above 0 and up to {0.1 * rate:g} Hz, ten ticks per period."
            )
    return {"amplitude": amplitude, "mean": middle, "frequencies": [f"{f!r} Hz" for f in hertz]}


def alone(rig: Rig, name: str, sweep: dict[str, Any]) -> dict[str, Any]:
    """The table of a work cycle that only sweeps one input; all others stay at their initial values."""
    others = {other: {"points": [["0 s", s.initial]]} for other, s in rig.settings.inputs.items() if other != name}
    return {"inputs": {name: {"sweep": sweep}, **others}, "foreseen": rig.cycle is None or rig.cycle.foreseen}


def after_cycle(rig: Rig, name: str, sweep: dict[str, Any]) -> dict[str, Any]:
    """The table of the rig's work cycle, run once, then a sweep of one input while the others keep their last value."""
    if rig.cycle is None:
        return alone(rig, name, sweep)
    ends = {other: entry.sweep_begins for other, entry in rig.cycle.inputs.items() if entry.points}
    inputs = {other: dict(rig.sources["cycle"]["inputs"][other]) for other in ends}
    swept = inputs.get(name, {"points": [["0 s", rig.settings.inputs[name].initial]]})
    if ends.get(name, 0.0) < (end := max(ends.values(), default=0.0)):
        swept["points"] = [*swept["points"], [f"{end!r} s", swept["points"][-1][1]]]
    inputs[name] = {**swept, "sweep": sweep}
    return {"inputs": inputs, "foreseen": rig.cycle.foreseen}
