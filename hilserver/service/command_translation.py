"""Translates the protocol's commands that leave the circuit as it is into those of the loop, and checks every value.

A switch of the circuit is prepared in `hilserver.service.switching`.
"""

from __future__ import annotations

from collections.abc import Mapping

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.protocol import commands
from hilserver.rig.rig import Rig
from hilserver.service.loop_command import LoopCommand
from hilserver.service.playouts import PlayoutTable
from hilserver.service.reactions import ReactionTable
from hilserver.service.refusals import invalid, number_of
from hilserver.service.strategies import offered_strategies
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import CommandKind
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS, DisplacementStrategy

RowCommand = commands.React | commands.Release | commands.BeginPlayout | commands.EndPlayout
"""The commands that need the present row: they can't be carried out before there is one."""
_PLAIN: Mapping[type[commands.Command], CommandKind] = {
    commands.Arm: CommandKind.ARM,
    commands.Disarm: CommandKind.DISARM,
    commands.Start: CommandKind.START,
    commands.Stop: CommandKind.STOP,
    commands.Reset: CommandKind.RESET,
    commands.Trip: CommandKind.TRIP,
}
"""The commands without values."""


def loop_commands(
    rig: Rig,
    command: commands.Command,
    packed: PackedCircuit,
    row: Floats,
    reactions: ReactionTable,
    playouts: PlayoutTable,
) -> list[LoopCommand]:
    """What the loop receives of a command, in this order. Raises ConfigurationError if a value is wrong.

    ``packed`` and ``row``: the circuit that the loop runs, and its latest row.
    """
    match command:
        case commands.React():
            return reactions.prepare(command, packed, row)
        case commands.Release():
            return reactions.release(command, row)
        case commands.BeginPlayout():
            return playouts.prepare(command, packed, row)
        case commands.EndPlayout():
            return playouts.end(command, row)
    return [loop_command(rig, command)]


def loop_command(rig: Rig, command: commands.Command) -> LoopCommand:
    """What the loop receives of a command other than a RowCommand. Raises ConfigurationError if a value is wrong."""
    settings = rig.settings
    match command:
        case commands.SetInput():
            number = number_of(command.input, settings.inputs, "input")
            low, high = settings.inputs[command.input].range
            if not low <= command.value <= high:
                raise invalid("value", f"{command.value:g} is out of range: must be {low:g} … {high:g}.")
            return LoopCommand(CommandKind.SET_INPUT, number, command.value)
        case commands.SelectStrategy():
            return _selection(rig, command)
        case commands.Jog():
            return _jog(rig, command)
        case commands.Cycle():
            if rig.cycle is None:
                raise invalid("action", "the rig has no work cycle: name one in the rig file (cycle = ...).")
            return LoopCommand(CommandKind.CYCLE, float(command.action == "start"))
        case commands.ArmTrigger() | commands.EndTrigger():
            raise invalid("trigger", "needs the recorder of a running server: a run without one has no triggers.")
    return LoopCommand(_PLAIN[type(command)])


def _jog(rig: Rig, command: commands.Jog) -> LoopCommand:
    """A movement by hand; the actuators are numbered behind the valves."""
    if command.actuator is not None:
        return LoopCommand(CommandKind.JOG, actuator_number(rig, command.actuator), command.command)
    number = valve_number(rig, command.valve or "")
    limit = rig.settings.valves[command.valve or ""].bridge.jog_limit
    if abs(command.command) > limit:
        raise invalid("command", f"{command.command:g} is beyond the valve's jog limit: at most ±{limit:g}.")
    return LoopCommand(CommandKind.JOG, number, command.command)


def _selection(rig: Rig, command: commands.SelectStrategy) -> LoopCommand:
    """The selection of a strategy."""
    if command.actuator is not None:
        what, offered = "actuator", AVAILABLE_IN_RIGS
        number = actuator_number(rig, command.actuator)
    else:
        what, name = "valve", command.valve or ""
        number, offered = valve_number(rig, name), offered_strategies(rig, name)
    if command.strategy not in offered:
        listed = f" Allowed: {', '.join(offered)}." if what == "actuator" else did_you_mean(command.strategy, offered)
        raise invalid("strategy", f'"{command.strategy}" is not offered by this {what}.{listed}')
    strategies = DisplacementStrategy if command.actuator is not None else Strategy
    return LoopCommand(CommandKind.STRATEGY, number, float(strategies[command.strategy]))


def valve_number(rig: Rig, name: str) -> float:
    """The number of a valve. Raises ConfigurationError."""
    if name in rig.settings.actuators and name not in rig.settings.valves:
        text = f'the rig has no valve "{name}", but an actuator: write actuator instead of valve.'
        raise invalid("valve", text)
    return number_of(name, rig.settings.valves, "valve")


def actuator_number(rig: Rig, name: str) -> float:
    """The number of an actuator, behind the valves. Raises ConfigurationError."""
    if name in rig.settings.valves and name not in rig.settings.actuators:
        text = f'the rig has no actuator "{name}", but a valve: write valve instead of actuator.'
        raise invalid("actuator", text)
    return len(rig.settings.valves) + number_of(name, rig.settings.actuators, "actuator")
