"""The virtual commissioning before arming, by a real server: what drops the load is refused, with the reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lift_bench import lift
from service_harness import CONFIG, PATIENCE, Panel, Server, talk

from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Arm, Command, Disarm, Stop, Trip
from hilserver.rig.build import assemble
from hilserver.rig.plan import first_row
from hilserver.service import arming_check
from hilserver.service.arming_check import STILL_EXAMINED, ArmingCheck, Examined
from hilserver.service.children import Child
from hilserver.service.executor import Executor
from hilserver.service.loop_command import LoopCommand
from hilserver.tick.codes import Mode
from hilserver.tick.row import header
from hilserver.toml import read_toml
from hilserver.virtual_commissioning.request import Findings, Request

NOT_HELD = """
description = "A supply holds chamber A, and B drains: with one servo valve for both ports, the load cannot be held"

[components.tank]
type = "tank"
ports = { T = "tank" }

[components.supply]
type = "pressure_source"
ports = { P = "supply" }
pressure = "76 bar"

[components.feed]
type = "orifice"
ports = { A = "supply", B = "rig.A" }
nominal_flow = { flow = "5 l/min", drop = "1 bar" }

[components.drain]
type = "orifice"
ports = { A = "rig.B", B = "tank" }
nominal_flow = { flow = "1 l/min", drop = "35 bar" }
"""
LIFT = read_toml(CONFIG / "circuits" / "lift.toml")


def with_check(folder: Path, on: str) -> Server:
    """A server whose circuit does not hold the load."""
    (folder / "not_held.toml").write_text(NOT_HELD)
    changes = {"circuit =": f'circuit = "{folder}/not_held.toml"', "virtual_commissioning =": on}
    return Server(folder, changes=changes)


async def armed_at_last(user: Panel) -> Any:
    """Arm as an operator does who is told to try again."""
    while True:
        answer = await user.command("arm")
        if answer["ok"] or STILL_EXAMINED not in answer["problems"]:
            return answer


@pytest.mark.realtime
def test_arming_is_refused_while_the_circuit_does_not_hold_the_load(tmp_path: Path) -> None:
    async def operate(user: Panel) -> None:
        answer = await armed_at_last(user)
        assert not answer["ok"]
        (reason,) = answer["problems"]
        assert "feedback: unfit" in reason
        assert "Drift" in reason
        assert "arming.virtual_commissioning = false" in reason
        state = await user.see("state", lambda state: any("arming is refused" in text for text in state["warnings"]))
        assert state["mode"] == "SAFE"
        await user.do("switch_circuit", circuit=LIFT)
        answer = await armed_at_last(user)
        assert answer["ok"], answer
        await user.see("state", lambda state: not any("arming" in text for text in state["warnings"]), -1)

    with with_check(tmp_path, "virtual_commissioning = true") as server:
        talk(server, operate)
        server.note_children()
        assert "check" not in server.alive()


@pytest.mark.realtime
def test_the_setting_allows_arming_despite_a_refusal(tmp_path: Path) -> None:
    async def operate(user: Panel) -> None:
        await user.do("arm")

    with with_check(tmp_path, "virtual_commissioning = false") as server:
        talk(server, operate)


# --- when it is repeated ----------------------------------------------------------------------------------------------


class Told:
    """A server of which only the present row and circuit are known; examinations are noted and refuse version 1."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = lift()
        self.row: Floats = first_row(self.rig.layout, self.rig.plan, self.rig.packed)
        header(self.row).mode = Mode.SAFE
        self.version = 1
        self.examined: list[Examined] = []
        self.troubles: list[str | None] = []
        self.check = ArmingCheck(
            self.rig,
            cast(Any, SimpleNamespace(latest=lambda: self.row)),
            cast(Any, lambda: SimpleNamespace(version=self.version, circuit=self.rig.circuit)),
            folder,
        )
        monkeypatch.setattr(self.check, "_examine", self.examine)
        monkeypatch.setattr(arming_check, "LOOK", 0.001)
        monkeypatch.setattr(Arm, "patience", 2.0)

    async def examine(self, asked: Examined) -> tuple[Findings, str | None]:
        self.examined.append(asked)
        if asked.version == 1:
            return Findings(("it oscillates",)), "arming is refused"
        return Findings(doubts=("it is inaccurate",)), None

    async def during(self, what: Callable[[], Awaitable[None]]) -> None:
        keeping = asyncio.create_task(self.check.keep(lambda trouble, text: self.troubles.append(trouble)))
        await what()
        keeping.cancel()


def test_a_result_holds_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path, monkeypatch)

    async def operate() -> None:
        assert await told.check.refusals(Arm()) == ("it oscillates",)
        await asyncio.sleep(0.05)
        assert len(told.examined) == 1
        told.version = 2
        assert told.check.doubts() == (), "not of another circuit"
        assert await told.check.refusals(Arm()) == ()
        assert told.check.doubts() == ("it is inaccurate",)
        assert told.troubles == ["arming is refused", None]

    asyncio.run(told.during(operate))


def test_no_check_during_a_run_and_an_unfinished_check_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path, monkeypatch)
    header(told.row).mode = Mode.RUNNING

    async def operate() -> None:
        await asyncio.sleep(0.05)
        assert told.examined == []
        assert await told.check.refusals(Arm()) == (), "the loop says that the rig is already armed"

    asyncio.run(told.during(operate))
    header(told.row).mode = Mode.SAFE
    assert asyncio.run(told.check.refusals(Arm())) == (STILL_EXAMINED,)
    assert asyncio.run(told.check.refusals(Arm(expires=time.time()))) == (STILL_EXAMINED,)


def test_a_failed_check_is_reported_and_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path, monkeypatch)
    monkeypatch.undo()
    monkeypatch.setattr(Arm, "patience", PATIENCE)
    monkeypatch.setattr(Request, "write", lambda request, file: file.write_text("no request"))

    async def operate() -> None:
        assert await told.check.refusals(Arm()) == ()

    asyncio.run(told.during(operate))
    (trouble,) = told.troubles
    assert trouble is not None
    assert "failed, so nothing is refused: the check before arming ended before it was ready" in trouble
    assert told.check.doubts() == (trouble,)


def test_that_nothing_could_be_examined_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the piston's end no case can be judged: it was armed without a word."""
    told = Told(tmp_path, monkeypatch)
    at_end = {"devices": {"rig": {"machine": {"nodes": {"rod": {"position": "0 m"}}}}}}
    sources = dict(lift(at_end).sources)
    sources.pop("cycle")
    told.rig = told.check._rig = assemble(
        {**sources, "rig": {k: v for k, v in sources["rig"].items() if k != "cycle"}}, told.rig.file, told.rig.library
    )
    monkeypatch.undo()
    monkeypatch.setattr(Arm, "patience", PATIENCE)

    async def operate() -> None:
        assert await told.check.refusals(Arm()) == ()

    asyncio.run(told.during(operate))
    (text,) = told.check.doubts()
    assert told.troubles == [text]
    assert text.startswith(
        "virtual commissioning: nothing could be examined before arming, so nothing is refused: rod reaches the end of "
        "its stroke in the reference simulation at 0.00 s. "
    )


def test_a_check_that_is_given_up_can_still_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends while the check's process has its answer on the way."""

    class Answering:
        def __init__(self) -> None:
            self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def kill(self) -> None:
            self.ready.set_result({"refusals": [], "doubts": []})

        async def wait_ended(self) -> None:
            pass

    async def start(*_: str) -> Answering:
        return Answering()

    async def operate() -> None:
        check = Told(tmp_path, monkeypatch).check
        monkeypatch.setattr(Child, "start", start)
        asked = Examined(1, ("feedback",), None)
        examining = asyncio.create_task(ArmingCheck._examine(check, asked))
        await asyncio.sleep(0.01)
        examining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await examining

    asyncio.run(operate())


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    rig = lift()
    request = Request(str(rig.file), rig.sources, ("feedback",), 120e5)
    request.write(tmp_path / "request.json")
    found = Request.read(tmp_path / "request.json")
    assert found.strategies == request.strategies
    simulation = found.rig().settings.simulation
    assert simulation.supply_pressure is not None
    assert float(simulation.supply_pressure) == 120e5
    assert found.rig().packed.names == rig.packed.names


# --- stopped during the check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [Trip, Disarm, Stop])
def test_a_stop_during_the_check_is_not_undone_by_arming(stop: type[Command]) -> None:
    async def work() -> None:
        checked, posted = asyncio.Event(), []
        executor = Executor(lift(), cast(Any, None), cast(Any, None), cast(Any, None))

        async def reasons(arm: Arm) -> tuple[str, ...]:
            await checked.wait()
            return ()

        async def post(order: LoopCommand, *, command: Command) -> dict[str, Any]:
            posted.append(command.name)
            return {"tick": 1}

        executor.arming_refusals, executor._post = reasons, post  # type: ignore[assignment, method-assign]
        arming = asyncio.create_task(executor.execute(Arm()))
        await asyncio.sleep(0)
        assert (await executor.execute(stop())).ok
        checked.set()
        assert (await arming).reason == "overtaken by a stop, disarm or trip."
        assert posted == [stop.name]
        assert (await executor.execute(Arm())).ok
        assert posted == [stop.name, "arm"]

    asyncio.run(work())
