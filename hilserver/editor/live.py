"""Applying the circuit that is drawn to a rig that runs, as a switch of the whole circuit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.circuit.model import Circuit
from hilserver.client import read_status, request
from hilserver.editor.parts import below, tables
from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import SwitchCircuit
from hilserver.protocol.published import Answer, CircuitStatus
from hilserver.web.datasheet import as_text

_SHOWN_APART = ("components", "nodes", "drawing", "description")


@dataclass(frozen=True)
class RigLink:
    """A rig whose server is asked."""

    rig: str
    address: BrokerAddress

    async def running(self) -> tuple[str, CircuitStatus]:
        """The mode of the rig, and its circuit. Raises HilserverError if it can't be asked."""
        status = await read_status(self.address, self.rig)
        if not status.online or status.circuit is None or status.state is None:
            raise HilserverError(f"the server of rig {self.rig} is not running.")
        return status.state.mode, status.circuit

    async def apply(self, circuit: Circuit, version: int) -> Answer:
        """Switch to a circuit, which goes with the contents of all its files.

        ``version``: of the circuit that it replaces; the server refuses it if another one is active meanwhile. Raises
        HilserverError if there is no answer; a refusal is an answer.
        """
        table = json.loads(json.dumps(dict(circuit.written)))
        return await request(self.address, self.rig, SwitchCircuit(circuit=table, version=version))


def differences(running: CircuitStatus, circuit: Circuit) -> Iterator[str]:
    """What a switch would change, one line each; places in the drawing are not mentioned."""
    old = running.source if running.written is None else running.written
    new: Mapping[str, Any] = json.loads(json.dumps(dict(circuit.written)))
    before, after = tables(old, "components"), tables(new, "components")
    for name in before.keys() - after.keys():
        yield f"{name} ({before[name].get('type')}) is removed"
    for name, part in after.items():
        if name not in before:
            yield f"{name} ({part.get('type')}) is new"
        elif part != before[name]:
            yield from _changed(f"{name}: ", before[name], part)
    starts, others = below(old, "nodes"), below(new, "nodes")
    if starts != others:
        yield from _changed("initial value: ", starts, others)
    for key in sorted((old.keys() | new.keys()) - {*_SHOWN_APART}):
        if old.get(key) != new.get(key):
            yield from _changed(f"{key}: ", below(old, key), below(new, key))


def _changed(begin: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            one, other = (as_text(table[key]) if key in table else "–" for table in (old, new))
            yield f"{begin}{key}: {one} → {other}"
