"""A new rig from a template: its files in a folder of their own, ready to run and to be adapted."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from hilserver.commissioning.answered_rig import (
    STEP,
    amplitude,
    answered_texts,
    answers_file,
    raised,
    values_table,
)
from hilserver.commissioning.answered_rig import TEMPLATES as TEMPLATES_BY_VALVES
from hilserver.commissioning.questions import Answers, completed
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.margins.margins import margins
from hilserver.rig.build import load_rig
from hilserver.toml import read_toml

TEMPLATES = {
    "demo": "one servo valve for both ports of the cylinder",
    "lift": "a servo valve for each port",
    "boom": "a boom as a mechanism of bodies and joints",
    "conveyor": "a hydraulic motor with a servo valve for each port",
}
RIG = Path("rig.toml")
TEST = Path("test.toml")
ANSWERS = Path("answers.toml")


@dataclass(frozen=True)
class Movement:
    """What the test sequence expects of the machine, ``name`` in words: the ``least`` value of a channel, and when."""

    least: str
    name: str = "the load rises"
    channel: str = "x"
    at: str = "1.8 s"
    until: str = "2.4 s"


MOVEMENTS = {
    "demo": Movement("210 mm"),
    "lift": Movement("260 mm"),
    "boom": Movement("330 mm"),
    "conveyor": Movement("100 rpm", "the motor turns", "n", "1.2 s", "1.5 s"),
}
"""Of cylinders, a position 10 mm above that of the simulated machine at the start."""
ROOM = """\
reactions = 4                 # armed at the same time, at most (send = "react"); each takes 120 bytes of a row
playouts = 2                  # running at the same time, at most (send = "play"); each takes 264 bytes of a row
"""
"""Added to the loop of the examples, which the guides measure without it."""
LOOP = re.compile(r"^\[loop\]\n(?:.+\n)+", re.MULTILINE)
README = """# {name}

A test rig for hilserver, made from the template `{template}` ({text}).
{machine}

    hilserver check rig.toml       # what is configured, and every problem in it
{trial}
    hilserver run rig.toml         # in real time, until Ctrl-C
    hilserver panel                # in a second terminal: operate it in the browser

The virtual circuit is `{circuit}`. `hilserver components` lists the component types that it may contain.

For your own rig, edit `rig.toml`:

1. {card}
2. Adapt `[channels]` to its sensors, `[{actuators}]` and `[valves]` to the datasheets of {actuator} and servo valve,
   and `[limits]` to what the rig can withstand.
3. Adapt the steps and expectations of the test sequence `test.toml`; `hilserver test test.toml --live -` runs it on
   the running rig.
4. Run `hilserver check rig.toml`, and `hilserver doctor rig.toml` on the computer of the rig.

Then follow the guide to commissioning in the documentation of hilserver.
"""
SIMULATED = "Its machine is simulated at first."
TRY_SIMULATED = """\
    hilserver simulate rig.toml    # how closely the rig follows its virtual circuit
    hilserver test test.toml       # a test sequence: steps, and what the rig must do; passes on the simulated rig"""
REPLACE = "Replace `[devices]` with your I/O card; `hilserver channels` lists the cards found and their channels."
REAL = "Its devices are real: nothing has been tested on them yet."
TRY_REAL = """\
    hilserver check rig.toml --run # the same in simulation, with the machine as rig.toml describes it
    hilserver channels rig.toml    # what the sensors read; writes nothing"""
COMPARE = "Compare `[devices]` with the wiring, and the values of `hilserver channels rig.toml` with gauges."
"""What the README says of a simulated machine, and of a real one."""

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
points = [["0.5 s", 0.0], ["0.8 s", {step}], ["1.5 s", {step}], ["1.8 s", 0.0]]

[[expect]]
name = "running after the start"
channel = "mode"
value = "RUNNING"
after = "start"
until = "2.2 s"

[[expect]]
name = "{moved.name}"
channel = "{moved.channel}"
at = "{moved.at}"
until = "{moved.until}"
min = "{moved.least}"

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

    def texts() -> dict[Path, str]:
        found = example_texts(template)
        found[RIG] = found[RIG].replace(f'name = "{template.stem}"', f'name = "{name}"', 1)
        return {path: _with_valve(text, valve) if valve else text for path, text in found.items()}

    return _created(folder, lambda part: _write(part, texts(), template.stem, MOVEMENTS[template.stem]))


def answered_rig(folder: Path, examples: Path, answers: Answers) -> list[Path]:
    """Create a folder like `new_rig` from answers to all questions; ``examples``: the folder of the example rigs.

    The folder also contains the answers, as a file. Raises HilserverError like `new_rig`, and where the rig would not
    pass its check.
    """

    def write(part: Path) -> list[Path]:
        written = _write_answered(part, examples, answers)
        _refuse_unstable(part)
        (part / ANSWERS).write_text(answers_file(answers))
        with (part / "README.md").open("a") as readme:
            readme.write("\n".join(["", "## Where the values come from", "", *values_table(answers), ""]))
        return [*written, ANSWERS]

    return _created(folder, write)


def refuse_impossible(answers: Answers, examples: Path) -> None:
    """Raise ConfigurationError if no rig can be made from these answers and the defaults of all other questions."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            _write_answered(Path(folder), examples, completed(answers))
        except ConfigurationError as error:
            raise ConfigurationError(Problem(each.message, each.key) for each in error.problems) from None


def _write_answered(folder: Path, examples: Path, answers: Answers) -> list[Path]:
    template = TEMPLATES_BY_VALVES[answers["servo_valves"]]
    texts = answered_texts(example_texts(examples / f"{template}.toml"), RIG, answers)
    return _write(folder, texts, template, Movement(raised(answers)), amplitude(answers))


def refuse_used(folder: Path) -> None:
    """Raise HilserverError unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HilserverError(f"{folder}: exists and is not an empty folder. Give the name of a new one.")


def _created(folder: Path, write: Callable[[Path], list[Path]]) -> list[Path]:
    """A new folder, filled by ``write``, or none. Returns its files; raises HilserverError."""
    refuse_used(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as part:
            try:
                written = write(Path(part))
            except ConfigurationError as error:  # names of files as if they were kept
                named = [replace(each, file=each.file.replace(part, str(folder))) for each in error.problems]
                raise ConfigurationError(named) from None
            if folder.exists():
                folder.rmdir()
            shutil.copytree(part, folder)
    except OSError as error:
        raise HilserverError(f"{folder}: can't be created: {error.strerror or error}.") from error
    return [folder / path for path in written]


def example_texts(template: Path) -> dict[Path, str]:
    """The texts of an example rig and of all files that it refers to, as they are named in the new folder."""
    template = template.resolve()
    base = template.parents[1]
    others = {file.relative_to(base): file.read_text() for file in _referred(template) if file != template}
    rig = LOOP.sub(lambda loop: loop[0] + ROOM, template.read_text(), count=1)
    return {RIG: rig.replace('"../', '"'), **others}


def _write(folder: Path, texts: Mapping[Path, str], template: str, moved: Movement, share: float = 1.0) -> list[Path]:
    """Write the files, with a test sequence and a README. ``share``: of the test sequence's usual command."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    rig = load_rig(folder / RIG)
    circuit = read_toml(folder / RIG)["circuit"]
    is_real = any(device.is_hardware for device in rig.devices)
    machine, trial, card = (REAL, TRY_REAL, COMPARE) if is_real else (SIMULATED, TRY_SIMULATED, REPLACE)
    about = README.format(
        name=rig.settings.name,
        template=template,
        text=TEMPLATES[template],
        circuit=circuit,
        machine=machine,
        trial=trial,
        card=card,
        actuators="motors" if rig.settings.motors else "cylinders",
        actuator="motor" if rig.settings.motors else "cylinder",
    )
    (folder / "README.md").write_text(about)
    sequence = SEQUENCE.format(valve=next(iter(rig.settings.valves)), moved=moved, step=f"{share * STEP:.3g}")
    (folder / TEST).write_text(sequence)
    return [*texts, TEST, Path("README.md")]


def _refuse_unstable(folder: Path) -> None:
    """Raise ConfigurationError if the rig would not be armed: a device too slow for its circuit and machine."""
    rig = load_rig(folder / RIG)
    found = margins(rig, compiled_program(rig.library))
    configured = {valve.bridge.strategy for valve in rig.settings.valves.values()}
    if refusals := [Problem(text, "rate") for text in found.refusals(rig, configured)]:
        raise ConfigurationError(refusals)


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
