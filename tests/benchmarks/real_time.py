"""Benchmark: a tick in real time against the same tick in lockstep, with and without rehearsals, in one run.

    python tests/benchmarks/real_time.py                        # the demo's rig at 1 kHz, three rounds of 20 s
    python tests/benchmarks/real_time.py --rate 5000 --rounds 5

In real time: a server of its own for each measurement, RUNNING with its work cycle, with device, recorder and broker;
the work of a tick (read, compute, write, publish) and the wake-up, from the log. In lockstep: the same rig with its
device and the log in one process, without waiting. The figures are for you to judge: quote ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from service_harness import COMPILED, CONFIG, Server, read_log

from hilserver.client import request, where
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Arm, Cycle, Start
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import TIMES

SETTLING = 1.5
"""s at the start that do not count: the code of the circuit is taken over, how early the loop wakes settles."""
PERCENTILES = (50, 90, 95, 99)
BATCH, BATCHES = 8000, 7


def in_real_time(rate: float, rehearsal: bool, seconds: float, folder: Path) -> tuple[Floats, Floats, int]:
    """Wake-up and work of each tick, µs; ticks missed."""
    loop = f'rate = "{rate:g} Hz"\nrehearsal = {str(rehearsal).lower()}\nheartbeat_timeout = "2.5 s"'
    with Server(folder, changes=COMPILED | {"rate =": loop}) as server:
        _, address = where(server.name, f"127.0.0.1:{server.port}")

        async def start() -> None:
            for command in (Arm(), Start(), Cycle(action="start")):
                await request(address, server.name, command)

        asyncio.run(start())
        time.sleep(seconds)
        server.kill("supervisor", number=15)
        server.wait_exit()
        log = read_log(server.logs[0]).columns
        first = round(SETTLING * rate)
        work = np.sum([log[name][first:] for name in TIMES], axis=0)
        return 1e6 * np.asarray(log["wake_error"][first:]), 1e6 * work, int(np.sum(log["missed"][first:]))


def in_lockstep(folder: Path) -> Sequence[float]:
    """µs per tick of the batches; the first one warms up."""
    with LockstepRun(load_rig(CONFIG / "rigs" / "demo.toml"), folder / "lockstep.arrow") as run:
        run.start()
        found = []
        for _ in range(BATCHES + 1):
            run.command(CommandKind.CYCLE, 1.0)
            began = time.perf_counter()
            run.run(BATCH)
            found.append(1e6 * (time.perf_counter() - began) / BATCH)
        return found[1:]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rate", type=float, default=1000.0)
    words.add_argument("--seconds", type=float, default=20.0)
    words.add_argument("--rounds", type=int, default=3)
    given = words.parse_args()
    shown = "".join(f"{p:>7} %" for p in PERCENTILES)
    print(f"µs                         wake-up {shown}   work {shown}   of lockstep")
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as name:
            lockstep = float(np.median(in_lockstep(Path(name))))
        print(f"lockstep, with its log{lockstep:80.1f}")
        for rehearsal in (False, True):
            with tempfile.TemporaryDirectory() as name:
                late, work, missed = in_real_time(given.rate, rehearsal, given.seconds, Path(name))
            cells = ["".join(f"{v:9.1f}" for v in np.percentile(values, PERCENTILES)) for values in (late, work)]
            kind = "with rehearsals" if rehearsal else "without"
            ratio = float(np.median(work)) / lockstep
            print(
                f"real time, {kind:<17}       {cells[0]}       {cells[1]}{ratio:12.2f}  ({missed} missed)", flush=True
            )


if __name__ == "__main__":
    main()
