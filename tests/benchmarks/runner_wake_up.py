"""Benchmark: how late the runner wakes up at 1 kHz, beside cyclictest in the same run; and the memory that it takes.

    python tests/benchmarks/runner_wake_up.py                      # three runs of 20 s
    python tests/benchmarks/runner_wake_up.py --runs 5 --seconds 60

The demo's rig, RUNNING with its work cycle, with all rows recorded; both programs with the same priority and locked
memory, on any CPU. Needs root, or the limits that docs/real-time.md describes, and cyclictest (Debian: rt-tests). The
figures are for you to judge.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from runner_bench import Packed, demo

from hilserver.bench.latency import Conditions, Durations, cyclictest_command, find_cyclictest, read_cyclictest
from hilserver.realtime.timing import wake_up_delay
from hilserver.runner.rows import RowsFile

PERIOD = 1e-3
SETTLING = 0.5
"""s at the start that do not count: nothing is in the caches yet."""


def run(packed: Packed, program: str, seconds: float, folder: Path) -> tuple[Durations, Durations, int]:
    """The runner's delays, s; those of cyclictest beside it; the runner's memory, KiB."""
    conditions = Conditions(1.0 / PERIOD, seconds)
    said = subprocess.run([program, "--help"], capture_output=True, text=True)
    result, rows = folder / "cyclictest.json", folder / "run.rows"
    for file in (result, rows):
        file.unlink(missing_ok=True)
    command = cyclictest_command(program, conditions, True, True, result, said.stdout + said.stderr)
    with packed.running("--rows", rows) as runner:
        for order in ("arm", "start", "cycle 1"):
            packed.done("--send", order)
        beside = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        beside.wait()
        status = Path(f"/proc/{runner.pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    late = wake_up_delay(RowsFile(rows).rows(), PERIOD)
    return Durations.of(late[round(SETTLING / PERIOD) :]), read_cyclictest(result.read_text()), memory


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--runs", type=int, default=3)
    words.add_argument("--seconds", type=float, default=20.0)
    given = words.parse_args()
    program = find_cyclictest()
    if program is None:
        sys.exit("cyclictest is not installed (Debian: apt install rt-tests)")
    print("delay in µs            median     99 %   99.9 %   longest")
    with tempfile.TemporaryDirectory() as name:
        packed = Packed(demo("runner_wake_up"), Path(name) / "rig")
        for number in range(given.runs):
            late, other, memory = run(packed, program, given.seconds, Path(name))
            for who, found in (("hilserver-runner", late), ("cyclictest", other)):
                f = found.figures()
                print(f"{number + 1} {who:<17}" + "".join(f"{1e6 * t:9.1f}" for t in (f.median, f.p99, f.p999, f.max)))
            ratio = late.figures().median / other.figures().median
            print(f"  median {ratio:.2f} times that of cyclictest; {memory / 1024:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
