"""The commands on the documentation's pages are carried out in one folder, and print what is shown there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import probe
import pytest
from pages import (
    ANSWER,
    BLOCKS,
    DEMO,
    OFFLINE,
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

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Workplace, subprocess.Popen[str]]]]:
    """The demo by itself, and with its panel to go on; they take their 13 seconds beside the other examples."""
    running = {}
    for name, command in (("demo", "hilserver demo --no-panel"), ("panel", "hilserver demo --stay")):
        place = workplace(tmp_path_factory.mktemp(name), name)
        running[name] = place, place.start(place.in_a_test(command))
    yield running
    for _, process in running.values():
        end(process)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, demos: object) -> Workplace:
    """A workplace in which one server ran and all live examples were carried out."""
    place = workplace(tmp_path_factory.mktemp("docs"), "docs")
    place.carry_out(only("run: first"))
    ((command, shown),) = only("run: server").commands
    server = place.start(command)
    try:
        place.compare(command, shown, said_until(server, "Ctrl-C"))
        for block in BLOCKS:
            if block.mark in ("run: live", "run: live, refused"):
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


def test_demo_says_what_the_pages_show(demos: dict[str, tuple[Workplace, subprocess.Popen[str]]]) -> None:
    place, process = demos["demo"]
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    for block in marked("run: demo"):
        ((command, shown),) = block.commands
        without_panel = "\n".join(line for line in shown.splitlines() if "http" not in line)
        place.compare(command, without_panel, output)


def test_demo_with_its_panel_goes_on(demos: dict[str, tuple[Workplace, subprocess.Popen[str]]]) -> None:
    _, process = demos["panel"]
    said = said_until(process, "It keeps running")
    said += end(process)
    assert process.returncode == 0, said
    assert re.search(r"Panel in the browser: http://127.0.0.1:\d+\n", said)
    assert re.search(r"^\d.* ticks recorded, ", said, re.M)


def pages_by_themselves() -> dict[str, list[Block]]:
    """Offline examples that need each other's files, in their order: a page's, and those of all that drive the rig."""
    groups: dict[str, list[Block]] = {}
    offline = marked(*OFFLINE)
    driving = {block.page for block in offline if "--drive" in block.text}
    for block in offline:
        groups.setdefault(" ".join(sorted(driving)) if block.page in driving else block.page, []).append(block)
    return groups


@pytest.mark.parametrize("pages", pages_by_themselves())
def test_offline_examples(pages: str, served: Workplace) -> None:
    for block in pages_by_themselves()[pages]:
        served.carry_out(block)


@pytest.mark.parametrize("block", [b for b in marked("run: python") if "logs/" in b.text], ids=str)
def test_python_example_with_a_log(block: Block, served: Workplace) -> None:
    (served.folder / "example.py").write_text(served.in_a_test(block.text))
    code, output = served.run("python example.py")
    assert code == 0, output
    assert output.strip()


@pytest.mark.parametrize(
    ("page", "said"),
    [("fidelity.md", r"(Hz:.*){6}"), ("closed-chains.md", r"1 degrees of freedom|2 degrees of freedom")],
)
def test_python_example(page: str, said: str, tmp_path: Path) -> None:
    place = workplace(tmp_path, "python")
    (tmp_path / "example.py").write_text(only("run: python", page).text)
    code, output = place.run("python example.py")
    assert code == 0, output
    assert re.search(said, output, re.S)


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


# --- a machine of root's, a broker in the network --------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("systemctl") is None, reason="systemctl is not installed (Debian: apt install systemd)"
)
def test_commands_of_root(tmp_path: Path) -> None:
    """In a folder that stands for the machine."""
    place = workplace(tmp_path, "root")
    for folder in ("etc/hilserver", "usr/bin"):
        (tmp_path / "machine" / folder).mkdir(parents=True)
    for block in marked("run: root"):
        as_root = [line for line in block.text.splitlines() if os.geteuid() == 0 or not line.startswith("systemd-")]
        code, output = place.run("\n".join(as_root) + "\n")
        assert code == 0, f"{block}:\n{output}"
    etc = tmp_path / "machine/etc"
    assert "CPUAffinity" in (etc / "systemd/system/hilserver.service.d/cpu-affinity.conf").read_text()
    wanted = {path.name for path in (etc / "systemd/system/multi-user.target.wants").iterdir()}
    assert wanted == {"hilserver.service", "hilserver@rig1.service", "hilserver@rig2.service"}


def test_component_of_the_page_works(tmp_path: Path) -> None:
    """Installed as pip would do it: the module and its entry points on the path."""
    place = workplace(tmp_path, "unused")
    project = read_toml(tmp_path / "pyproject.toml")["project"]
    info = tmp_path / "my_components-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {module}" for name, module in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "example.py").write_text(
        f"""{only("run: python", "write-a-component").text}
from pathlib import Path
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.toml import read_toml
library = standard_library()
packed = pack(read_circuit(read_toml(Path("circuits/gap.toml")), library), library)
print([name for name in packed.recorded if name.startswith("leak.")])
"""
    )
    code, output = place.run("python example.py")
    assert (code, output.strip()) == (0, "['leak.q_A', 'leak.q_B']"), output
