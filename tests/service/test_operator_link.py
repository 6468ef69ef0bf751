"""The link to the operator: what counts as lost, who may arm and start, and what a real server does when it is lost."""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pages import only
from service_bench import fastest
from service_harness import Panel, Server, eventually, read_log, talk

from hilserver.client import open_session, request
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Arm, Command, SetInput, Start, Stop
from hilserver.protocol.heartbeat import OperatorHeartbeat
from hilserver.protocol.published import Answer
from hilserver.rig.input_settings import InputSettings
from hilserver.rig.settings import OperatorSettings
from hilserver.sequences.check import SequenceResult
from hilserver.sequences.live import run_live
from hilserver.sequences.model import load_sequence
from hilserver.service.held_inputs import HeldInputs
from hilserver.service.operator_link import OperatorLink
from hilserver.service.silence import LOOK, SilenceTimer
from hilserver.service.telemetry import TelemetryReader
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

# --- the rules, without a server --------------------------------------------------------------------------------------


def link(**settings: Any) -> OperatorLink:
    telemetry = cast("TelemetryReader", SimpleNamespace(troubles={}))

    async def execute(command: Command) -> Answer:
        raise AssertionError(command)

    rules = OperatorSettings(require="client", **settings)
    return OperatorLink(rules, telemetry, lambda: (1, "broker"), execute, lambda _: None)


def beat(client: str, connection: str = "1", *, lost: bool = False) -> bytes:
    return OperatorHeartbeat(client=client, connection=connection, lost=lost).payload()


def test_only_a_client_with_a_heartbeat_may_arm_and_start() -> None:
    operators = link()
    assert "requires the heartbeat of its operator" in (operators.refusal(Arm()) or "")
    assert operators.refusal(Start(client="anna")) == 'client: no heartbeat of "anna" within the last 2 s.'
    operators.hear(b"nonsense")
    operators.hear(beat("anna"))
    assert operators.refusal(Start(client="anna")) is None
    assert operators.refusal(Start(client="bert")) is not None
    assert operators.refusal(Stop()) is None
    operators.hear(beat("anna", lost=True))
    assert operators.refusal(Arm(client="anna")) is not None


def test_the_last_will_of_an_older_connection_does_not_count() -> None:
    operators = link()
    operators.hear(beat("anna", "1"))
    operators.take_over(Start(client="anna"))
    operators.hear(beat("anna", "2"))
    operators.hear(beat("anna", "1", lost=True))
    assert operators._lost() == ""
    operators.hear(beat("anna", "2", lost=True))
    assert operators._lost() == 'the connection of "anna" has ended'


def test_the_operator_is_who_started_last() -> None:
    operators = link()
    for name in ("anna", "bert"):
        operators.hear(beat(name))
        operators.take_over(Start(client=name))
    operators.hear(beat("anna", lost=True))
    assert (operators.client, operators._lost()) == ("bert", "")


def test_many_names_cost_no_memory_and_do_not_hide_the_operator() -> None:
    operators = link()
    operators.hear(beat("anna"))
    operators.take_over(Start(client="anna"))
    for number in range(1000):
        operators.hear(beat(f"client {number}"))
    assert len(operators._clients) <= 100
    assert operators._lost() == ""


def test_a_pause_of_the_whole_machine_does_not_count_as_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hilserver.service.silence.time.monotonic", lambda: now)
    silence = SilenceTimer()
    assert silence.update(1) == 0.0
    now += 3600.0
    assert silence.update(1) == 2 * LOOK
    for _ in range(10):
        now += LOOK
        silence.update(1)
    assert silence.seconds == pytest.approx(12 * LOOK)
    assert silence.update(2) == 0.0


def test_an_input_returns_to_rest_unless_it_is_renewed() -> None:
    sent: list[Command] = []

    async def execute(command: Command) -> Answer:
        sent.append(command)
        return command.answer(time=0.0)

    async def work() -> None:
        inputs = {"held": InputSettings(hold_to_run="0.3 s", initial=0.1), "free": InputSettings()}
        held = HeldInputs(inputs, execute)
        held.follow(SetInput(input="free", value=0.5))
        began = time.monotonic()
        while time.monotonic() < began + 0.8:
            held.follow(SetInput(input="held", value=0.5))
            await asyncio.sleep(0.02)
        assert time.monotonic() > began + 5.0 or sent == []  # a machine that pauses renews too late
        await asyncio.sleep(0.6)
        assert sent[-1:] == [SetInput(input="held", value=0.1)]
        held.end()

    asyncio.run(work())


# --- a real server ----------------------------------------------------------------------------------------------------

LOST_AFTER = 1.0


@contextmanager
def served(folder: Path, changes: dict[str, str] | None = None, **operator: str) -> Iterator[Server]:
    """A server whose table ``operator`` has these values."""
    table = {"lost_after": f"{LOST_AFTER} s", **operator}
    lines = {f"{key} =": f'{key} = "{value}"' for key, value in table.items()}
    with Server(folder, changes={**lines, **(changes or {})}) as server:
        server.note_children()
        yield server


async def be_running(user: Panel) -> None:
    await user.run_cycle()
    await user.see("state", lambda state: state["mode"] == "RUNNING")


def mode_now(server: Server) -> int:
    memory = server.memory
    row = np.empty(memory.ring.width)
    memory.ring.latest(row)
    return int(header(row).mode)


async def stopped_within(server: Server, ending: Mode, since: float) -> float:
    """Wait until the mode is this; returns the time since ``since``, s."""
    await asyncio.to_thread(eventually, lambda: mode_now(server) == ending)
    return time.monotonic() - since


def assert_ramped_to_null(server: Server) -> None:
    table = read_log(server.logs[0])
    command, mode = table.columns["valve.main.command"], table.columns["mode"]
    left = int(np.flatnonzero(mode == Mode.RUNNING)[-1])
    assert fastest(table) <= 1 + 1e-12
    assert command[left:].min() <= 0.0 <= command[left:].max(), "it has been at null"


def end(server: Server) -> None:
    server.kill("supervisor", number=signal.SIGTERM)
    assert server.wait_exit() == 0
    assert server.leaves() == []
    assert "Traceback" not in server.stderr


@pytest.mark.realtime
@pytest.mark.parametrize(("action", "ending"), [("ramp", Mode.SAFE), ("trip", Mode.FAULT)])
def test_without_the_broker_the_rig_stops_and_a_person_must_start_it_again(
    tmp_path: Path, action: str, ending: Mode
) -> None:
    async def work(user: Panel) -> None:
        await be_running(user)
        server.kill("broker", number=signal.SIGSTOP)
        try:
            took = await stopped_within(server, ending, time.monotonic())
        finally:
            server.kill("broker", number=signal.SIGCONT)
        print(f"broker hangs, {action}: {took:.2f} s")
        event = await user.see("event", lambda event: event["text"].startswith("operator lost: no answer from"))
        assert event["kind"] == "warning"
        state = await user.see("state", lambda state: state["mode"] == ending.name)
        state = await user.see("state", lambda state: event["text"] in state["warnings"])
        await asyncio.sleep(1.0)
        assert mode_now(server) == ending, "it does not start by itself"
        if action == "trip":
            assert state["fault"].startswith("operator lost: no answer from the MQTT broker")
            await user.do("reset")
            await user.see("state", lambda state: state["mode"] == "SAFE", len(user.seen))
        start = len(user.seen)
        await be_running(user)
        state = await user.see("state", lambda state: state["mode"] == "RUNNING", start)
        assert not [text for text in state["warnings"] if "operator" in text]

    with served(tmp_path, action=action) as server:
        talk(server, work)
        end(server)
        assert_ramped_to_null(server)


@pytest.mark.realtime
def test_a_rig_that_requires_no_operator_keeps_running(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        await be_running(user)
        server.kill("broker", number=signal.SIGSTOP)
        await asyncio.sleep(3 * LOST_AFTER)
        assert mode_now(server) == Mode.RUNNING
        server.kill("broker", number=signal.SIGCONT)

    with served(tmp_path, require="none") as server:
        talk(server, work)


SCRIPT = """
import sys, time
from hilserver.client import connect
rig, broker, wait, hangs_after = sys.argv[1:]
with connect(rig, broker, hangs_after=float(hangs_after)) as rig:
    rig.arm()
    rig.start()
    print("running", flush=True)
    time.sleep(float(wait))
"""


@contextmanager
def script(server: Server, wait: float = 600.0, hangs_after: float = 600.0) -> Iterator[subprocess.Popen[str]]:
    """A program of an operator that has armed and started the rig."""
    arguments = (server.name, f"127.0.0.1:{server.port}", str(wait), str(hangs_after))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "running\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.realtime
def test_a_rig_whose_operator_is_gone_stops(tmp_path: Path) -> None:
    async def lost(
        user: Panel, how: Callable[[subprocess.Popen[str]], None], reason: str, wait: float, hangs_after: float = 600.0
    ) -> None:
        with script(server, wait, hangs_after) as program:
            state = await user.see("state", lambda state: state["mode"] == "RUNNING", len(user.seen))
            assert state["operator"].startswith("client on ")
            if wait > LOST_AFTER:
                await asyncio.sleep(1.5 * LOST_AFTER)
                assert mode_now(server) == Mode.RUNNING
            start, since = len(user.seen), time.monotonic()
            how(program)
            print(f"{how.__name__}: {await stopped_within(server, Mode.SAFE, since):.2f} s")
            event = await user.see("event", lambda event: event["text"].startswith("operator lost:"), start)
            assert reason in event["text"]
            assert state["operator"] in event["text"]

    def kill(program: subprocess.Popen[str]) -> None:
        program.kill()

    def hang(program: subprocess.Popen[str]) -> None:
        program.send_signal(signal.SIGSTOP)

    def wait_forever(program: subprocess.Popen[str]) -> None:
        """As it does anyway; its connection sends on."""

    def finish(program: subprocess.Popen[str]) -> None:
        program.wait(60.0)

    async def work(user: Panel) -> None:
        answer = await user.command("arm")
        assert "requires the heartbeat of its operator" in answer["reason"]
        address = BrokerAddress(port=server.port)
        assert "use the panel" in ((await request(address, server.name, Arm())).reason or "")
        await lost(user, kill, "has ended; ramped to null, SAFE; arm and start again", 600.0)
        await lost(user, hang, "no heartbeat of", 600.0)
        await lost(user, wait_forever, "no heartbeat of", 600.0, hangs_after=3.0 * LOST_AFTER)
        await lost(user, finish, "has ended", 0.5)

    with served(tmp_path, require="client") as server:
        talk(server, work)
        end(server)
        assert_ramped_to_null(server)


@pytest.mark.realtime
def test_the_last_who_started_is_the_operator_and_the_first_may_go(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        async with open_session(address, server.name, operator="second") as second:
            with script(server):
                await second.request(Stop())
                answer = await second.request(Start())
                assert answer.ok, answer
                state = await user.see("state", lambda state: (state["operator"] or "").startswith("second on "))
                assert state["mode"] == "RUNNING"
            await asyncio.sleep(2 * LOST_AFTER)
            assert mode_now(server) == Mode.RUNNING
        await stopped_within(server, Mode.SAFE, time.monotonic())

    with served(tmp_path, require="client") as server:
        address = BrokerAddress(port=server.port)
        talk(server, work)


@pytest.mark.realtime
def test_a_hold_to_run_input_of_a_rig_returns_to_rest(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        description = await user.see("description")
        assert description["inputs"]["joystick"]["hold_to_run"] == 0.5
        await user.do("arm")
        await user.do("start")
        for _ in range(20):
            await user.do("set_input", input="joystick", value=0.3)
            await asyncio.sleep(0.05)
        start = len(user.seen)
        await user.see("state", lambda state: state["target"]["input.joystick"] == 0.3)
        await user.see("state", lambda state: state["target"]["input.joystick"] == 0.0, start)
        assert mode_now(server) == Mode.RUNNING

    with served(tmp_path, {"[inputs.joystick]": '[inputs.joystick]\nhold_to_run = "0.5 s"'}) as server:
        talk(server, work)


@pytest.mark.realtime
def test_the_heartbeat_of_the_page_is_taken(tmp_path: Path) -> None:
    block = only("tested: tests/service/test_operator_link.py::test_the_heartbeat_of_the_page_is_taken")
    beat, arm, last = block.text.splitlines()
    with served(tmp_path, require="client", lost_after="20 s") as server:

        def run(line: str) -> None:
            line = line.replace("hil/lab/", f"hil/{server.name}/")
            subprocess.run([*shlex.split(line), "-q", "1", "-p", str(server.port)], check=True, timeout=60)

        talk(server, lambda user: user.see("description"))  # it takes commands
        run(beat)
        run(arm)
        eventually(lambda: mode_now(server) == Mode.ARMED)
        run(last)
        eventually(lambda: mode_now(server) == Mode.SAFE)


@pytest.mark.realtime
def test_a_sequence_is_an_operator_and_holds_its_inputs(tmp_path: Path) -> None:
    file = tmp_path / "hold.toml"
    file.write_text(SEQUENCE)
    changes = {"[inputs.joystick]": '[inputs.joystick]\nhold_to_run = "2 s"'}
    with served(tmp_path, changes, require="client", lost_after="5 s") as server:
        address = BrokerAddress(port=server.port)

        async def work() -> SequenceResult:
            async with open_session(address, server.name, telemetry=True, operator="test sequence") as session:
                return await run_live(load_sequence(file), session)

        done = asyncio.run(work())
        assert done.ok, done.verdicts
        eventually(lambda: mode_now(server) == Mode.SAFE)


SEQUENCE = """
[[step]]
at = "0 s"
send = "arm"

[[step]]
at = "0.2 s"
send = "start"

[[step]]
at = "0.4 s"
send = "set_input"
input = "joystick"
value = 0.1

[[step]]
at = "6 s"
send = "stop"

[[expect]]
channel = "input.joystick"
at = "2 s"
delay = "1 s"
until = "5.5 s"
value = 0.1
tolerance = 0.001
"""
