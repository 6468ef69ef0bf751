"""A server under random faults, of any length: ``pytest tests/service/test_soak.py --soak "2 h" --soak-report a.txt``.

A third of the time with one fault after the other, each with what must follow from it (soak.py); one with faults at
random moments against a model of what must be true (chaos.py); one without, to see if memory and descriptors stay flat.
"""

from __future__ import annotations

import asyncio
import faulthandler
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chaos import play
from chaos_faults import ENDS, FAULTS
from chaos_model import as_text, from_text, random_steps, shortest
from chaos_place import squatted
from chaos_rig import NAME
from fake_system import FakeSystem, needs_compiler
from modbus_bench import TcpBench
from soak import ENDING, SURVIVED, Fault, Soak, Usage, be_running, live, service_is_stopped, switches

from hilserver.units import parse

pytestmark = [pytest.mark.realtime, pytest.mark.slow, needs_compiler]
WARMING_UP = 8.0
"""MiB; in seconds only a gross leak can be told from what comes in use little by little."""
FAULTS_IN_A_LIFE = len(SURVIVED) // 4
"""Between a start and the fault that ends it."""
FAULTS_AT_ONCE, CHAOS = 10, 8.0
"""Faults of a chaos run, and in how many seconds they begin."""
LONG = 150.0
"""s; in a run that lasts longer, a failing sequence is shortened."""


@pytest.fixture
def soak(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Soak]:
    """The set-up in which faults are injected; its report is written at the end in any case."""
    faulthandler.cancel_dump_traceback_later()  # hours are as they should be
    bench = TcpBench()
    bench.measure({name: span[1] for name, span in bench.input_span.items()})
    seed = request.config.getoption("--soak-seed")
    made = Soak(tmp_path, np.random.default_rng(seed), FakeSystem(tmp_path), bench, Usage())
    try:
        yield made
    finally:
        bench.close()
        report = "\n".join([f"{request.node.name}, seed {seed}", *made.report, ""])
        print("\n" + report)
        if (file := request.config.getoption("--soak-report")) is not None:
            with Path(file).open("a") as out:
                out.write(report)


@pytest.fixture
def length(request: pytest.FixtureRequest) -> float:
    """Of all tests together, s."""
    return float(parse(request.config.getoption("--soak")).to("s").magnitude)


def lives(random: np.random.Generator) -> Iterator[tuple[list[Fault], Fault]]:
    """All faults in random order, again and again: some that a server survives, then one that ends it."""
    survived: list[Fault] = []
    while True:
        for number in random.permutation(len(ENDING)):
            while len(survived) < FAULTS_IN_A_LIFE:
                survived += [SURVIVED[i] for i in random.permutation(len(SURVIVED))]
            yield survived[:FAULTS_IN_A_LIFE], ENDING[number]
            survived = survived[FAULTS_IN_A_LIFE:]


def test_whatever_happens_the_valve_is_safe_the_log_is_whole_and_the_server_comes_back(
    soak: Soak, length: float
) -> None:
    began = time.monotonic()
    for faults, end in lives(soak.random):
        asyncio.run(live(soak, faults, end))
        if time.monotonic() - began > length / 3:
            break
    for grown in soak.usage.grown(warm_up=10.0):
        soak.report.append(str(grown))
        assert grown.descriptors <= 3, f"descriptors leak: {grown}"


def test_faults_at_random_times_leave_true_what_must_be(
    soak: Soak, length: float, request: pytest.FixtureRequest
) -> None:
    """A sequence that fails is printed; in a long run, its shortest part that still fails."""
    given, wanted = (request.config.getoption(name) for name in ("--soak-steps", "--chaos"))
    length = length / 3 if wanted is None else float(parse(wanted).to("s").magnitude)
    began = time.monotonic()
    with squatted(NAME):
        while time.monotonic() - began < length:
            steps = from_text(given) if given else random_steps(soak.random, [*FAULTS], FAULTS_AT_ONCE, CHAOS)
            end = str(soak.random.choice([*ENDS]))
            soak.report.append(f"{as_text(steps)}, {end}")
            if wrong := asyncio.run(play(soak, steps, end)):
                soak.report.append(wrong)
                if length > LONG and asyncio.run(play(soak, steps, end)):  # it does so again
                    steps = shortest(steps, lambda some: bool(asyncio.run(play(soak, some, end))))  # noqa: B023
                pytest.fail(f"{wrong}\n{end}, --soak-steps '{as_text(steps)}'")


def test_memory_and_descriptors_stay_flat(soak: Soak, length: float) -> None:
    """Switched now and then, recorded in files of which the old ones are removed.

    In a short run, half of its third: as often switched, so descriptors that a switch leaks are seen as well.
    """
    length /= 3 if length > LONG else 6
    soak.file_length = "1 min" if length > 600 else "2 s"
    warm_up = min(600.0, length / 2)

    async def run() -> None:
        async with soak.user() as user:
            await be_running(user)
        await switches(soak)  # after which everything has been used once, however fast or busy the machine is
        watching = asyncio.create_task(soak.watch_usage(min(10.0, length / 20)))
        try:
            began = time.monotonic()
            while time.monotonic() - began < length:
                await switches(soak)
                await asyncio.sleep(min(5.0, length / 10))
        finally:
            watching.cancel()
        await service_is_stopped(soak)

    with soak.new_server() as soak.server:
        soak.memory = soak.server.memory
        asyncio.run(run())
    grown = sorted(soak.usage.grown(warm_up), key=lambda process: process.name)
    soak.report += [str(process) for process in grown]
    soak.report.append(f"{soak.switches} switches")
    names = {"supervisor", "loop", "recorder", "worker", "stand-by", "device", "broker"}
    assert {process.name for process in grown} == names
    for process in grown:
        assert process.descriptors <= 0, f"descriptors leak: {process}"
        assert process.memory < (1.0 if length > 600 else WARMING_UP), f"memory leaks: {process}"
