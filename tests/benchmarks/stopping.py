"""Benchmark: how long STOP takes, from the click in a browser, and from the shell, until the valve begins to close.

    python tests/benchmarks/stopping.py               # 40 clicks on a desktop, 40 touches on a phone, 20 from the shell
    python tests/benchmarks/stopping.py --presses 10 --commands 5

The demo's rig at 1 kHz, RUNNING with its joystick at 0.3 and -0.3 in turns, shown in headless Chromium. A press begins
where the browser receives it (the timeStamp of its event); that of the shell where `hilserver send stop` is started.
The end is the tick in the log in which the mode becomes ARMED and the ramp to null begins: its wall clock, taken at the
start of the tick, which also writes the command. Page and log are on one machine: the page's clock is compared with the
wall clock, and how closely is printed. Not contained: screen, mouse and network of a user, and the valve itself. Fails
where a press was not followed by a stop; the figures are for you to judge.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from panel_bench import CHROMIUM, chromium, served
from service_harness import COMPILED, Server, eventually, read_log
from stop_times import WATCH, PageClock, closing_ticks, delays

from hilserver.client import Client, connect

CHANGES = COMPILED | {"rate =": 'rate = "1 kHz"', "max_missed": "max_missed = 5000", "max_age": 'max_age = "5 s"'}
"""What differs from the demo's rig: a busy machine does not end the run."""
SHELL = (sys.executable, "-c", "from hilserver.cli import main; main()", "send", "stop")
SCREENS = {"desktop": (1400, 1000), "phone": (390, 844)}
REST = 0.6
"""Seconds in which the ramp to null ends."""
WITHIN = 60.0


def becomes(rig: Client, mode: str) -> None:
    """Wait for a mode."""
    rig.wait(lambda state: state.mode == mode, WITHIN)


def running(rig: Client, number: int) -> None:
    """The rig runs, with its valve open, for a random time, so that no period of a process is met each time.

    ``number``: of the press; the load goes up and down in turns.
    """
    time.sleep(REST)
    for mode, step, then in (("FAULT", rig.reset, "SAFE"), ("SAFE", rig.arm, "ARMED"), ("ARMED", rig.start, "RUNNING")):
        if rig.state.mode == mode:
            step()
            becomes(rig, then)
    rig.set_input("joystick", -0.3 if number % 2 else 0.3)
    time.sleep(random.uniform(0.8, 1.8))


def pressed(page: Page, rig: Client, count: int, *, touch: bool) -> tuple[list[float], float]:
    """When STOP was pressed, s since 1970, and how closely this is known."""
    box = page.locator("#stop").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    clock = PageClock.of(page)
    for number in range(count):
        running(rig, number)
        (page.touchscreen.tap if touch else page.mouse.click)(x, y)
        becomes(rig, "ARMED")
    return clock.presses(page), clock.uncertain


def sent(server: Server, rig: Client, count: int) -> list[float]:
    """When ``hilserver send stop`` was started."""
    times = []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(server.folder)}
    for number in range(count):
        running(rig, number)
        times.append(time.time())
        subprocess.run(SHELL, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=WITHIN)
        becomes(rig, "ARMED")
    return times


def told(name: str, seconds: list[float]) -> str:
    """A line of the table, ms."""
    ms = 1e3 * np.array(seconds)
    return f"| {name} | {len(ms)} | {np.median(ms):.0f} | {np.percentile(ms, 95):.0f} | {ms.max():.0f} |"


def main() -> None:
    """Press, read the log, and print what was found."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--presses", type=int, default=40, help="of STOP on each screen")
    parser.add_argument("--commands", type=int, default=20, help="from the shell")
    options = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("there is no Chromium: make test-programs")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    times: dict[str, list[float]] = {}
    closeness = 0.0
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with Server(folder, changes=CHANGES) as server:
            with (
                connect(server.name, f"127.0.0.1:{server.port}", within=WITHIN) as rig,
                served(folder, server.port, server, "--open") as url,
                chromium() as browser,
            ):
                for name, (width, height) in SCREENS.items():
                    touch = name == "phone"
                    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=touch)
                    context.add_init_script(WATCH)
                    page = context.new_page()
                    page.goto(url)
                    page.locator('[data-value="node.supply"]').wait_for()
                    times[name], uncertain = pressed(page, rig, options.presses, touch=touch)
                    closeness = max(closeness, uncertain)
                    context.close()
                times["hilserver send stop"] = sent(server, rig, options.commands)
            assert server.process is not None
            server.process.send_signal(signal.SIGINT)
            eventually(lambda: server.process is not None and server.process.poll() is not None, WITHIN)
            table = read_log(server.logs[-1])
    stopped = [
        float(table.columns["utc"][k])
        for k in closing_ticks(table.columns["mode"], table.columns["valve.main.command"])
    ]
    print("\n| STOP by | presses | median, ms | 95 % | max |\n" + "|---" * 5 + "|")
    for name, begun in times.items():
        print(told(name, delays(begun, stopped[: len(begun)])))
        del stopped[: len(begun)]
    missed = int(table.columns["missed"].sum())
    print(f"\nclocks of page and log compared to ± {1e3 * closeness:.1f} ms; missed ticks: {missed}")


if __name__ == "__main__":
    main()
