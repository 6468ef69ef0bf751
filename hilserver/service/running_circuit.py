"""The circuit that the real-time loop runs, with what the server knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import PackedCircuit


@dataclass(frozen=True)
class RunningCircuit:
    """A circuit that the loop runs, or is about to run."""

    circuit: Circuit
    packed: PackedCircuit
    version: int
    file: str | None
    tick: int = 0


Running = Callable[[], RunningCircuit]
"""Returns the circuit that the loop runs now."""
