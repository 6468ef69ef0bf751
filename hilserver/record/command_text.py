"""What the commands in a log are called."""

from __future__ import annotations

from hilserver.record.format import Event, LogHeader
from hilserver.record.run import COMMAND_NAMES, recorded_command
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import CommandKind
from hilserver.tick.hybrid.displacement import DisplacementStrategy
from hilserver.tick.row import command_in


def command_text(event: Event, header: LogHeader) -> str:
    """What a command in a log is called; of a strategy with its name and that of the valve or actuator. Empty if it is
    not listed."""
    record = command_in(recorded_command(event, header))
    name = COMMAND_NAMES.get(int(record.kind), "")
    if record.kind != CommandKind.STRATEGY:
        return name
    driven = {kind: _named(header, kind) for kind in ("valve", "actuator")}
    number, strategy = int(record.a), int(record.b)
    kind = "valve" if number < len(driven["valve"]) else "actuator"
    place = number - (len(driven["valve"]) if kind == "actuator" else 0)
    strategies = STRATEGY_NAMES if kind == "valve" else [each.name for each in DisplacementStrategy]
    known = 0 <= place < len(driven[kind]) and 0 <= strategy < len(strategies)
    return f"{name} {strategies[strategy]} of {kind} {driven[kind][place]}" if known else name


def _named(header: LogHeader, kind: str) -> list[str]:
    """The valves or actuators of a log, in order."""
    first, last = f"{kind}.", ".strategy"
    found = [name for name in header.row or header.columns if name.startswith(first) and name.endswith(last)]
    return [name.removeprefix(first).removesuffix(last) for name in found]
