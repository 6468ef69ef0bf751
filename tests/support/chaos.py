"""A chaos run: faults of all kinds at random moments, beside and over each other, and an operator who wants to go on.

`play` starts a server, lets the steps of a sequence happen to it, and compares what is seen at the devices with the
model (chaos_model.py) all the time. In the end everything is mended, the rig must be brought back to RUNNING by
nothing but commands (where its server lives), the server is stopped or killed, and its logs must be whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiomqtt
import numpy as np
from chaos_faults import ENDS, FAULTS
from chaos_model import BLIND, Step, Steps
from chaos_rig import Chaos
from service_harness import eventually, panel
from soak import Soak, be_running
from soak_logs import look_at_logs

from hilserver.tick.row import header

T = TypeVar("T")
TO_END = 20.0
"""s in which a server that has lost its supervisor must have ended with all its processes."""
TRANSMITTED = 1.0
"""s for a command from its sender to the tick, and for whatever is measured in the slow device to arrive."""
AFTERWARDS = 3.0
"""s for which a fault may still have effects."""
HAMPERS = {"supervisor", "loop", "broker", "flood"}
"""What may keep a command from arriving in time."""


def concerns(what: str) -> str:
    """What a fault concerns: those of the same may undo each other."""
    first = what.split()[0]
    return "slow device" if first in ("worker", "stand-by", "writes", "wrong", "no", "connection", "supply") else first


async def happen(chaos: Chaos, step: Step, began: float) -> None:
    """One step at its time: begin, wait, end; then the rig must have stopped, where the fault by itself demands it."""
    fault = FAULTS[step.what]
    await asyncio.sleep(max(began + step.at - time.monotonic(), 0.0))
    at, lasts, number = time.monotonic(), min(step.lasts, fault.at_most), len(chaos.active)
    chaos.active.append((concerns(step.what), at, np.inf))
    await asyncio.to_thread(fault.begin, chaos)
    slow = time.monotonic() - at > BLIND
    await asyncio.sleep(lasts)
    held_for = time.monotonic() - at
    await asyncio.to_thread(fault.end, chaos)
    chaos.active[number] = (concerns(step.what), at, time.monotonic() + AFTERWARDS)
    if fault.by_command:
        await asyncio.sleep(max(TRANSMITTED - lasts, 0.0))
    elif held_for < fault.stops_after + TRANSMITTED:
        return
    disturbing = HAMPERS if fault.by_command else {concerns(step.what), "loop", "device"}
    others = [other for k, other in enumerate(chaos.active) if k != number and other[0] in disturbing]
    if np.isfinite(fault.stops_after) and not slow and all(since > at + held_for or to < at for _, since, to in others):
        chaos.model.require_stopped(at, f"{step.what} for {held_for:.1f} s")


async def operate(chaos: Chaos) -> None:
    """An operator who tries to make the rig run, and to move it, until cancelled; without a look at it."""
    while True:
        for name in ("reset", "arm", "start"):
            await asyncio.to_thread(chaos.publish, name)
        there_and_back = 0.4 if int(time.monotonic()) % 4 < 2 else -0.4
        await asyncio.to_thread(chaos.publish, "set_input", input="joystick", value=there_and_back)
        await asyncio.sleep(0.2)


def is_recorded(state: Mapping[str, Any]) -> bool:
    """Whether there is a recorder that writes to a file on the disk that is mounted now.

    One whose disk has been exchanged notices it within a second, and is replaced. A supervisor that is killed in this
    second leaves a loop without a recorder.
    """
    recording = state["recording"]
    return bool(recording["tick"]) and Path(recording["file"]).exists()


async def run_again(chaos: Chaos) -> int:
    """Make the rig run after the faults; returns the last tick that is recorded then.

    A client whose connection the broker drops connects again, as a panel does: a server that was held may have let it
    expire.
    """
    while True:
        try:
            async with panel(chaos.server) as user:
                await be_running(user, patience=5.0)
                state = await user.see("state", is_recorded, len(user.seen))
                return int(state["recording"]["tick"])
        except aiomqtt.MqttError:
            await asyncio.sleep(0.5)


async def play(soak: Soak, steps: Steps, end: str) -> str:
    """One life of a server; returns what was wrong first, empty if nothing was."""
    chaos, times = Chaos(soak), [time.monotonic()]
    chaos.disk.mount()
    chaos.server = chaos.new_server()
    with contextlib.ExitStack() as life:
        life.callback(chaos.disk.unmount)
        life.enter_context(chaos.server)
        eventually(chaos.server_is_complete)
        chaos.repair()
        memory = chaos.server.memory
        watching = asyncio.create_task(chaos.watch())
        try:
            times.append(time.monotonic())
            await inject(chaos, steps)
            chaos.repair()
            times.append(time.monotonic())
            async with asyncio.timeout(90.0):
                recorded = await unless_it_ends(chaos, run_again(chaos))
            if recorded is not None:
                chaos.recorded = recorded
            elif not {"supervisor", "loop", "device"} & {concerns(step.what) for step in steps}:
                chaos.model.wrong.append("the server has ended by itself")
            times.append(time.monotonic())
            chaos.server.note_children()
            await asyncio.to_thread(ENDS[end], chaos)
            await asyncio.to_thread(eventually, lambda: not chaos.server.alive() - {"device"}, TO_END)
            await asyncio.sleep(0.1)
        except Exception as error:  # with what the server has said
            chaos.model.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            watching.cancel()
            chaos.repair()
        row = np.empty(memory.ring.width)
        memory.ring.latest(row)
    times.append(time.monotonic())
    spans = zip(("start", "chaos", "running again", "end"), np.diff(times), strict=False)
    soak.report.append(f"{'':32}" + ", ".join(f"{what} {span:.1f} s" for what, span in spans))
    is_whole, last = end != "all killed" and not chaos.deleted, int(header(row).tick)
    with chaos.disk.all_files() as folders:
        logs = soak.new_logs(*folders)
        try:
            found = look_at_logs(logs, last, is_whole=is_whole, recorded=chaos.recorded, found_later=chaos.unmounted)
            soak.report.append(found)
        except AssertionError as error:
            chaos.model.wrong.append(f"the logs: {error}")
    if wrong := "; ".join(chaos.model.wrong):
        return f"{wrong}\nThe server said:\n{chaos.server.stderr[-3000:]}"
    return ""


async def inject(chaos: Chaos, steps: Steps) -> None:
    """Let the steps happen while the operator wants to go on; until the server ends, at most."""
    operating, began = asyncio.create_task(operate(chaos)), time.monotonic()
    happening = [asyncio.create_task(happen(chaos, step, began)) for step in steps]

    async def all_happened() -> None:
        await asyncio.gather(*happening)

    try:
        await unless_it_ends(chaos, all_happened())
    finally:
        for task in (operating, *happening):
            task.cancel()
        await asyncio.gather(operating, *happening, return_exceptions=True)


async def unless_it_ends(chaos: Chaos, what: Coroutine[Any, Any, T]) -> T | None:
    """The result of something that needs the server; None where the server ends before.

    It may end some time after the faults: a loop ends when its supervisor was held for too long, and then the server.
    """

    async def server_ends() -> None:
        while "supervisor" in chaos.server.alive():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)

    doing, ending = asyncio.create_task(what), asyncio.create_task(server_ends())
    try:
        await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, ending):
            task.cancel()
        await asyncio.gather(doing, ending, return_exceptions=True)
