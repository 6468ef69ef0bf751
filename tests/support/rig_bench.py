"""For the tests of tick and bridge: a small rig with a servo valve on port A, ticked by the compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from component_bench import program

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.tick.codes import CommandKind, Mode, ResultCode
from hilserver.tick.columns import is_whole
from hilserver.tick.plan import plan_on
from hilserver.tick.program import command_record, no_command, work_array
from hilserver.tick.row import COLUMN, ValveState, as_whole, command_in, valve_state
from hilserver.toml import copied

BAR = 1e5
L_MIN = 1e-3 / 60.0
DT = 1e-3

RIG: dict[str, Any] = {
    "name": "bench",
    "circuit": "circuit.toml",
    "loop": {"rate": "1 kHz", "max_missed": 5, "max_age": "20 ms", "heartbeat_timeout": "100 ms"},
    "devices": {"card": {"driver": "replay", "file": "none.csv", "columns": ["A", "S", "Q"], "outputs": ["valve"]}},
    "channels": {
        "p_A": {"device": "card", "source": "A", "scale": {"raw": [0, 10], "value": ["0 bar", "100 bar"]}},
        "p_S": {"device": "card", "source": "S", "scale": {"raw": [0, 10], "value": ["0 bar", "200 bar"]}},
        "Q_A": {"device": "card", "source": "Q", "scale": {"raw": [-10, 10], "value": ["-60 l/min", "60 l/min"]}},
        "p_T": {"value": "0 bar"},
    },
    "ports": {"A": "p_A"},
    "inputs": {"flow": {}},
    "valves": {
        "main": {
            "port": "A",
            "supply": "p_S",
            "tank": "p_T",
            "flow": "Q_A",
            "nominal_flow": {"flow": "60 l/min", "drop": "35 bar", "per": "edge"},
            "f45": "70 Hz",
            "device": "card",
            "output": "valve",
            "raw": [-10, 10],
            "bridge": {"strategy": "inverse_static"},
        }
    },
}
CIRCUIT: dict[str, Any] = {
    "components": {
        "source": {"type": "flow_source", "ports": {"P": "rig.A", "T": "t"}, "flow": "40 l/min", "command": "flow"},
        "tank": {"type": "tank", "ports": {"T": "t"}},
    }
}


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested tables with other values; None takes a key away."""
    result = copied(table)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


_RIGS: dict[str, Rig] = {}
"""The rigs of this process by their tables: more than a thousand tests want one of some dozens."""


def bench_rig(
    changes: Mapping[str, Any] | None = None,
    circuit: Mapping[str, Any] | None = None,
    cycle: Mapping[str, Any] | None = None,
) -> Rig:
    """The bench's rig with changes; another circuit; a work cycle."""
    sources = {"rig": merged(RIG, changes or {}), "circuit": circuit or CIRCUIT}
    if cycle is not None:
        sources["cycle"] = cycle
    written = repr(sources)
    if written not in _RIGS:
        _RIGS[written] = assemble(sources, Path("bench.toml"), standard_library())
    rig = _RIGS[written]
    packed = replace(rig.packed, index=rig.packed.index.copy(), value=rig.packed.value.copy())
    return replace(rig, plan=plan_on(rig.plan.block.copy()), packed=packed)


class Bench:
    """A rig, its row, and the next tick's inputs: all as a real loop sets them, a fresh heartbeat, no missed tick."""

    def __init__(self, rig: Rig | None = None) -> None:
        self.rig = rig or bench_rig()
        self.packed = self.rig.packed
        self.row = first_row(self.rig.layout, self.rig.plan, self.packed)
        self.raw: dict[str, float] = dict.fromkeys(self.rig.layout.raw, 0.0)
        self.ages: dict[str, float] = dict.fromkeys(self.rig.layout.raw, 0.0)
        self.confirmed_ages: dict[str, float] = {output.name: 0.0 for output in self.rig.layout.outputs}
        self.missed, self.heartbeat_age, self.device_error = 0, 0.0, 0
        self.sequence = 0
        column = self.rig.layout.column
        self._whole = as_whole(self.row)
        self._values = {n: (self._whole if is_whole(n) else self.row, column(n)) for n in self.rig.layout.names}
        self._inputs = {name: (column(f"raw.{name}"), column(f"age.{name}")) for name in self.rig.layout.raw}
        self._confirmed = {name: column(f"confirmed_age.{name}") for name in self.confirmed_ages}
        self._message, self._empty = no_command(), no_command()
        self._bind()

    def _bind(self) -> None:
        """The tick with the present circuit."""
        work = work_array(self.packed, self.rig.plan)
        self._tick = program().tick.bound(
            self.rig.plan.block, self.packed.index, self.packed.value, self.row, work, self._message
        )

    def __getitem__(self, name: str) -> float:
        if name in self._values:
            memory, column = self._values[name]
            return float(memory[column])
        return float(self.row[self.rig.plan.layout[0].circuit + self.packed.names.index(name)])

    @property
    def mode(self) -> str:
        return Mode(int(self["mode"])).name

    @cached_property
    def block(self) -> ValveState:
        """The first valve's block of the row (a view)."""
        return valve_state(self.rig.plan, self.row, 0)

    def tick(self, kind: int = CommandKind.NOTHING, *arguments: float) -> int:
        """One tick with a command; returns its result."""
        self._message[:] = self._empty
        if kind != CommandKind.NOTHING:
            self.sequence += 1
            self._message[:] = command_record(kind, *arguments)
            command_in(self._message).sequence = self.sequence
        whole = self._whole
        whole[COLUMN["tick"]] += self.missed + 1
        whole[COLUMN["missed"]], whole[COLUMN["device_error"]] = self.missed, self.device_error
        self.row[COLUMN["heartbeat_age"]] = self.heartbeat_age
        for name, (raw, age) in self._inputs.items():
            self.row[raw], self.row[age] = self.raw[name], self.ages[name]
        for name, seconds in self.confirmed_ages.items():
            self.row[self._confirmed[name]] = seconds
        self._tick()
        return int(whole[COLUMN["result"]])

    def record(self, name: str, ticks: int) -> Floats:
        """Tick and note one column."""
        values = np.empty(ticks)
        for k in range(ticks):
            self.tick()
            values[k] = self[name]
        return values

    def run_to(self, mode: int) -> Bench:
        """Bring the rig from STARTUP to this mode by commands."""
        self.tick()
        for command, reached in ((CommandKind.ARM, Mode.ARMED), (CommandKind.START, Mode.RUNNING)):
            if mode >= reached:
                assert self.tick(command) == ResultCode.DONE
        assert self["mode"] == mode
        return self

    def swap(self, circuit: Mapping[str, Any]) -> None:
        """Put another circuit into the row, as the loop does before a tick."""
        new = self.rig.pack(self.rig.read_circuit(circuit))
        work = work_array(new, self.rig.plan)
        program().swap(self.rig.plan.block, self.row, new.index, new.value, new.carried_from(self.packed), work)
        self.packed = new
        self._bind()
