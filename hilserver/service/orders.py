"""What a command means for the loop: the record that it takes, or the circuit that comes of it. All is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hilserver.circuit.change import with_component, with_values
from hilserver.circuit.model import Circuit
from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.protocol import commands
from hilserver.rig.build import Rig
from hilserver.rig.ladder import cannot
from hilserver.tick.bridge.ladder import STRATEGY_NAMES, Strategy
from hilserver.tick.codes import CommandKind, Result
from hilserver.toml import read_toml

Change = commands.SetParameter | commands.Switch | commands.SwitchCircuit
"""Commands that change the virtual circuit."""

_PLAIN = {
    "arm": CommandKind.ARM,
    "disarm": CommandKind.DISARM,
    "start": CommandKind.START,
    "stop": CommandKind.STOP,
    "reset": CommandKind.RESET,
    "trip": CommandKind.ESTOP,
}
_NEEDS = {
    "arm": "SAFE",
    "disarm": "ARMED or RUNNING",
    "start": "ARMED",
    "stop": "RUNNING",
    "reset": "FAULT",
    "trip": "any mode",
}


class Order(NamedTuple):
    """A command's record: kind and numbers as in `hilserver.tick.columns`; ``needs``: the mode in which it is taken."""

    needs: str
    kind: int
    first: float = 0.0
    second: float = 0.0


class Changed(NamedTuple):
    """The circuit that a command asks for: its table, how its new states begin; a whole one's file, if it has one."""

    source: dict[str, Any]
    steady: bool = False
    whole: bool = False
    file: str | None = None


def order_of(rig: Rig, command: commands.Command) -> Order:
    """The record of a command that leaves the circuit as it is. Raises ConfigurationError where the rig has no such."""
    settings = rig.settings
    match command:
        case commands.SetInput():
            number = _index(command.input, settings.inputs, "input")
            low, high = settings.inputs[command.input].range
            if not low <= command.value <= high:
                raise refused("value", f"{command.value:g} is out of range: must be {low:g} … {high:g}.")
            return Order("RUNNING", CommandKind.SET_INPUT, number, command.value)
        case commands.SelectStrategy():
            number = _index(command.valve, settings.valves, "valve")
            offered = strategies_of(rig, command.valve)
            if command.strategy not in offered:
                hint = did_you_mean(command.strategy, offered)
                raise refused("strategy", f'"{command.strategy}" is not offered by this valve.{hint}')
            return Order("", CommandKind.STRATEGY, number, float(Strategy[command.strategy]))
        case commands.Jog():
            number = _index(command.valve, settings.valves, "valve")
            limit = settings.valves[command.valve].bridge.jog_limit
            if abs(command.command) > limit:
                raise refused("command", f"{command.command:g} is beyond the valve's jog limit: at most ±{limit:g}.")
            return Order("RUNNING, strategy manual", CommandKind.JOG, number, command.command)
        case commands.Cycle():
            if rig.cycle is None:
                raise refused("action", "the rig has no work cycle: name one in the rig file (cycle = ...).")
            return Order("RUNNING", CommandKind.CYCLE, float(command.action == "start"))
    return Order(_NEEDS[command.name], _PLAIN[command.name])


def changed(rig: Rig, running: Circuit, command: Change) -> Changed:
    """The circuit that comes of a command while ``running`` runs, not validated yet. Raises ConfigurationError."""
    match command:
        case commands.SetParameter():
            return Changed(with_values(running.source, command.component, command.set))
        case commands.Switch():
            return Changed(_switched(rig, running, command), command.start == "steady")
        case commands.SwitchCircuit():
            return Changed(_whole_circuit(rig, command), command.start == "steady", True, command.file)


def _switched(rig: Rig, running: Circuit, command: commands.Switch) -> dict[str, Any]:
    if command.set is not None:
        return with_values(running.source, command.component, command.set)
    kind = str(command.type)
    source = with_component(running.source, command.component, kind, command.values or {})
    new = rig.library.types.get(kind)
    old = next((placed for placed in running.placed if placed.name == command.component), None)
    if new is not None and old is not None:  # signals of the same name stay connected
        table = source["components"][command.component]
        for port in (*new.inputs, *new.outputs):
            if port in old.signals:
                table.setdefault(port, old.signals[port])
    return source


def _whole_circuit(rig: Rig, command: commands.SwitchCircuit) -> dict[str, Any]:
    if command.circuit is not None:
        return dict(command.circuit)
    folder = (rig.file.parent / rig.settings.circuit).parent
    name = str(command.file)
    if Path(name).name != name:
        raise refused("file", f'"{name}" is not a plain file name; circuit files lie in {folder}.')
    if not (folder / name).is_file():
        known = sorted(path.name for path in folder.glob("*.toml"))
        raise refused("file", f'there is no "{name}" in {folder}.' + did_you_mean(name, known))
    return read_toml(folder / name, name)


def strategies_of(rig: Rig, valve: str) -> tuple[str, ...]:
    """The strategies a valve can take."""
    return tuple(name for name in STRATEGY_NAMES if not cannot(rig.settings, rig.settings.valves[valve], name))


def present_strategies(rig: Rig, row: Floats) -> dict[str, str]:
    """The strategy of each valve in this row."""
    return {name: Strategy(int(row[rig.layout.column(f"valve.{name}.strategy")])).name for name in rig.settings.valves}


def why_refused(command: commands.Command, needs: str, result: int, mode: str) -> str:
    """What the loop has against a command; ``result`` is its answer in the row."""
    hint = f" ({command.name} needs {needs}, the mode is {mode})" if result == Result.WRONG_MODE and needs else ""
    return f"{Result(result).text}{hint}."


def refused(key: str, text: str) -> ConfigurationError:
    """A command that can't be carried out, because of the value at ``key``."""
    return ConfigurationError([Problem(text, key)])


def _index(name: str, known: Mapping[str, Any], what: str) -> float:
    if name not in known:
        raise refused(what, f'"{name}" is not one of the rig\'s.' + did_you_mean(name, known))
    return float(list(known).index(name))
