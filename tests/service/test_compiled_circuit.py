"""The server compiles the circuit that it runs, and the loop takes the code over while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from service_bench import set_in_motion
from service_harness import COMPILED, Panel, Server, eventually, read_log, talk

from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import FILE, compile_for, folder_of
from hilserver.errors import HilserverError
from hilserver.rig.build import load_rig
from hilserver.rig.settings import LoopSettings
from hilserver.service import compiled_circuit
from hilserver.service.compiled_circuit import CompiledCircuit, may_take_over
from hilserver.service.executor import Executor
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import command_in

CONFIG = Path(__file__).parents[2] / "config"


class Rig:
    """What the loop runs, and what it was told to use."""

    def __init__(self) -> None:
        self.circuit: Any = SimpleNamespace(version=1, packed=SimpleNamespace(index=1))
        self.used: list[tuple[int, Path]] = []
        self.told: list[str] = []

    async def use(self, circuit: Any, file: Path) -> bool:
        self.used.append((circuit.version, file))
        return True

    def switch(self) -> None:
        version = self.circuit.version + 1
        self.circuit = SimpleNamespace(version=version, packed=SimpleNamespace(index=version))

    async def keep(self, then: Any) -> None:
        compiling = CompiledCircuit(lambda: self.circuit, self.use, settled=0.05)
        task = asyncio.create_task(compiling.keep(lambda trouble, text: self.told.append(text)))
        await then()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The circuits that were compiled, in place of a compiler; number 2 can't be."""
    done: list[int] = []

    async def compiled(index: int) -> Path:
        done.append(index)
        if index == 2:
            raise HilserverError("no linker.")
        return Path(f"/{index}")

    monkeypatch.setattr(compiled_circuit, "LOOK", 0.01)
    monkeypatch.setattr(compiled_circuit, "compiled_file", lambda index: None)
    monkeypatch.setattr(compiled_circuit, "_compiled", compiled)
    return done


def test_every_circuit_that_stays_is_compiled_once(compiled: list[int]) -> None:
    rig = Rig()

    async def switched() -> None:
        await until(lambda: rig.used == [(1, Path("/1"))])
        rig.switch()
        await until(lambda: compiled == [1, 2])
        rig.switch()
        await until(lambda: len(rig.used) == 2)

    asyncio.run(asyncio.wait_for(rig.keep(switched), 30))
    assert (compiled, rig.used) == ([1, 2, 3], [(1, Path("/1")), (3, Path("/3"))])
    assert len(rig.told) == 2


def test_a_circuit_that_is_switched_again_is_not_compiled(compiled: list[int]) -> None:
    rig = Rig()

    async def tries() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
            rig.switch()
        last = rig.circuit.version
        await until(lambda: [version for version, _ in rig.used] == [last])

    asyncio.run(asyncio.wait_for(rig.keep(tries), 30))
    assert compiled == [rig.circuit.version]


def test_code_that_cannot_be_loaded_is_not_given_to_the_loop(tmp_path: Path) -> None:
    """As from a file system without the right to execute: the loop must not be said to use it."""
    rig, no_loop = load_rig(CONFIG / "rigs/demo.toml"), cast(Any, None)
    executor = Executor(rig, no_loop, no_loop, compiled_program(rig.library))
    file = tmp_path / folder_of(rig.packed.index).name / FILE
    file.parent.mkdir()
    file.write_bytes(b"")
    with pytest.raises(OSError, match="file too short"):
        asyncio.run(executor.use_code(executor.running, file))


@pytest.mark.parametrize(("rate", "max_missed", "taken"), [(1e3, 0, True), (1e4, 5, True), (2e4, 5, False)])
def test_a_loop_that_would_trip_takes_no_code_over(rate: float, max_missed: int, taken: bool) -> None:
    loop = LoopSettings(max_missed=max_missed)
    assert may_take_over(loop, rate) is taken
    assert not may_take_over(loop.model_copy(update={"compiled_circuit": False}), rate)


@pytest.mark.realtime
def test_a_running_loop_takes_the_code_over_and_its_log_is_replayed(tmp_path: Path) -> None:
    compile_for(load_rig(CONFIG / "rigs/demo.toml").packed.index)  # so that the server finds it
    with Server(tmp_path, changes=COMPILED) as server:
        set_in_motion(server)
        switched: list[int] = []

        async def wait(user: Panel) -> None:
            await user.see(
                "events", lambda told: any("compiled for this circuit" in event["text"] for event in told["events"])
            )
            answer = await user.do("switch", component="main_valve", set={"f45": "20 Hz"})
            switched.append(int(answer["tick"]))

        talk(server, wait)
        eventually(lambda: server.logged(switched[0] + 100))
    (log,) = server.logs
    taken = [event["record"] for _, event in read_log(log).events if event["kind"] == "command"]
    assert CommandKind.CODE in [command_in(record).kind for record in taken]
    found = replay_log(log)
    assert found.switches == 1
    assert found.ok
