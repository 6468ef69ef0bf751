"""The commands on the documentation's pages that need a running server, or are one: carried out in one folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import probe
import pytest
from pages import (
    ANSWER,
    DEMO,
    LIVE,
    Block,
    Workplace,
    end,
    inline,
    marked,
    only,
    over,
    page_of,
    said_until,
    workplace,
)
from probe import ProbeDevice

from hilserver.toml import read_toml

RAISE = """
rig = "config/rigs/demo.toml"
length = "5 s"
step = [{ at = "0.1 s", send = "arm" }, { at = "0.2 s", send = "start" }]
inputs.joystick = { shape = "step", points = [["0.4 s", 0], ["0.6 s", 0.4], ["4 s", 0.4], ["4.2 s", 0]] }
expect = [{ channel = "x", at = "4 s", until = "4.5 s", min = "0.3 m" }]
"""
pytestmark = [pytest.mark.slow, pytest.mark.realtime]


def carry_out_in_real_time(place: Workplace, block: Block) -> None:
    """A sequence that lowers the load, three times at most: the machine may be busy, which moves actions in time."""
    for _ in range(2):
        try:
            place.carry_out(block)
        except AssertionError as failed:
            print(failed)
            (place.folder / "raise.toml").write_text(RAISE)
            code, output = place.run("hilserver test raise.toml --live -")  # as far as it was lowered, or farther
            assert code == 0, output
        else:
            return
    place.carry_out(block)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace in which one server ran and all live examples were carried out."""
    place = workplace(tmp_path_factory.mktemp("docs"), "docs")
    place.carry_out(only("run: first"))
    ((command, shown),) = only("run: server").commands
    server = place.start(command)
    try:
        place.compare(command, shown, said_until(server, "Ctrl-C"))
        # The sequence expects the load where it is at the start; how far the others lower it, their duration decides.
        for block in sorted(marked(*LIVE), key=lambda block: "--live" not in block.text):
            if "--live" in block.text:
                carry_out_in_real_time(place, block)
            else:
                place.carry_out(block)
        for block in marked("run: live, until Ctrl-C"):
            assert f"<title>{place.rigs['demo']} · hilserver" in page_of(place, block.text)
        for block in marked("run: live python"):
            (place.folder / "script.py").write_text(block.text)
            code, output = place.run("python script.py")
            assert code == 0, f"{block}:\n{output}"
            assert "is out of range" in output
    finally:
        said = end(server)
    assert server.returncode == 0, said
    return place


def test_live_examples(served: Workplace) -> None:
    """All the live examples of all pages, against one server, whose log the other examples use."""
    assert (served.folder / served.log("demo")).stat().st_size > 0


def test_demo_prints_what_the_pages_show_and_runs_until_interrupted(tmp_path: Path) -> None:
    place = workplace(tmp_path, "demo")
    process = place.start(place.in_a_test("hilserver demo --stay"))
    said = said_until(process, "It keeps running")
    said += end(process)
    assert process.returncode == 0, said
    assert re.search(r"Panel in the browser: http://127.0.0.1:\d+/\?token=\S+\n", said)
    assert re.search(r"^\d.* ticks recorded, ", said, re.M)
    for block in marked("run: demo"):
        ((command, shown),) = block.commands
        without_token = "\n".join(line for line in shown.splitlines() if "http" not in line)
        place.compare(command, without_token, said)


@pytest.mark.parametrize("block", marked("run: dialogue"), ids=str)
def test_dialogue(block: Block, tmp_path: Path) -> None:
    """With a device that measures what is typed: 40 mV per bar, and 30 mV where nothing is applied."""
    place = workplace(tmp_path, "typed")
    place.environment["PYTHONPATH"] = os.pathsep.join(
        [*map(str, probe.install(tmp_path / "installed")), os.environ.get("PYTHONPATH", "")]
    )
    device = ProbeDevice(tmp_path / "tester")
    device.measure(b=0.03)
    settings = over(read_toml(tmp_path / DEMO), {
        "calibration": "lab-calibration.toml",
        "devices": {"tester": {"driver": "fast_probe", "file": str(device.path)}},
        "channels": {"p_S": {"device": "tester", "source": "b"}},
    })  # fmt: skip
    text = "".join(f"{key} = {inline(value)}\n" for key, value in settings.items())
    (tmp_path / "config/rigs/lab.toml").write_text(text)
    ((command, shown),) = block.commands
    process = place.start(command)
    assert process.stdin is not None
    assert process.stdout is not None
    said = ""
    for question, typed in ANSWER.findall(shown):
        while question not in said.rpartition("\n")[2]:
            said += process.stdout.read(1) or pytest.fail(said)
        if typed[:1].isdigit():
            device.measure(b=0.03 + 0.04 * float(typed))
        said += "\n"
        process.stdin.write(f"{typed}\n")
        process.stdin.flush()
    said += process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    place.compare(command, shown, said)
