"""How punctual a loop was: figures of its rows, of any number of them; what the server says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hilserver.cli.status import timing_summary, timing_table
from hilserver.numerics.arrays import Floats
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.timing import Distribution, LoopTiming, wake_up_delay, work_before
from hilserver.rig.build import load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.service.descriptions import channel_descriptions
from hilserver.service.telemetry import TelemetryReader
from hilserver.tick.row import COLUMN, TIMES, header

# --- distributions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 7])
def test_figures_are_those_of_all_durations(batches: int) -> None:
    durations = np.random.default_rng(3).lognormal(np.log(2e-5), 1.0, 20_000)
    distribution = Distribution()
    for part in np.array_split(durations, batches):
        distribution.add(part)
    figures = distribution.figures()
    assert figures is not None
    assert (figures.count, figures.min, figures.max) == (20_000, durations.min(), durations.max())
    assert figures.mean == pytest.approx(durations.mean(), rel=1e-12)
    in_order = np.sort(durations)
    for found, rank in ((figures.median, 10_000), (figures.p99, 19_800), (figures.p999, 19_980)):
        assert found == pytest.approx(in_order[rank - 1], rel=0.01), rank


def test_percentiles_of_few_durations_are_among_them() -> None:
    distribution = Distribution()
    distribution.add(np.array([3e-6]))
    assert distribution.percentile(50) == distribution.percentile(99.9) == 3e-6
    distribution.add(np.array([5e-3]))
    assert distribution.percentile(50) == pytest.approx(3e-6, rel=0.01)
    assert distribution.percentile(51) == pytest.approx(5e-3, rel=0.01)


def test_durations_of_any_length_are_taken() -> None:
    distribution = Distribution()
    distribution.add(np.array([0.0, 1e-12, 1e6]))
    figures = distribution.figures()
    assert figures is not None
    assert (figures.count, figures.min, figures.max) == (3, 0.0, 1e6)
    assert figures.median <= 1.01e-8


def test_without_durations_there_are_no_figures() -> None:
    distribution = Distribution()
    distribution.add(np.empty(0))
    assert distribution.figures() is None
    assert np.isnan(distribution.percentile(50))


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


def rows_of(rig: Rig, *ticks: tuple[int, float, float]) -> Floats:
    """Rows of ticks with (ticks missed before, wake-up error, work of the tick before): the work in equal parts."""
    row, rows = first_row(rig.layout, rig.plan, rig.packed), []
    for missed, wake_error, work in ticks:
        header(row).tick += missed + 1
        header(row).missed, header(row).wake_error = missed, wake_error
        row[[COLUMN[name] for name in TIMES]] = work / 4
        rows.append(row.copy())
    return np.array(rows)


def test_a_tick_is_late_by_its_missed_ticks_too(rig: Rig) -> None:
    rows = rows_of(rig, (0, 2e-5, 0.0), (3, 4e-5, 8e-5))
    assert wake_up_delay(rows, 1e-3) == pytest.approx([2e-5, 3.04e-3])
    assert work_before(rows) == pytest.approx([0.0, 8e-5])


def test_a_run_is_judged_by_its_worst_tick(rig: Rig) -> None:
    """Time-synchronisation error and minimum step as in Gao & Li (docs/theory.md, section 7)."""
    timing = LoopTiming(1e-3)
    timing.add(rows_of(rig, (0, 2e-5, 0.0), (0, 3e-5, 8e-5), (2, 1e-5, 2.4e-3)))
    timing.add(rows_of(rig, (0, 1e-5, 4e-5)))
    assert timing.time_sync_error == pytest.approx(2.01e-3)
    assert timing.minimum_step == pytest.approx(2.4e-3)
    assert timing.work.count == 3  # the first row knows of no tick before it
    assert timing.wake_up.count == 4
    compute = timing.parts["compute"].figures()
    assert compute is not None
    assert (compute.min, compute.max) == pytest.approx((1e-5, 0.6e-3))


# --- what the server says ---------------------------------------------------------------------------------------------


@pytest.fixture
def memory(rig: Rig, tmp_path: Path) -> Iterator[LoopMemory]:
    path = tmp_path / "segment"
    with LoopMemory.create(path, row_width=rig.layout.width, ring_rows=100, mailbox_slots=4) as memory:
        yield memory


def publish(memory: LoopMemory, rows: Floats) -> None:
    for row in rows:
        memory.ring.publish(row)


def test_state_has_the_figures_since_the_start(rig: Rig, memory: LoopMemory) -> None:
    reader = TelemetryReader(rig, memory)
    assert reader.loop_status() is None
    rows = rows_of(rig, (0, 2e-5, 0.0), (1, 3e-5, 8e-5), (0, 2e-5, 4e-5))
    publish(memory, rows)
    reader.read()
    state = reader.state(rows[-1], 0)
    assert state.missed_ticks == 1
    assert state.timing["wake_up_max"] == pytest.approx(1.03e-3)
    assert state.loop is not None
    assert state.loop.period == 1e-3
    assert state.loop.wake_up.count == 3
    assert state.loop.work is not None
    assert state.loop.work.mean == pytest.approx(6e-5)
    assert set(state.loop.parts) == {"read", "compute", "write", "publish"}
    assert (state.loop.time_sync_error, state.loop.minimum_step) == pytest.approx((1.03e-3, 8e-5))


def test_unread_ticks_are_not_counted_as_missed(rig: Rig, memory: LoopMemory) -> None:
    reader = TelemetryReader(rig, memory)
    publish(memory, rows_of(rig, *[(0, 1e-5, 2e-5)] * 150, (4, 1e-5, 2e-5), *[(0, 1e-5, 2e-5)] * 120))
    rows = reader.read()
    assert len(rows) < 271  # the ring has room for 100
    assert reader.missed == 4


def test_every_peak_between_two_telemetry_samples_is_kept(rig: Rig, memory: LoopMemory) -> None:
    """At 1 kHz and 50 Hz a sample stands for 20 ticks, wherever a batch of rows ends."""
    reader = TelemetryReader(rig, memory)
    ticks = [(0, 1e-5, 2e-5)] * 60
    ticks[5], ticks[33], ticks[50] = (0, 7e-5, 2e-5), (0, 1e-5, 9e-5), (2, 3e-5, 2e-5)
    rows = rows_of(rig, *ticks)
    seen: dict[str, list[float | None]] = {"loop.wake_up": [], "loop.work": [], "loop.missed": []}
    for batch in np.split(rows, [10, 35]):
        publish(memory, batch)
        telemetry = reader.samples.batch(reader.read())
        for name, values in seen.items():
            values += telemetry.channels[name] if telemetry is not None else ()
    assert seen["loop.wake_up"] == pytest.approx([1e-5, 7e-5, 1e-5, 2.03e-3])
    assert seen["loop.work"] == pytest.approx([2e-5, 2e-5, 9e-5, 2e-5])
    assert seen["loop.missed"] == [0.0, 0.0, 0.0, 2.0]
    assert set(seen) <= set(channel_descriptions(rig))


def test_status_shows_them_in_microseconds(rig: Rig, memory: LoopMemory) -> None:
    reader = TelemetryReader(rig, memory)
    publish(memory, rows_of(rig, (0, 2e-5, 0.0), (1, 3e-5, 8e-5)))
    reader.read()
    status = reader.loop_status()
    assert status is not None
    console = Console(width=200)
    with console.capture() as shown:
        console.print(timing_table(status))
    lines = shown.get().splitlines()
    assert [line.split()[0] for line in lines if line.strip()][1:7] == [
        "wake-up",
        "work",
        "read",
        "compute",
        "write",
        "publish",
    ]
    assert "1030.0" in lines[1]
    assert "80.0" in lines[2]
    assert timing_summary(status, reader.missed) == (
        "2 ticks of 1000 µs, 1 missed; time synchronisation error 1030 µs, minimum step 80 µs"
    )
