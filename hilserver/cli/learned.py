"""``hilserver learned``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.changing import change_file
from hilserver.cli.output import never_waiting
from hilserver.cli.prose import say
from hilserver.cli.switch import Broker

if TYPE_CHECKING:
    from hilserver.commissioning.learned_settings import Learned
    from hilserver.rig.rig import Rig


@never_waiting()
def learned(
    file: Annotated[Path, typer.Argument(metavar="RIG", help="rig file (TOML)", show_default=False)],
    log: Annotated[
        Path | None, typer.Option(help="log (.arrow) of this rig; default: the values of the running server")
    ] = None,
    broker: Broker = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="show the changes to the rig file, and make them; a dated copy is kept")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before the file is changed")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="run the Python code that the log contains")] = False,
) -> None:
    """Show what adaptive bridges have learned about valves and actuators beside the rig file's values; save it there.

    The values are those at the end of a log, or the current ones of the running server; of an actuator, those that its
    uncertainty names, with standard deviations. Values at a bound, and those that the movements have not determined,
    are not saved.
    """
    from hilserver.cli.status import learned_table
    from hilserver.cli.tables import new_console
    from hilserver.commissioning.learned_settings import check_origin, left_out, of_actuators
    from hilserver.errors import HilserverError
    from hilserver.rig.build import load_rig

    rig = load_rig(file)
    found = _of_server(rig, broker) if log is None else _of_log(log, trust)
    if not found:
        say("Nothing was learned: no valve has used the strategy adaptive, and no actuator has uncertain values.")
        return
    actuators = of_actuators(found)
    valves = {name: values for name, values in found.items() if name not in actuators}
    for what, values in (("a valve", valves), ("an actuator", actuators)):
        if values:
            new_console().print(learned_table(values, what), soft_wrap=True)
    for line in left_out(found):
        say(line)
    try:
        check_origin(rig, found)
    except HilserverError as error:
        if apply:
            raise
        say(str(error))
    if apply:
        _apply(rig, found, yes)


def _of_log(log: Path, trust: bool) -> Learned:
    from hilserver.commissioning.learned_settings import learned_of_log

    return learned_of_log(log, trust=trust)


def _of_server(rig: Rig, broker: str | None) -> Learned:
    """The present values of the running server."""
    from hilserver.client import status, where
    from hilserver.errors import HilserverError

    name, address = where(rig.settings.name, broker)
    found = status(address, name)
    if found.state is None or not found.online:
        raise HilserverError(f"The server of rig {name} is offline: give a log (--log).")
    actuators = {name: each.learned for name, each in found.state.actuators.items() if each.learned}
    return {**found.state.learned, **actuators}


def _apply(rig: Rig, found: Learned, yes: bool) -> None:
    """Show the difference, ask, and merge the values into the rig file."""
    from datetime import datetime

    from hilserver.commissioning.learned_settings import learned_fragment
    from hilserver.rig.build import load_rig
    from hilserver.rig.merge import merged

    before, now = rig.file.read_text(), datetime.now().astimezone()
    after = merged(before, learned_fragment(rig, found), {}, now.date(), "learned")
    change_file(rig.file, before, after, now, load_rig, "learned", yes=yes)
