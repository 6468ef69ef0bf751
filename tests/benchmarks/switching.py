"""Benchmark: circuits switched live, on a quiet machine and with every processor busy, in one run.

    python tests/benchmarks/switching.py [SWITCHES]

The demo's server gets random switches one after the other, each as soon as the one before is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from service_harness import COMPILED, Server, busy_processors, panel, read_log
from service_inputs import random_switch

from hilserver.record.summary import WORK


def switches(server: Server, count: int) -> list[float]:
    """Milliseconds from each request until its circuit was in the loop."""
    random = np.random.default_rng(1)

    async def talk() -> list[float]:
        async with panel(server) as user:
            await user.run_cycle()
            answers = []
            for _ in range(count):
                name, payload = random_switch(random)
                answers.append(await user.do(name, **payload))
            return [answer["result"]["active_ms"] for answer in answers]

    return asyncio.run(talk())


def measured(count: int, load: contextlib.AbstractContextManager[None]) -> dict[str, float]:
    """Medians in ms: until a circuit is active; of the work in a tick, and in those that switch; silence of the
    supervisor (99 %).
    """
    with TemporaryDirectory() as folder, Server(Path(folder), changes=COMPILED) as server:
        with load:
            active = switches(server, count)
        server.kill("supervisor", number=signal.SIGTERM)
        server.wait_exit(60.0)
        columns = read_log(server.logs[0]).columns
    work = np.sum([columns[name] for name in WORK], axis=0)  # of the tick before
    switched = np.flatnonzero(np.diff(columns["circuit_version"])) + 2
    silence = columns["heartbeat_age"][np.isfinite(columns["heartbeat_age"])]
    return {
        "request to active": float(np.median(active)),
        "work per tick": float(np.median(work)) * 1e3,
        "work in ticks that switch": float(np.median(work[switched])) * 1e3,
        "supervisor silent": float(np.quantile(silence, 0.99)) * 1e3,
    }


def main() -> None:
    """Run the comparison."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    quiet = measured(count, contextlib.nullcontext())
    busy = measured(count, busy_processors())
    for name, value in quiet.items():
        print(f"{name}: {value:.3f} ms, with busy processors {busy[name]:.3f} ms, ratio {busy[name] / value:.1f}")
    print(f"a switch costs {quiet['work in ticks that switch'] / quiet['work per tick']:.1f} times the work of a tick")


if __name__ == "__main__":
    main()
