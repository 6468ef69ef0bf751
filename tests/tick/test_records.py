"""Records: what follows from their declaration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from rig_bench import bench_rig

from hilserver.compiler.lowering import CELL, register_marks
from hilserver.rig.plan import first_row
from hilserver.tick import plan as plan_module
from hilserver.tick import row as row_module
from hilserver.tick.codes import Mode
from hilserver.tick.columns import column_reference, is_whole, matches, unit_of_column
from hilserver.tick.plan import Plan, make_plan, plan_on, table_of
from hilserver.tick.records import Struct, blank, cells_of, dtype_of, record_at, records_in, value
from hilserver.tick.row import COLUMN, RowHeader, ValveState, as_whole, header, valve_state

RECORDS = [
    found
    for module in (plan_module, row_module)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Struct) and found is not Struct
]


class Pair(Struct):
    """Two values, and a number."""

    a: float = value("m", "the first")
    b: float = value("", "the second")
    n: int = value("", "how many")


@record_at(Pair)
def pair(row: Any, i: int) -> int:
    """Pair ``i``, behind one other cell."""
    return 1 + 3 * i


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_is_described_and_has_a_cell(record: type[Struct]) -> None:
    assert all(field.description for field in record.fields().values())
    assert record.fields().keys() == {name for name in record.__annotations__ if name in record.fields()}
    assert dtype_of(record).itemsize == CELL * record.cells()
    assert not [name for name in record.names() if hasattr(np.float64, name)]  # NumPy's own attributes hide fields


def test_a_record_is_a_view_in_python_and_in_compiled_code() -> None:
    """Changes through it are changes of the row, and of nothing beside it."""
    row = np.zeros(8)

    def change(row, i):  # type: ignore[no-untyped-def]
        found = pair(row, i)
        found.a, found.n = 1.5 * found.b, 7

    register_marks()
    for change_it in (change, njit(change)):
        row[:] = 0.0
        pair(row, 1).b = 2.0
        change_it(row, 1)
        assert (pair(row, 1).a, pair(row, 1).b, pair(row, 1).n) == (3.0, 2.0, 7)
        assert row[[0, 1, 2, 3, 7]].tolist() == [0.0] * 5
        assert row.view(np.int64)[6] == 7


pairs = records_in(Pair)


def test_records_in_a_range_of_cells_are_a_view_in_python_and_in_compiled_code() -> None:
    """Two of three records, behind one other cell."""
    row = np.zeros(11)

    def change(row, first, last):  # type: ignore[no-untyped-def]
        found = pairs(row, first, last)
        for i in range(found.shape[0]):
            found[i].a, found[i].n = 1.5 * found[i].b, 7 + i
        return found.shape[0]

    register_marks()
    for change_it in (change, njit(change)):
        row[:] = 0.0
        row[5], row[8] = 2.0, 4.0
        assert change_it(row, 4, 10) == 2
        assert row[:4].tolist() == [0.0] * 4
        assert (row[4], row[5], row[7], row[8], row[10]) == (3.0, 2.0, 6.0, 4.0, 0.0)
        assert row.view(np.int64)[[6, 9]].tolist() == [7, 8]
        assert change_it(row, 4, 4) == 0


def test_the_cells_of_a_record_are_its_memory() -> None:
    block = blank(ValveState)
    cells_of(block)[:] = np.arange(ValveState.cells())
    assert block.flow_virtual == ValveState.names().index("flow_virtual")
    row = np.zeros(40)
    cells_of(header(row))[1] = 9.0
    assert row[1] == header(row).time == 9.0


def test_whole_numbers_are_integers_in_the_memory_of_the_row() -> None:
    row = np.zeros(40)
    header(row).tick, header(row).mode, header(row).time = -1, Mode.RUNNING, 0.5
    assert as_whole(row)[[COLUMN["tick"], COLUMN["mode"]]].tolist() == [-1, 3]
    assert row[COLUMN["time"]] == 0.5


@pytest.mark.parametrize(
    ("table", "field"), [("valve", "safe_value"), ("valve", "strategy_first"), ("input", "initial")]
)
def test_the_row_before_the_first_tick_is_that_of_its_plan(table: str, field: str) -> None:
    """It is remembered by the tables from which it follows."""
    rig, anew = bench_rig(), bench_rig()
    before = first_row(rig.layout, rig.plan, rig.packed).tobytes()
    plan = plan_on(rig.plan.block.copy())
    getattr(plan, table)[field] += 1
    changed = first_row(rig.layout, plan, rig.packed).tobytes()
    assert changed != before
    assert changed == first_row(anew.layout, plan, anew.packed).tobytes()
    assert first_row(rig.layout, rig.plan, rig.packed).tobytes() == before


def test_the_columns_of_whole_numbers_are_known_by_name() -> None:
    rig = bench_rig()
    row = first_row(rig.layout, rig.plan, rig.packed)
    whole = {name for name in rig.layout.names if is_whole(name)}
    assert {"tick", "mode", "valve.main.strategy", "channel_same.p_A"} <= whole
    assert not whole & {"time", "valve.main.command", "channel.x", "raw.x", "limit.stroke"}
    valve_state(rig.plan, row, 0).saturation = 5
    assert rig.layout.values(row, "valve.main.saturation") == 5
    assert rig.layout.values(np.stack([row, row]), "valve.main.gain_PA").tolist() == [1.0, 1.0]


def test_a_plan_is_its_block() -> None:
    """What compiled code and other processes are handed holds all of it."""
    plan = bench_rig().plan
    again = plan_on(plan.block.copy())
    for name, table in again._asdict().items():
        assert np.asarray(table).tobytes() == np.asarray(getattr(plan, name)).tobytes()
    again.valve["u_max"][:] = 0.5
    assert plan_on(again.block).valve[0].u_max == 0.5
    assert plan.valve[0].u_max != 0.5


def test_a_plan_with_a_field_too_few_or_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="InputRecord: fields without a value, or values without a field: delay, high"):
        table_of(plan_module.InputRecord, [{"initial": 0.0, "low": -1.0}])
    with pytest.raises(KeyError, match="loop"):
        make_plan({}, np.empty((0, 0)), np.empty(0))


def test_the_columns_of_a_log_are_those_of_the_reference() -> None:
    """Each in the order of the reference, and every line of the reference is there for a reason."""
    delayed = {"flow": {"range": [-1, 1], "delay": "2 ms"}}
    rig = bench_rig({"outputs": {}, "loop": {"reactions": 1, "playouts": 1}, "inputs": delayed})
    patterns = [name for name, _ in column_reference()]
    kinds = [next(p for p in patterns if matches(name, p)) for name in rig.layout.names]
    places = [patterns.index(kind) for kind in kinds]
    assert kinds[: RowHeader.cells()] == list(RowHeader.names())
    lacking = ("actuator.", "cylinder.", "motor.", "output", "limit.")
    assert set(patterns) - set(kinds) <= {pattern for pattern in patterns if pattern.startswith(lacking)}
    assert places[: RowHeader.cells()] == sorted(places[: RowHeader.cells()])
    assert unit_of_column("valve.main.flow_virtual") == unit_of_column("valve.main.flow_expected") == "m^3/s"
    assert unit_of_column("port.A") == "Pa"
    assert unit_of_column("channel.p_A") == ""  # that of the channel
    row = first_row(rig.layout, rig.plan, rig.packed)
    assert valve_state(rig.plan, row, 0).gain_PA == row[rig.layout.column("valve.main.gain_PA")] == 1.0


def test_all_tables_of_the_plan_are_declared_once() -> None:
    assert ("block", *plan_module.TABLES, "kalman", "design") == Plan._fields
