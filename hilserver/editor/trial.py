"""A trial run of the circuit that is being edited, in a process of its own, which is ended when it takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.parent_process import die_with

PATIENCE = 60.0
"""Seconds after which a run is given up."""
LONGEST = 600.0
"""The longest time that is simulated, s."""
POINTS = 1500
"""About the largest number of points of a curve."""
STEP_AT, STEP_ENDS = 0.1, 0.15
"""When inputs leave 0, and when they have their value, s."""


@dataclass(frozen=True)
class TrialPanel:
    """Curves of one quantity over time, SI."""

    label: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Trial:
    """The result of a trial run, or why there is none."""

    panels: tuple[TrialPanel, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""


async def run_trial(
    text: str, file: Path, seconds: float, inputs: Mapping[str, float], patience: float = PATIENCE
) -> Trial:
    """Run a circuit's text for this time, s. ``inputs``: the values that they have from 0.1 s on, 0 before."""
    if not 0.0 < seconds <= LONGEST:
        return Trial(error=f"{seconds:g} s is out of range: more than 0 s, at most {LONGEST:g} s.")
    order = json.dumps({"text": text, "file": str(file), "seconds": seconds, "inputs": dict(inputs)})
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hilserver.editor.trial", str(os.getpid()), stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(patience):
            out, wrong = await child.communicate(order.encode())
    except TimeoutError:
        return Trial(error=f"The run was aborted after {patience:g} s: simulate a shorter time, or use larger steps.")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        return Trial(error=f"The run ended with code {child.returncode}: {wrong.decode(errors='replace')[-500:]}")
    found = json.loads(out)
    panels = tuple(TrialPanel(each["label"], each["unit"], each["lines"]) for each in found["panels"])
    return Trial(panels, tuple(found["notes"]), found["error"])


def thinned(time: Floats, values: Floats) -> list[tuple[float, float]]:
    """A curve with about `POINTS` points: of each piece its smallest and its largest value."""
    size = max(2 * len(time) // POINTS, 1)
    found: list[int] = []
    for begin in range(0, len(time), size):
        piece = values[begin : begin + size]
        found += sorted({begin + int(np.argmin(piece)), begin + int(np.argmax(piece))})
    return [(float(time[k]), float(values[k])) for k in found]


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    """What the process writes."""
    from hilserver.circuit.library import circuit_library, standard_library
    from hilserver.circuit.model import read_circuit
    from hilserver.rig.cycle import CycleSettings
    from hilserver.simulation.circuit_run import panels, run_circuit
    from hilserver.toml import parse_with_tolerances

    file = Path(order["file"])
    try:
        library = circuit_library(file) if file.exists() else standard_library()
        circuit = read_circuit(parse_with_tolerances(order["text"].encode(), str(file)), library, str(file))
        if ports := circuit.rig_ports():
            text = f"The circuit connects to ports of the machine ({', '.join(f'rig.{port}' for port in ports)}): "
            raise HilserverError(text + "alone it has no load. Simulate the rig instead.")
        points = {
            name: [["0 s", 0.0], [f"{STEP_AT} s", 0.0], [f"{STEP_ENDS} s", order["inputs"].get(name, 0.0)]]
            for name in circuit.inputs()
        }
        given = {"inputs": {name: {"points": each} for name, each in points.items()}}
        cycle = CycleSettings.model_validate(given) if points else None
        run = run_circuit(circuit, library, cycle, order["seconds"], name=file.stem, file=str(file))
    except HilserverError as error:
        return {"panels": [], "notes": [], "error": str(error)}
    shown = [
        {"label": label, "unit": unit, "lines": {name: thinned(run.time, v) for name, v in lines.items()}}
        for label, unit, lines in panels(run)
    ]
    return {"panels": shown, "notes": list(run.notes), "error": ""}


def main() -> None:
    """The process: reads what is to be run from its input, and writes the result to its output."""
    with contextlib.redirect_stdout(sys.stderr):  # what a user's own components print is not part of the answer
        answer = _answer(json.load(sys.stdin))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))  # the editor, which can't end this process where it is killed itself
    main()
