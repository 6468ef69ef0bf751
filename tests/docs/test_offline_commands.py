"""The commands on the documentation's pages that need no server and no clock: carried out in one folder."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from pages import DEMO, Block, Workplace, marked, offline_examples, only, workplace

from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import read_toml

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with a log of the demo rig, recorded in a simulation."""
    place = workplace(tmp_path_factory.mktemp("docs"), "docs", cycle="2 s")
    place.carry_out(only("run: first"))
    (place.folder / "logs").mkdir(exist_ok=True)
    log = place.folder / f"logs/2026-11-21T01-17-45_{place.rigs['demo']}.arrow"
    with LockstepRun(load_rig(place.folder / DEMO), log) as run:
        run.start()
        run.run(3000)
    return place


@pytest.mark.parametrize("pages", offline_examples(in_real_time=False))
def test_examples(pages: str, recorded: Workplace) -> None:
    for block in offline_examples(in_real_time=False)[pages]:
        recorded.carry_out(block)


@pytest.mark.parametrize("block", [b for b in marked("run: python") if "logs/" in b.text], ids=str)
def test_python_example_with_a_log(block: Block, recorded: Workplace) -> None:
    (recorded.folder / "example.py").write_text(recorded.in_a_test(block.text))
    code, output = recorded.run("python example.py")
    assert code == 0, output
    assert output.strip()


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("fidelity.md", r"(Hz:.*){6}"),
        ("closed-chains.md", r"1 degrees of freedom|2 degrees of freedom"),
        ("virtual-commissioning.md", r"prediction: fit"),
        ("rths.md", r"mm"),
        ("fmu.md", r"\d bar, .*\d mm"),
        ("studies.md", r"bar in the worst of 56 runs"),
    ],
)
def test_python_example(page: str, said: str, tmp_path: Path) -> None:
    place = workplace(tmp_path, "python")
    example = only("run: python", page).text
    if "workers=2" in example:  # which import the file, and take 2 s to start
        assert re.search(r"\nif __name__ == .__main__.:.*\n( .*\n)*$", example), "each process would start others"
    (tmp_path / "example.py").write_text(example.replace("workers=2", "workers=0"))
    assert re.search(said, place.run_python_here("example.py"), re.S)


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
