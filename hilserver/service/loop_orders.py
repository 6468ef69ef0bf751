"""Every command that leaves the circuit as it is, as records for the loop: some need several of them."""

from __future__ import annotations

from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats
from hilserver.protocol import commands
from hilserver.rig.build import Rig
from hilserver.service.loop_commands import LoopCommand, loop_command
from hilserver.service.playouts import PlayoutTable
from hilserver.service.reactions import ReactionTable

RowCommand = commands.React | commands.Release | commands.BeginPlayout | commands.EndPlayout
"""The commands that need the present row: they can't be carried out before there is one."""


def loop_orders(
    rig: Rig,
    command: commands.Command,
    packed: PackedCircuit,
    row: Floats,
    reactions: ReactionTable,
    playouts: PlayoutTable,
) -> list[LoopCommand]:
    """The records of a command, in their order. Raises ConfigurationError if a value is wrong."""
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
