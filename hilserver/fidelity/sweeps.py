"""Sweeps of an operator's input as work cycles: which input, which sines, by themselves or after a rig's own cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hilserver.errors import HilserverError, did_you_mean
from hilserver.fidelity.reference import moved_by
from hilserver.rig.build import Rig
from hilserver.rig.cycle import Sweep

AMPLITUDE = 0.3
"""Of the sines, if not told otherwise: share of half of the input's range."""


def usual_input(rig: Rig) -> str:
    """The input that moves the virtual valve at the port of the rig's first valve, or the only one there is.

    Raises HilserverError where there is neither.
    """
    inputs = list(rig.settings.inputs)
    for valve in rig.settings.valves.values():
        found = moved_by(rig.circuit, valve.port)
        if found is not None and found[0] in inputs:
            return found[0]
    if len(inputs) == 1:
        return inputs[0]
    raise HilserverError(
        f"{rig.file}: which input is to be swept? Choose it with --input: {', '.join(inputs) or 'none'}."
    )


def sweep_of(
    rig: Rig, name: str, frequencies: Sequence[float] = (), share: float = AMPLITUDE, mean: float | None = None
) -> dict[str, Any]:
    """The table of a sweep of an input.

    ``frequencies`` in Hz, default those of `Sweep`; ``share``: amplitude by half of the input's range; ``mean``:
    default the input's initial value. Raises HilserverError where rig and sweep don't fit.
    """
    if name not in rig.settings.inputs:
        text = did_you_mean(name, rig.settings.inputs)
        raise HilserverError(f'{rig.file}: "{name}" is not an input of the rig.{text}')
    settings, rate = rig.settings.inputs[name], rig.settings.loop.rate
    low, high = settings.range
    middle, amplitude = settings.initial if mean is None else mean, share * 0.5 * (high - low)
    if not (amplitude > 0.0 and low <= middle - amplitude and middle + amplitude <= high):
        raise HilserverError(
            f"{rig.file}: sines of {amplitude:g} about {middle:g} leave the range of input {name}, {low:g} … {high:g}: "
            "choose another --amplitude or --mean."
        )
    hertz = sorted(set(frequencies)) or list(Sweep().frequencies)
    for f in hertz:
        if not 0.0 < f <= 0.1 * rate:
            raise HilserverError(
                f"{rig.file}: a sine of {f:g} Hz can't be measured at {rate:g} ticks per second: "
                f"above 0 and up to {0.1 * rate:g} Hz, ten ticks per period."
            )
    return {"amplitude": amplitude, "mean": middle, "frequencies": [f"{f!r} Hz" for f in hertz]}


def alone(rig: Rig, name: str, sweep: dict[str, Any]) -> dict[str, Any]:
    """The table of a work cycle that only sweeps one input; the others are held at their initial values."""
    others = {other: {"points": [["0 s", s.initial]]} for other, s in rig.settings.inputs.items() if other != name}
    return {"inputs": {name: {"sweep": sweep}, **others}}


def after_cycle(rig: Rig, name: str, sweep: dict[str, Any]) -> dict[str, Any]:
    """The table of the rig's work cycle, once, with a sweep of one input after it; the others stay as it left them."""
    if rig.cycle is None:
        return alone(rig, name, sweep)
    ends = {other: entry.sweep_begins for other, entry in rig.cycle.inputs.items() if entry.points}
    inputs = {other: dict(rig.sources["cycle"]["inputs"][other]) for other in ends}
    led = inputs.get(name, {"points": [["0 s", rig.settings.inputs[name].initial]]})
    if ends.get(name, 0.0) < (end := max(ends.values(), default=0.0)):
        led["points"] = [*led["points"], [f"{end!r} s", led["points"][-1][1]]]
    inputs[name] = {**led, "sweep": sweep}
    return {"inputs": inputs}
