"""A new rig from a template: its files in a folder of their own, ready to run and to be adapted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.rig.build import load_rig
from hilserver.toml import read_toml

TEMPLATES = {
    "demo": "one servo valve for both ports of the cylinder",
    "lift": "a servo valve for each port",
    "boom": "a boom as a mechanism of bodies and joints",
}
RIG = Path("rig.toml")
TEST = Path("test.toml")
RAISED = {"demo": "210 mm", "lift": "260 mm", "boom": "330 mm"}
"""Position that the cylinder reaches in the test sequence: 10 mm above that of the simulated machine at the start."""
README = """# {name}

A test rig for hilserver, made from the template `{template}` ({text}). Its machine is simulated at first.

    hilserver check rig.toml       # what is configured, and every problem in it
    hilserver simulate rig.toml    # how closely the rig follows its virtual circuit
    hilserver test test.toml       # a test sequence: steps, and what the rig must do; passes on the simulated rig
    hilserver run rig.toml         # in real time, until Ctrl-C
    hilserver panel rig.toml       # in a second terminal: operate it in the browser

The virtual circuit is `{circuit}`. `hilserver components` lists the component types that it may contain.

For your own rig, edit `rig.toml`:

1. Replace `[devices]` by your I/O card; `hilserver channels` lists the cards found and their channels.
2. Adapt `[channels]` to its sensors, `[cylinders]` and `[valves]` to the datasheets of cylinder and servo valve, and
   `[limits]` to what the rig can withstand.
3. Adapt the steps and expectations of the test sequence `test.toml`; `hilserver test test.toml --live -` runs it on
   the running rig.
4. Run `hilserver check rig.toml`, and `hilserver doctor rig.toml` on the computer of the rig.

Then follow the guide to commissioning in the documentation of hilserver.
"""

SEQUENCE = """\
# hilserver test test.toml runs this in simulation, as fast as possible; with --live on the running rig.

description = "The rig starts, follows the joystick, and ends at null"
rig = "rig.toml"
length = "3 s"

[[step]]
at = "0.1 s"
send = "arm"

[[step]]
at = "0.2 s"
name = "start"
send = "start"

[[step]]
at = "2.5 s"
name = "stop"
send = "stop"

[inputs.joystick]
shape = "step"
points = [["0.5 s", 0.0], ["0.8 s", 0.4], ["1.5 s", 0.4], ["1.8 s", 0.0]]

[[expect]]
name = "running after the start"
channel = "mode"
value = "RUNNING"
after = "start"
until = "2.2 s"

[[expect]]
name = "the load rises"
channel = "x"
at = "1.8 s"
until = "2.4 s"
min = "{raised}"

[[expect]]
name = "the valve ends at null"
channel = "valve.{valve}.command"
after = "stop"
delay = "200 ms"
value = 0
tolerance = 0.001
"""


def new_rig(folder: Path, template: Path, name: str, valve: Mapping[str, str]) -> list[Path]:
    """Create a folder with the rig ``template`` (one of the examples) and all files that it refers to, a test
    sequence, and a README.

    ``valve``: datasheet values of the real valves, as written in a rig file: ``flow``, ``drop`` (of the nominal flow,
    per edge), ``f90``. They apply to the simulated servo valves, too. Returns the files. Raises HilserverError if the
    folder is not new or empty or can't be written, or if a value is not accepted; then nothing is created.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HilserverError(f"{folder}: exists and is not an empty folder. Give the name of a new one.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as part:
            try:
                written = _write(Path(part), template, name, valve)
            except ConfigurationError as error:  # names of files as if they were kept
                named = [replace(each, file=each.file.replace(part, str(folder))) for each in error.problems]
                raise ConfigurationError(named) from None
            if folder.exists():
                folder.rmdir()
            shutil.copytree(part, folder)
    except OSError as error:
        raise HilserverError(f"{folder}: can't be created: {error.strerror or error}.") from error
    return [folder / path for path in written]


def _write(folder: Path, template: Path, name: str, valve: Mapping[str, str]) -> list[Path]:
    base = template.parents[1]
    texts = {file.relative_to(base): file.read_text() for file in _referred(template) if file != template}
    rig_text = template.read_text().replace(f'name = "{template.stem}"', f'name = "{name}"', 1).replace('"../', '"')
    texts = {RIG: rig_text, **texts}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(_with_valve(text, valve) if valve else text)
    rig = load_rig(folder / RIG)
    circuit = read_toml(folder / RIG)["circuit"]
    about = README.format(
        name=rig.settings.name, template=template.stem, text=TEMPLATES[template.stem], circuit=circuit
    )
    (folder / "README.md").write_text(about)
    sequence = SEQUENCE.format(valve=next(iter(rig.settings.valves)), raised=RAISED[template.stem])
    (folder / TEST).write_text(sequence)
    return [*texts, TEST, Path("README.md")]


def _referred(file: Path) -> Iterator[Path]:
    """A file of the examples, and all that it refers to, directly or not."""
    found: list[Path] = [file.resolve()]
    for each in found:
        for text in _texts(read_toml(each)):
            named = (each.parent / text).resolve()
            if text.endswith(".toml") and named.is_file() and named not in found:
                found.append(named)
    return iter(found)


def _texts(value: object) -> Iterator[str]:
    """All texts in a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _with_valve(text: str, valve: Mapping[str, str]) -> str:
    """The text of a rig file or circuit with these values in its real servo valves; comments and order are kept."""
    document: Any = tomlkit.parse(text)
    simulated = [c for c in document.get("components", {}).values() if c.get("type") == "servo_valve"]
    for table in (*document.get("valves", {}).values(), *simulated):
        for key in ("flow", "drop"):
            if key in valve:
                table["nominal_flow"][key] = valve[key]
        if "f90" in valve:
            table["f90"] = valve["f90"]
    return tomlkit.dumps(document)
