"""Outputs are confirmed by their devices: refused, lost or falsely answered writes are no safe values.

A servo valve and a pump hang on a real Modbus server that refuses writes while its reads stay good.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modbus_bench import TcpBench
from service_harness import Panel, Server, eventually, read_log, rig_text, talk

from hilserver.tick.codes import Mode

pytestmark = pytest.mark.realtime

MAX_AGE = 1.0
"""s; ample for a busy machine."""
DEVICE = """
[devices.plc]
driver = "modbus"
tcp = {{ host = "127.0.0.1", port = {port} }}
timeout = "0.5 s"
refresh = "0.2 s"
rate = "100 Hz"
hang_time = "{hang_time}"
[devices.plc.inputs.p_A]
table = "input"
address = 0
type = "int16"
[devices.plc.outputs.enable]
table = "coil"
address = 9
safe = 0
[channels.p_plc]
device = "plc"
source = "p_A"
scale = {{ raw = [0, 100], value = ["0 bar", "100 bar"] }}
[outputs.pump]
device = "plc"
output = "enable"
max_age = "{max_age} s"
unconfirmed = "{action}"
raw = [0, 1]
on = "armed"
"""


class Run:
    """The demo's rig, and a pump at a Modbus device."""

    def __init__(self, folder: Path, action: str = "trip", hang_time: str = "2 s") -> None:
        self.bench = TcpBench()
        port = self.bench.settings["tcp"]["port"]
        device = DEVICE.format(port=port, max_age=MAX_AGE, action=action, hang_time=hang_time)
        self.server = Server(folder, text=rig_text("{name}", folder) + device)

    @property
    def pump(self) -> int:
        """The coil in the device."""
        return self.bench.server.get("coil", 9)[0]

    def refuse(self, code: int) -> None:
        """Answer every write with this exception, 0 for none; reads stay good."""
        self.bench.server.do("fault", refusal=code)


@pytest.fixture(params=[{}])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path, **request.param)
    try:
        with made.server:
            yield made
    finally:
        made.bench.close()


async def armed(run: Run, user: Panel) -> None:
    """ARMED, with the pump on."""
    await user.do("arm")
    await asyncio.to_thread(eventually, lambda: run.pump == 1)


def status_code(server: Server) -> int:
    """Exit code of ``hilserver status``."""
    code = "from hilserver.cli import main; main()"
    words = ("status", "--rig", server.name, "--broker", f"127.0.0.1:{server.port}")
    return subprocess.run((sys.executable, "-c", code, *words), capture_output=True, timeout=120).returncode


def another_stand_by(run: Run, before: int) -> bool:
    """Whether a process other than ``before`` stands by."""
    run.server.note_children()
    return run.server.pids.get("stand-by", before) != before


def names_the_pump(state: dict[str, Any]) -> bool:
    return any("output pump is not confirmed by device plc" in text for text in state["unconfirmed"])


def test_a_refused_write_trips_and_safe_is_not_reported_before_the_device_has_its_values(run: Run) -> None:
    async def watch(user: Panel) -> None:
        await armed(run, user)
        start = len(user.seen)
        await asyncio.to_thread(run.refuse, 4)
        fault = await user.see("event", lambda event: event["kind"] == "fault", start)
        assert "device plc does not confirm the command of output pump" in fault["text"]
        state = await user.see("state", names_the_pump, start)
        assert state["mode"] == "FAULT"
        assert "Switch the hydraulic supply off at the machine" in state["unconfirmed"][0]
        assert run.pump == 1  # the coil is still on, which nobody may call safe
        refused = await user.command("reset")
        assert not refused["ok"]
        assert await asyncio.to_thread(status_code, run.server) == 3

        await asyncio.to_thread(run.refuse, 0)
        await asyncio.to_thread(eventually, lambda: run.pump == 0)  # retried without an order
        async with asyncio.timeout(60):
            while not (await user.command("reset"))["ok"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        state = await user.see("state", lambda state: state["mode"] == "SAFE", start)
        assert state["unconfirmed"] == []
        assert await asyncio.to_thread(status_code, run.server) == 0

    talk(run.server, watch)


def test_disarmed_with_a_device_that_refuses_is_not_safe(run: Run) -> None:
    async def watch(user: Panel) -> None:
        await armed(run, user)
        start = len(user.seen)
        await asyncio.to_thread(run.refuse, 4)
        await user.do("disarm")
        state = await user.see("state", lambda state: state["mode"] == "SAFE_NOT_CONFIRMED", start)
        assert names_the_pump(state)
        assert run.pump == 1
        event = await user.see("event", lambda event: event["kind"] == "fault", start)
        assert event["text"].startswith("SAFE NOT CONFIRMED: output pump is not confirmed by device plc for ")
        refused = await user.command("arm")
        assert not refused["ok"]
        assert "does not confirm its safe values" in refused["reason"]

        start = len(user.seen)
        await asyncio.to_thread(run.refuse, 0)
        await asyncio.to_thread(eventually, lambda: run.pump == 0)
        await user.see("state", lambda state: state["mode"] == "SAFE", start)

    talk(run.server, watch)
    run.server.kill("supervisor", number=signal.SIGTERM)
    assert run.server.wait_exit() == 0, run.server.stderr
    columns = read_log(run.server.logs[0]).columns
    late = columns["mode"] == Mode.SAFE_NOT_CONFIRMED
    assert (columns["confirmed_age.output.pump"][late] > MAX_AGE).all()
    assert (columns["confirmed.output.pump"][late] == 1.0).all()
    running = columns["mode"] == Mode.ARMED
    assert (columns["confirmed_age.output.pump"][running] <= MAX_AGE).all()


def test_the_end_of_a_run_is_a_failure_while_a_device_refuses(run: Run) -> None:
    talk(run.server, lambda user: armed(run, user))
    run.refuse(4)
    run.server.kill("supervisor", number=signal.SIGTERM)
    assert run.server.wait_exit() == 1
    assert "device plc did not confirm its safe values" in run.server.stderr
    assert "Switch the hydraulic supply off at the machine" in run.server.stderr


def test_a_lost_device_confirms_nothing(run: Run) -> None:
    """Unplugged in SAFE: the pressure's age limit trips nothing there, but SAFE is not confirmed any more."""

    async def watch(user: Panel) -> None:
        await user.see("state", lambda state: state["mode"] == "SAFE")
        start = len(user.seen)
        await asyncio.to_thread(run.bench.unplug)
        await user.see("state", lambda state: state["mode"] == "SAFE_NOT_CONFIRMED", start)
        start = len(user.seen)
        await asyncio.to_thread(run.bench.plug)
        await user.see("state", lambda state: state["mode"] == "SAFE", start)

    talk(run.server, watch)


@pytest.mark.parametrize("run", [{"hang_time": "10 min"}], indirect=True)
def test_the_stand_by_switches_the_pump_off_while_the_worker_stands_still(run: Run) -> None:
    """Nothing but the trip can be the reason: ``hang_time`` is ten minutes."""

    async def watch(user: Panel) -> None:
        await armed(run, user)
        start = len(user.seen)
        run.server.kill("worker", number=signal.SIGSTOP)
        fault = await user.see("event", lambda event: event["kind"] == "fault", start)
        assert any(text in fault["text"] for text in (".age was violated", "does not confirm the command"))
        await asyncio.to_thread(eventually, lambda: run.pump == 0)

    talk(run.server, watch)


@pytest.mark.parametrize("run", [{"hang_time": "10 min"}], indirect=True)
def test_a_stand_by_that_hangs_is_replaced_and_a_device_that_is_off_is_tried_often(run: Run) -> None:
    """Its ``hang_time`` is none for a process that does not even begin."""

    async def watch(user: Panel) -> None:
        await armed(run, user)
        await asyncio.to_thread(eventually, lambda: another_stand_by(run, 0))
        run.server.kill("stand-by")  # another one is started although nobody needs it yet
        killed = run.server.pids["stand-by"]
        await asyncio.to_thread(eventually, lambda: another_stand_by(run, killed))
        run.server.kill("stand-by", number=signal.SIGSTOP)
        run.server.kill("worker")
        await asyncio.to_thread(eventually, lambda: run.pump == 0)

        await user.see("event", lambda event: "its I/O process runs again" in event["text"])
        start = len(user.seen)
        await asyncio.to_thread(run.bench.unplug)
        await asyncio.to_thread(run.server.note_children)
        run.server.kill("worker")
        await user.see("event", lambda event: "Next attempt in 1 s" in event["text"], start)

    talk(run.server, watch)


@pytest.mark.parametrize("run", [{"action": "warn"}], indirect=True)
def test_action_warn_reports_and_keeps_the_mode(run: Run) -> None:
    async def watch(user: Panel) -> None:
        await armed(run, user)
        start = len(user.seen)
        await asyncio.to_thread(run.refuse, 4)
        state = await user.see("state", names_the_pump, start)
        assert state["mode"] == "ARMED"
        await user.do("disarm")
        await user.see("state", lambda state: state["mode"] == "SAFE_NOT_CONFIRMED", start)

    talk(run.server, watch)
