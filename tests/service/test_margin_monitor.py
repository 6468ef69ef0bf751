"""Margins before arming and demands while it runs, as the server tells them."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, lift, of_valves
from service_harness import Panel, Server, panel
from slow_lift import slow_lift

from hilserver.margins.margins import margins
from hilserver.numerics.arrays import Floats
from hilserver.protocol import published
from hilserver.protocol.driven import Utilisation
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.service import margin_monitor
from hilserver.service.margin_monitor import PENDING, MarginMonitor, status_of
from hilserver.service.running_circuit import RunningCircuit
from hilserver.service.strategies import Present
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.utilisation import UtilisationMeter
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Mode
from hilserver.tick.row import header, headers

pytestmark = pytest.mark.slow

# --- demands ----------------------------------------------------------------------------------------------------------

FULL = 60 / 6e4 * np.sqrt(80 / 35)
"""m³/s: what the lift rig's valves, 60 l/min at 35 bar, pass at full command and a drop of 80 bar."""


@pytest.fixture(scope="module")
def rig() -> Rig:
    return lift()


def rows_of(rig: Rig, flows: list[float], first_tick: int = 1, **values: float) -> Floats:
    """Rows of a running rig with 130 bar in port A, a supply of 210 and a tank of 50 bar; ``flows`` into port A."""
    rows = np.tile(first_row(rig.layout, rig.plan, rig.packed), (len(flows), 1))
    given = {"channel.p_A": 130e5, "channel.p_S": 210e5, "channel.p_T": 50e5}
    given |= {name.replace("__", "."): value for name, value in values.items()}
    for name, value in given.items():
        rig.layout.values(rows, name)[:] = value
    headers(rows)["mode"], headers(rows)["tick"] = Mode.RUNNING, first_tick + np.arange(len(flows))
    rows[:, rig.layout.column("valve.A.flow_virtual")] = flows
    return rows


def test_flow_utilisation_is_the_largest_share_by_direction_since_the_last_state(rig: Rig) -> None:
    demands = UtilisationMeter(rig)
    demands.add(rows_of(rig, [0.0, 0.3 * FULL, 0.25 * FULL]))
    demands.add(rows_of(rig, [-1.2 * FULL, 0.1 * FULL], first_tick=4))
    found = demands.take()["A"]
    assert (found.flow_to_port, found.flow_to_tank) == pytest.approx((0.3, 1.2))
    assert demands.take() == {"A": Utilisation(), "B": Utilisation()}


def test_speed_utilisation_is_the_share_of_what_spool_and_slew_allow(rig: Rig) -> None:
    """The lift rig's spool reaches 230.5 full strokes per second (omega 503 1/s, d 0.7), its slew limit allows 400."""
    demands = UtilisationMeter(rig)
    demands.add(rows_of(rig, [0.0, 0.1 * FULL]))
    demands.add(rows_of(rig, [-0.1 * FULL], first_tick=4))  # two ticks later
    found = demands.take()["A"]
    assert found.speed_to_port == pytest.approx(0.1 / 1e-3 / 230.5, rel=1e-3)
    assert found.speed_to_tank == pytest.approx(0.2 / 2e-3 / 230.5, rel=1e-3)
    slow = lift(of_valves(slew="100 1/s"))
    demands = UtilisationMeter(slow)
    demands.add(rows_of(slow, [0.0, 0.1 * FULL]))
    assert demands.take()["A"].speed_to_port == pytest.approx(1.0)


def test_a_flow_without_a_drop_is_not_possible(rig: Rig) -> None:
    demands = UtilisationMeter(rig)
    demands.add(rows_of(rig, [1e-4, -1e-4], channel__p_A=220e5))
    found = demands.take()["A"]
    assert found.payload().startswith(b'{"flow_to_port":null,')
    assert found.flow_to_tank == pytest.approx(0.1 / (60 / 6e4 * np.sqrt(170 / 35) / 1e-3))


@pytest.mark.parametrize(
    "other", [{"valve.A.strategy": Strategy.manual}, {"mode": Mode.ARMED}], ids=["by hand", "armed"]
)
def test_no_utilisation_outside_running_and_with_manual(rig: Rig, other: Mapping[str, float]) -> None:
    rows = rows_of(rig, [0.5 * FULL, -0.5 * FULL])
    for name, value in other.items():
        rig.layout.values(rows, name)[:] = value
    demands = UtilisationMeter(rig)
    demands.add(rows)
    assert demands.take()["A"] == Utilisation()


# --- monitor ---------------------------------------------------------------------------------------------------------


class Bench:
    """An monitor over a ring of rows without a loop, and all that it publishes and tells."""

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.rig, self.memory = rig, memory
        self.running = RunningCircuit(rig.circuit, rig.packed, 1, None)
        self.monitor = MarginMonitor(rig, program(), TelemetryReader(rig, memory), lambda: self.running)
        self.published: list[published.MarginStatus] = []
        self.told: list[str] = []
        self._new = asyncio.Event()
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        header(self.row).mode = Mode.SAFE

    def publish(self, message: published.MarginStatus) -> None:
        self.published.append(message)
        self._new.set()

    def show(self, **values: float) -> None:
        """A row as the loop publishes it, all channels sampled."""
        for name in self.rig.settings.channels:
            self.row[self.rig.layout.column(f"stale.{name}")] = 0.0
        for name, value in values.items():
            self.rig.layout.values(self.row, name.replace("__", "."))[...] = value
        header(self.row).tick += 1
        self.memory.ring.publish(self.row)

    async def until(self, condition: Callable[[published.MarginStatus], bool]) -> published.MarginStatus:
        """What is published next for which this holds."""
        start = len(self.published)
        async with asyncio.timeout(600):  # on a busy machine
            while not any(map(condition, self.published[start:])):
                self._new.clear()
                await self._new.wait()
        return next(filter(condition, self.published[start:]))

    def go(self, work: Callable[[], Awaitable[None]]) -> None:
        """Let the monitor run while ``work`` goes on."""

        async def both_of_them() -> None:
            keeping = asyncio.create_task(self.monitor.keep(self.publish, self.told.append))
            try:
                await work()
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})

        asyncio.run(both_of_them())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Of the lift rig with a valve that is too small at port A, and a strategy there that is too late."""
    monkeypatch.setattr(margin_monitor, "LOOK", 0.02)
    small = {"nominal_flow": {"flow": "20 l/min"}, "bridge": {"strategy": "inverse_static"}}
    rig = lift({"rig": {"valves": {"A": small}}})
    with LoopMemory.create(tmp_path / "segment", row_width=rig.layout.width, ring_rows=1000, mailbox_slots=4) as memory:
        yield Bench(rig, memory)


def test_an_undersized_valve_is_reported_before_arming(bench: Bench) -> None:
    async def work() -> None:
        bench.show(channel__p_S=210e5)
        assert bench.monitor.warnings() == (PENDING,)
        found = await bench.until(lambda each: each.calculated)
        assert bench.published[0] == published.MarginStatus(calculated=False, version=1)
        assert found.supply == {"A": 210e5, "B": 210e5}
        assert found.strategies == {"A": "inverse_static", "B": "feedback"}
        assert found.warnings == bench.monitor.warnings()
        texts = "\n".join(found.warnings)
        assert "valves.A: P to port, the virtual circuit requests" in texts
        assert "valves.A: port to T, the virtual circuit requests" in texts
        assert "with its supply of 210 bar" in texts
        assert "valves.B" not in texts
        assert "with strategy inverse_static the delay of the real flow is" in texts
        assert "with strategy feedback" not in texts
        assert [(each.valve, each.margin is not None and each.margin < 1.0) for each in found.capacity] == [
            ("A", True), ("A", True), ("B", False), ("B", False)
        ]  # fmt: skip
        assert bench.told == list(found.warnings)

    bench.go(work)


def test_a_device_that_is_too_slow_prevents_arming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margin_monitor, "LOOK", 0.02)
    rig = slow_lift(20, "feedback")
    with LoopMemory.create(tmp_path / "segment", row_width=rig.layout.width, ring_rows=1000, mailbox_slots=4) as memory:
        bench = Bench(rig, memory)

        async def work() -> None:
            bench.show(channel__p_S=140e5)
            assert bench.monitor.refusals() == ()  # nothing is known yet
            await bench.until(lambda each: each.calculated)
            (text,) = bench.monitor.refusals()
            assert text.startswith("rig (20 Hz) is too slow for this circuit: with strategy feedback")

        bench.go(work)


def test_margins_are_updated_after_a_switch_and_at_another_supply_but_not_while_running(bench: Bench) -> None:
    async def work() -> None:
        bench.show(channel__p_S=2e5)
        off = await bench.until(lambda each: each.calculated)
        assert "with its supply of 2 bar" in "\n".join(off.warnings)
        bench.show(channel__p_S=210e5)
        on = await bench.until(lambda each: each.calculated and each.supply["B"] == 210e5)
        assert not any("valves.B" in text for text in on.warnings)
        bench.show(mode=Mode.RUNNING, channel__p_S=150e5)
        await asyncio.sleep(0.1)
        assert bench.published[-1] == on
        small = {"components": {"main_valve": {"nominal_flow": {"flow": "10 l/min"}}}}
        other = lift({"circuit": small})
        bench.running = RunningCircuit(other.circuit, other.packed, 2, None)
        assert bench.monitor.warnings() == (PENDING,)
        switched = await bench.until(lambda each: each.calculated and each.version == 2)
        assert switched.supply["A"] == 150e5
        assert switched.capacity[0].needed < 0.5 * on.capacity[0].needed

    bench.go(work)


def test_another_strategy_gives_other_warnings_without_recalculation(bench: Bench) -> None:
    async def work() -> None:
        bench.show(channel__p_S=210e5)
        before = await bench.until(lambda each: each.calculated)
        bench.show(valve__A__strategy=Strategy.prediction)
        after = await bench.until(lambda each: each.strategies.get("A") == "prediction")
        assert all(each.calculated for each in bench.published[1:])
        assert after.delay == before.delay
        assert any("inverse_static" in text for text in before.warnings)
        assert not any("with strategy" in text for text in after.warnings)

    bench.go(work)


def test_a_shutdown_does_not_wait_for_the_margins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, begun = [], threading.Event()

    def endless(rig: Rig, *arguments: Any) -> None:
        try:
            while True:
                begun.set()
                arguments[-1]()
        finally:
            ended.append(rig)

    async def work() -> None:
        bench.show()
        await asyncio.to_thread(begun.wait, 10.0)

    monkeypatch.setattr(margin_monitor, "margins", endless)
    bench.go(work)  # comes back: the thread has ended too
    assert len(ended) == 1
    assert bench.told == []


def test_a_circuit_without_calculable_margins_runs_nevertheless(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise np.linalg.LinAlgError("Singular matrix")

    async def work() -> None:
        bench.show()
        found = await bench.until(lambda each: each.calculated)
        assert found.unknown == "the margins could not be calculated: Singular matrix"
        assert bench.monitor.warnings() == (found.unknown,)

    monkeypatch.setattr(margin_monitor, "margins", broken)
    bench.go(work)


def test_published_margins_are_the_calculated_ones(rig: Rig) -> None:
    """Infinite margins are null, as of a valve at which nothing is asked for; the message survives the way."""
    still = lift(both({"circuit": {"components": {"main_valve": {"ports": {"A": "plug"}}}}}, _PLUG))
    found = margins(still, program())
    message = status_of(
        margin_monitor.MarginResult(3, {"A": None, "B": 210e5}, found), Present({"A": "feedback", "B": "feedback"}, {})
    )
    assert published.MarginStatus.model_validate_json(message.payload()) == message
    nothing = [each for each in message.capacity if each.valve == "A"]
    assert [(each.margin, each.at) for each in nothing] == [(None, None), (None, None)]
    assert message.rate == tuple(
        published.RateMargin(**dataclasses.asdict(each)) for each in found.capacity.frequencies
    )


_PLUG = {"circuit": {"components": {"plug": {"type": "volume", "ports": {"P": "plug"}, "volume": "0.1 l"}}}}


# --- a real server ----------------------------------------------------------------------------------------------------


@pytest.mark.realtime
def test_a_server_publishes_margins_before_arming_and_the_utilisation(tmp_path: Path) -> None:
    small = {"nominal_flow =": 'nominal_flow = { flow = "20 l/min", drop = "35 bar", per = "edge" }'}
    with Server(tmp_path, changes=small) as server:

        async def work() -> None:
            async with panel(server) as user:
                await arm_and_run(user)

        asyncio.run(work())
        assert "Traceback" not in server.stderr


async def arm_and_run(user: Panel) -> None:
    found = await user.see("margins", lambda each: each["calculated"], within=60.0)
    assert any("valves.main: P to port, the virtual circuit requests" in text for text in found["warnings"])
    armed = await user.do("arm")
    of_margins, said = user.all("margins")[-1]["warnings"], armed["result"]["warnings"]
    assert said[: len(of_margins)] == of_margins
    assert all(text.startswith("virtual commissioning: ") for text in said[len(of_margins) :])
    await user.do("start")
    await user.do("set_input", input="joystick", value=1.0)
    state = await user.see("state", lambda each: each["utilisation"]["main"]["flow_to_port"] > 1.0)
    assert state["utilisation"]["main"]["speed_to_port"] > 0.0
    await user.do("switch", component="main_valve", set={"nominal_flow.flow": "10 l/min"})
    again = await user.see("margins", lambda each: each["calculated"] and each["version"] == 2, within=60.0)
    assert not any("valves.main: P to port" in text for text in again["warnings"])
    assert state["strategies"] == {"main": "feedback"}
    await user.do("strategy", valve="main", strategy="manual")
    await user.see("state", lambda each: each["strategies"] == {"main": "manual"})
