"""Benchmark: the panel at 20 Hz in a real browser: memory over time, and whether the loop notices it.

    python tests/benchmarks/panel.py                          # 10 minutes, half of that before and after without panel
    python tests/benchmarks/panel.py --minutes 2 --pairs 0    # a first look

The demo's rig, RUNNING with its work cycle, sends telemetry every 50 ms; headless Chromium shows 12 channels on the
panel's tab of plots. Every 30 s: the page's JavaScript heap after a garbage collection, DOM nodes and listeners, what
renderer and panel hold in memory of their own (RssAnon), and messages, samples and drawings per second of a chart. The
loop's wake-up and work are taken from every tick's row, without panel and browser and with them, in turns; `--pairs`
short stretches follow, so that what else happens on the machine comes to both alike. Fails where heap or memory grew by
more than 5 % since the warm-up, or samples were missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from panel_bench import CHROMIUM
from service_harness import COMPILED, Server, eventually, listens, panel

from hilserver.realtime.timing import LoopTiming
from hilserver.tick.codes import Mode
from hilserver.tick.row import headers
from hilserver.web.listening import free_port

CHANNELS, RATE, SAMPLES = 12, 20.0, 50.0
"""Channels on the tab; messages per second; samples per second of each channel."""
CHANGES = {
    **COMPILED,
    "port = 0": f'port = 0\ntelemetry_batch = "{1000 / RATE:g} ms"',
    "max_missed": "max_missed = 5000",
    "max_age": 'max_age = "5 s"',
}
"""What differs from the demo's rig: the last two so that a busy machine does not end the run."""
CYCLE = 8.0
"""Seconds that the work cycle takes."""
LOOK = 30.0
WARM_UP = 90.0
"""Seconds between two looks; in which the plots fill and the compilers of Python's and JavaScript's machines settle."""
GROWTH = 0.05
"""Largest share that is taken for flat."""
COMMAND = (sys.executable, "-c", "from hilserver.cli import main; main()", "panel")

_COUNT = """() => {
  const shown = [...document.querySelectorAll(".nicegui-echart")].filter((e) => e.offsetParent);
  const id = shown[0].id.slice(1);
  window.count = { messages: 0, samples: 0, drawn: 0 };
  const update = panel.update;
  panel.update = (message) => {
    const chart = message.charts?.[id];
    if (chart) { window.count.messages++; window.count.samples += chart.times.length; }
    update(message);
  };
  getElement(id).chart.on("rendered", () => window.count.drawn++);
  return shown.map((e) => getElement(e).chart.getOption().series.length).reduce((a, b) => a + b);
}"""

_HEAD = (
    "| s | heap, MB | DOM heap, MB | nodes | listeners | renderer, MB | panel, MB | messages/s | samples/s | drawn/s |"
)
_LINE = "| {:5.0f} | {:6.2f} | {:6.2f} | {:.0f} | {:.0f} | {:5.0f} | {:5.1f} | {:.1f} | {:.1f} | {:.1f} |"
_COUNTED = (
    "() => { const counted = window.count; window.count = { messages: 0, samples: 0, drawn: 0 }; return counted; }"
)


class Watch:
    """Takes the loop's rows as they come, for the timing of the present stretch."""

    def __init__(self, server: Server, period: float) -> None:
        self._ring, self._period = server.memory.ring, period
        self._end = threading.Event()
        self.begin()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A new stretch."""
        self.timing, self.missed, self.running = LoopTiming(self._period), 0, 0

    def _follow(self) -> None:
        cursor = self._ring.published
        rows = np.empty((self._ring.capacity, self._ring.width))
        while not self._end.wait(0.25):
            count, cursor, _ = self._ring.read(cursor, rows)
            self.timing.add(rows[:count])
            self.missed += int(headers(rows)["missed"][:count].sum())
            self.running += int((headers(rows)["mode"][:count] == Mode.RUNNING).sum())

    def end(self) -> None:
        """No more."""
        self._end.set()
        self._thread.join()


@dataclass(frozen=True)
class Look:
    """What page, renderer and panel hold: MB, but for nodes and listeners; rates in 1/s since the last look."""

    time: float
    heap: float
    dom: float
    nodes: float
    listeners: float
    renderer: float
    panel: float
    messages: float
    samples: float
    drawn: float


class Browser:
    """A page on the tab of plots, and what is to be measured of it."""

    def __init__(self, page: Page, panel: int) -> None:
        self._page, self._panel = page, panel
        self.looks: list[Look] = []
        channels = page.evaluate(_COUNT)
        if channels != CHANNELS:
            raise SystemExit(f"{channels} channels are on the tab of plots, {CHANNELS} were expected.")
        self._client = page.context.new_cdp_session(page)
        self._client.send("Performance.enable")
        self._renderer = max(_renderers(), key=_resident)
        self._began = self._last = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._page.wait_for_timeout(1000 * seconds)

    def look(self) -> Look:
        """Measure; a garbage collection comes first."""
        count = self._page.evaluate(_COUNTED)
        now = time.monotonic()
        since, self._last = now - self._last, now
        self._client.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in self._client.send("Performance.getMetrics")["metrics"]}
        usage = self._client.send("Runtime.getHeapUsage")
        found = Look(
            now - self._began,
            usage["usedSize"] / 1e6,
            usage["embedderHeapUsedSize"] / 1e6,
            metrics["Nodes"],
            metrics["JSEventListeners"],
            _resident(self._renderer),
            _resident(self._panel),
            count["messages"] / since,
            count["samples"] / since,
            count["drawn"] / since,
        )
        self.looks.append(found)
        print(_LINE.format(*astuple(found)), flush=True)
        return found

    def grown(self) -> dict[str, float]:
        """By which share each kind of memory grew between the first third after the warm-up and the last third."""
        after = [look for look in self.looks if look.time >= WARM_UP]
        third = max(len(after) // 3, 1)

        def typical(looks: list[Look], name: str) -> float:
            return float(median(getattr(look, name) for look in looks))

        names = ("heap", "nodes", "renderer", "panel") if len(after) > 1 else ()
        return {name: typical(after[-third:], name) / typical(after[:third], name) - 1 for name in names}


def _renderers() -> Iterator[int]:
    """The browser's processes that show pages, of those that this one started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if "--type=renderer" in (folder / "cmdline").read_text() and os.getpid() in _ancestors(int(folder.name)):
                yield int(folder.name)
        except OSError:
            continue


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


def _resident(pid: int) -> float:
    """Resident memory that is a process's own, MB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) * 1024 / 1e6


@contextmanager
def shown(server: Server, folder: Path) -> Iterator[Browser]:
    """The panel as the command starts it, and a browser on its tab of plots."""
    if CHROMIUM is None:
        raise SystemExit("there is no Chromium: make test-programs")
    port = free_port("127.0.0.1", 8300, tries=100)
    options = ("--rig", server.name, "--broker", f"127.0.0.1:{server.port}", "--port", str(port), "--open")
    with (folder / "panel.log").open("a") as log:
        process = subprocess.Popen((*COMMAND, *options), stdout=log, stderr=log, cwd=folder)
    try:
        eventually(lambda: listens(port), 60)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"http://127.0.0.1:{port}")
            page.get_by_role("tab", name="Plots").click()
            page.wait_for_function(
                "() => [...document.querySelectorAll('.nicegui-echart')].filter((e) => e.offsetParent).length >= 5"
            )
            _add_channel(page, "main demanded command")
            page.wait_for_timeout(2000)
            yield Browser(page, process.pid)
            browser.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _add_channel(page: Page, label: str) -> None:
    """The tab begins with eleven channels; the last plot gets one more."""
    page.get_by_role("button", name="Channels").last.click()
    page.locator(".channel-choice").get_by_role("checkbox", name=label, exact=True).click()
    page.keyboard.press("Escape")


async def work(server: Server) -> None:
    """Arm, start, and let the work cycle run, again and again; after a fault of a machine that is too busy too."""
    async with panel(server) as user:
        await user.run_cycle()
        while True:
            await asyncio.sleep(CYCLE)
            if not (await user.command("cycle", action="start"))["ok"]:
                await user.command("reset")
                await user.run_cycle()


def told(name: str, watch: Watch) -> str:
    """The loop's timing of a stretch, as a line of the table, in µs."""
    wake, work = watch.timing.wake_up.figures(), watch.timing.work.figures()
    assert wake is not None
    assert work is not None
    figures = [[1e6 * value for value in (f.median, f.p99, f.p999, f.max)] for f in (wake, work)]
    cells = " | ".join("{:.1f} / {:.1f} / {:.0f} / {:.0f}".format(*microseconds) for microseconds in figures)
    return f"| {name} | {wake.count} | {100 * watch.running / wake.count:.1f} % | {cells} | {watch.missed} |"


def main() -> None:
    """Run the stretches and print what was found."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="with panel and browser; without them as long")
    parser.add_argument("--pairs", type=int, default=3, help="short stretches afterwards, without and with")
    parser.add_argument("--short", type=float, default=60.0, help="seconds of a short stretch")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    stretches = [(False, seconds / 2), (True, seconds), (False, seconds / 2)]
    stretches += [(with_panel, options.short) for _ in range(options.pairs) for with_panel in (False, True)]
    grown: dict[str, float] = {}
    lines, slowest = [], SAMPLES
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with Server(folder, changes=CHANGES) as server:
            threading.Thread(target=lambda: asyncio.run(work(server)), daemon=True).start()
            watch = Watch(server, 1e-3)
            for with_panel, length in stretches:
                if not with_panel:
                    watch.begin()
                    time.sleep(length)
                    lines.append(told("without", watch))
                    print(lines[-1], flush=True)
                    continue
                with shown(server, folder) as browser:
                    print(_HEAD + "\n" + "|---" * 10 + "|")
                    browser.look()
                    watch.begin()
                    for _ in range(max(round(length / LOOK), 1)):
                        browser.wait(min(LOOK, length))
                        slowest = min(slowest, browser.look().samples)
                    lines.append(told("with panel", watch))
                    print(lines[-1], flush=True)
                    grown = grown or browser.grown()
            watch.end()
    print(
        "\n| | ticks | RUNNING | wake-up, µs: median / 99 % / 99.9 % / max | work, µs | missed |\n" + "|---" * 6 + "|"
    )
    print("\n".join(lines))
    print("grown since the warm-up: " + ", ".join(f"{name} {100 * share:+.1f} %" for name, share in grown.items()))
    print(f"samples per second of a chart, at least: {slowest:.1f} of {SAMPLES:g}")
    if any(share > GROWTH for share in grown.values()) or slowest < 0.95 * SAMPLES:
        sys.exit("not held")


if __name__ == "__main__":
    main()
