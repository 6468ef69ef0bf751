"""The display in the terminal during a paced run: the simulated time, and the present values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hilserver.simulation.circuit_run import Watch
    from hilserver.simulation.step_error import Quantity

MAX_LINES = 20
"""Maximum number of values that are shown for each quantity."""


@contextlib.contextmanager
def watched_circuit(speed: float | None) -> Iterator[Watch | None]:
    """Shows the quantities of a circuit during a paced run; shows nothing without a clock or a terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if speed is None or not console.is_terminal:
        yield None
        return
    with Live(console=console, transient=True, auto_refresh=False) as view:
        yield lambda time, quantities: view.update(values_table(time, quantities, speed), refresh=True)


def values_table(time: float, quantities: list[Quantity], speed: float) -> Table:
    """The quantities at one time, except flows: a circuit has too many of them."""
    from rich.table import Table

    from hilserver.units import shown_value

    table = Table(title=f"{time:.2f} s, at {speed:g} times real time", min_width=40)
    for head in ("quantity", "of", "value"):
        table.add_column(head, justify="right" if head == "value" else "left")
    for label, unit, lines in quantities:
        for name, line in list(lines.items())[:MAX_LINES] if label != "flow" else ():
            table.add_row(label, name, shown_value(float(line[-1]), unit, 4))
    return table


@contextlib.contextmanager
def watched_rig(console: Console, speed: float | None) -> Iterator[Callable[[str, float], object] | None]:
    """Shows which strategy is running, and its progress; shows nothing without a clock or a terminal."""
    if speed is None or not console.is_terminal:
        yield None
        return
    with console.status("") as status:
        yield lambda strategy, time: status.update(f"{strategy}: {time:.2f} s, at {speed:g} times real time")
