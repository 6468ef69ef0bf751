"""The tick with its parts timed. It exists in compiled form only, because it reads the processor's cycle counter.

Each function that the tick calls is wrapped in one that adds the cycles which it takes to a table. The parts themselves
are those of the program, so the results are the same, bit for bit.
"""

from __future__ import annotations

import inspect

from hilserver.numerics.arrays import Floats, Indices, Integers, Matrix
from hilserver.tick import tick

TABLE = "hilserver_cycles"
"""Symbol of the table: cycles of each part, of a part that does nothing, and the counter itself."""
MEMORY = ("hilserver.tick.plan", "hilserver.tick.row")


def _is_part(item: object) -> bool:
    """Whether a global name of the tick is one of its parts, and not a function that finds something in plan or row."""
    module = getattr(item, "__module__", "")
    return inspect.isfunction(item) and module.startswith("hilserver.tick.") and module not in MEMORY


PARTS = tuple(
    name for name in tick.tick.__code__.co_names if name != tick.tick.__name__ and _is_part(vars(tick).get(name))
)
"""The functions that the tick calls, in the order of their first call."""
EMPTY, COUNTER = len(PARTS), len(PARTS) + 1
CELLS = len(PARTS) + 2


def timed_run(
    block: Floats,
    ix: Indices,
    val: Floats,
    row: Floats,
    work: Floats,
    command: Floats,
    inputs: Integers,
    given: Matrix,
    rows: Matrix,
) -> None:
    """The same as `hilserver.tick.lockstep.run_recorded`; the cycles of the parts are added to the table."""
    raise NotImplementedError("only in compiled form")


def time_nothing(times: int) -> None:
    """Run a part that does nothing: the cycles that the timing itself adds."""
    raise NotImplementedError("only in compiled form")


def read_counter() -> None:
    """Write the cycle counter into the table."""
    raise NotImplementedError("only in compiled form")
