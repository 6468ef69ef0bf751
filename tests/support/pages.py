"""The blocks of code on the documentation's pages, and a place to carry them out.

Every block says in a comment before it what it is:

- ``run: offline`` (``refused``: must end with an error; ``any exit code``), ``run: live`` (against one running server),
  ``run: python``, ``run: live python``, and others for which there is one test each; ``run: first`` makes a file that
  blocks of other pages use;
- ``check: rig`` (``circuit``, ``cycle``: a fragment, put over the demo's file; ``whole circuit``);
- ``file: FILE`` (is written there for the other blocks), ``excerpt: FILE`` (stands there so), ``message: TOPIC``;
- ``tested: FILE::TEST`` (that test takes it from the page), ``not run: REASON``.

What a command is shown to print must come in that order; numbers may differ.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from longer_steps import in_longer_steps

from hilserver.cli import main
from hilserver.service.broker import _free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = sorted(
    [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "config/README.md")), *DOCS.rglob("*.md")]
)
DEMO = "config/rigs/demo.toml"
LONGER = "config/rigs/longer.toml"
"""The same rig with more of its work cycle than the others run: its strategies differ as they do in all of it."""
LENIENT = 'max_age = "10 s"\nheartbeat_timeout = "20 s"'
"""Limits of the pages' rig: the machine that runs the tests may be busy."""
ARMED_WITHIN = 120.0
"""Seconds in which the check before arming ends, even if it hardly gets a processor."""
EARTHQUAKE, OF_PLANTS = 22.0, 10.0
"""s of the benchmark of real-time hybrid simulation, by which what is shown to be unstable is; also of other plants."""
SHAKEN = "10 s"
"""As much of the earthquake is run on the rig with an actuator: enough for ``direct`` to trip."""
OFFLINE, LIVE = (
    tuple(f"run: {kind}{end}" for end in ("", ", refused", ", any exit code")) for kind in ("offline", "live")
)

BLOCK = re.compile(r"(?:^<!-- (.*?) -->\n)?^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
ANSWER = re.compile(r"(let it settle, enter it:|\[y/N\]:) ?(.*)$", re.M)
"""A question of a dialogue, and what is typed."""

IN_A_TEST = (
    # A rig of the test's own, nobody to be asked, seconds instead of minutes.
    (r"^hilserver demo", f"hilserver demo --rig {DEMO}"),
    (r"^hilserver identify .* --drive", r"\g<0> --yes --seconds 5"),
    (
        r"^hilserver identify config/rigs/lift.toml",
        r"\g<0> --seconds 5 --no-end-stops",
    ),  # tests/identify does it in full
    (r"--largest 0\.\d", "--largest 0.5"),  # the piston is sooner in the middle
    (r"^hilserver fidelity .* --drive", r"\g<0> --yes --frequency 5"),
    (r"^hilserver fidelity (.*) --strategy all", r"hilserver fidelity \1 --strategy prediction --no-sweep"),
    (
        r"^hilserver simulate config/rigs/demo.toml",
        f"hilserver simulate {LONGER} --strategy inverse_static --strategy prediction",
    ),
    (r"^hilserver simulate config/rigs/lab.toml", r"\g<0> --strategy prediction"),
    (r"^hilserver fidelity (.*) --vary --rigs \d+", r"hilserver fidelity \1 --vary --rigs 1"),
    (r"^(hilserver rths .*--plants) \d+", r"\1 1"),
    (r"^(hilserver size .*--samples) \d+", r"\1 2"),
    (
        r"^hilserver study (?!.*--(set|repeat))",
        r"\g<0>--workers 0 ",
    ),  # of a few runs; a process's start takes 2 s
    (r"^hilserver simulate config/circuits/.*", r"\g<0> --duration 0.5"),
    (r"^hilserver experiment slider-crank", r"\g<0> --seconds 1"),
    (r"^hilserver experiment loop", r"\g<0> --joints 5 --seconds 1"),
    (r"^hilserver check .* --run (?!.*--seconds)", r"\g<0>--seconds 1 "),
    (r"^(python docs/experiments/identification_coverage.py --rig lift) --rigs \d+", r"\1 --seconds 3 --rigs 1"),
    (r"^(python docs/experiments/identified_rigs.py) --rigs \d+", r"\1 --seconds 3 --rigs 1 --tared"),
    (r"^python docs/experiments/identified_rigs.py .*--file another", r"\g<0> --no-sweep"),
    (r"^hilserver latency (?!.*--duration)", r"\g<0>--duration 0.2 --busy 0.1 "),  # the load is in tests/bench
    (r"^(hilserver latency --duration) 1 ", r"\1 0.2 --busy 0.1 "),
    (r"^hilserver bench config/rigs/lab.toml", r"\g<0> --ticks 200 --repeats 1 --no-rates"),
    (r"--ticks 1000 --repeats 3 --rate 500 --duration 1", "--ticks 200 --repeats 1 --rate 500 --duration 0.5"),
    (r"--rate 10000 --duration 60", "--ticks 200 --repeats 1 --rate 1000 --duration 0.5"),
    (r"--tolerance 30", "--tolerance 100000"),  # other tests run beside it
    (r"experiment boom -o reports", "experiment boom -o reports --seconds 0.5"),
    (
        r'tests/service/test_soak.py --soak "2 h" --soak-report soak.txt',
        rf'\g<0> --collect-only -q -c "{ROOT}/pyproject.toml"',
    ),  # 60 s of it are a test
    # Root's commands: in a folder that stands for the machine, as any user. The program is installed by other tests.
    (r"^make install ", f'make -C "{ROOT}" install-service DESTDIR="$MACHINE" '),
    (r"^systemd-sysusers", 'systemd-sysusers --root="$MACHINE" hilserver.conf'),
    (r"^systemd-tmpfiles", 'systemd-tmpfiles --root="$MACHINE" hilserver.conf'),
    (r"^systemctl enable", 'systemctl --root="$MACHINE" enable'),
    (r"^systemctl restart mosquitto", ":"),  # the test starts it
    (r"-o root -g mosquitto ", ""),
    (r"mosquitto_passwd (\S+) \$name", r"mosquitto_passwd -b \1 $name secret"),
    (r"(?<![\w/])/(usr/share|etc|root)/", r"$MACHINE/\1/"),
)
"""What a test does instead of what a page says: patterns and their replacements, line by line."""


SENT = re.compile(r"hilserver (send|switch) .*")
"""Carried out in this process, without a process's start; others need the time until the state has come."""
HERE = re.compile(r"((hilserver (?!doctor|latency|bench)|python docs/experiments/)[^;&|<>$\n]*\n?)+")
"""Of the offline examples, all but what needs a shell, and what looks at its own process and at the clock."""


@contextlib.contextmanager
def shortened(script: str, folder: Path) -> Iterator[None]:
    """In this context, commands of the pages compute less where no option says so; other tests do it in full.

    ``folder``: of the workplace.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as at_the_end:
        patch.setattr("hilserver.report.plots.DPI", 30)  # of 120: tests/report
        if "--worst" in script:
            patch.setattr("hilserver.studies.worst.GENERATIONS", 4)  # of 40: tests/studies
        if " --run" in script or "commission(" in script:
            patch.setattr("hilserver.virtual_commissioning.cases.STROKES", (0.1, 0.5))  # tests/virtual_commissioning
        if "identified_rigs.py" in script:
            import identification_coverage

            patch.setattr(identification_coverage, "CONFIG", folder / "config/rigs")  # with a shorter work cycle
        if "experiment loop" in script:
            patch.setattr("hilserver.bench.closed_chains.BURST", 0.0)  # s for which two threads wait for each other
        if "hilserver rths" in script:
            from hilserver.hybrid import benchmark

            seconds = OF_PLANTS if "--plants" in script else EARTHQUAKE
            begin = benchmark.el_centro()[: round(seconds / benchmark.DT)]  # of 64 s: tests/hybrid
            patch.setattr(benchmark, "el_centro", lambda: begin)
            benchmark.reference.cache_clear()
            at_the_end.callback(benchmark.reference.cache_clear)
        yield


@dataclass(frozen=True)
class Block:
    """A block of code on a page and the comment before it."""

    page: str
    line: int
    mark: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Commands with what they are shown to print; of a script all in one."""
        if self.language != "console":
            return [(self.text, "")]
        parts = [part.partition("\n") for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]]
        return [(command, shown) for command, _, shown in parts]


def blocks() -> Iterator[Block]:
    """All blocks of all pages."""
    for file in FILES:
        text = file.read_text()
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start(3)) + 1
            yield Block(file.relative_to(ROOT).as_posix(), line, found[1] or "", found[3], found[4])


BLOCKS = list(blocks())


def marked(*marks: str) -> list[Block]:
    """The blocks with one of these marks."""
    return [block for block in BLOCKS if block.mark in marks]


def only(mark: str, page: str = "") -> Block:
    """The only block with this mark."""
    (block,) = (block for block in marked(mark) if page in block.page)
    return block


def of_kind(kind: str) -> list[Block]:
    """The blocks whose mark begins so."""
    return [block for block in BLOCKS if block.mark.startswith(kind)]


IN_REAL_TIME = re.compile(r"--drive|_lab\.arrow|hilserver (latency|bench)")
"""What drives a rig, reads the log of a drive, or measures times."""


def driving_examples(*, drive: bool) -> list[Block]:
    """Of the examples in real time, those of the pages that drive a rig, or the others."""
    groups = offline_examples(in_real_time=True).values()
    return [block for group in groups for block in group if drive == any("--drive" in each.text for each in group)]


def offline_examples(*, in_real_time: bool) -> dict[str, list[Block]]:
    """Offline examples that need each other's files, in their order: a page's, and those of all that drive the rig."""
    groups: dict[str, list[Block]] = {}
    offline = [block for block in marked(*OFFLINE) if bool(IN_REAL_TIME.search(block.text)) == in_real_time]
    driving = {block.page for block in offline if "--drive" in block.text}
    for block in offline:
        groups.setdefault(" ".join(sorted(driving)) if block.page in driving else block.page, []).append(block)
    return groups


@dataclass(frozen=True)
class Workplace:
    """A folder with the files of the pages, in which commands are run; its rigs have names of their own."""

    folder: Path
    rigs: Mapping[str, str]
    """Name on the pages -> name here."""
    environment: dict[str, str] = field(default_factory=dict)

    def in_a_test(self, script: str) -> str:
        """What a page says, as it is done here."""
        for name, own in self.rigs.items():
            script = script.replace(f'"{name}"', f'"{own}"').replace(f"hil/{name}/", f"hil/{own}/")
        script = re.sub(r"logs/[\dT-]+_(\w+)\.arrow", lambda found: self.log(found[1]), script)
        for pattern, replacement in IN_A_TEST:
            script = re.sub(pattern, replacement, script, flags=re.M)
        return script

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start one command."""
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.PIPE}
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin",
            "COLUMNS": "250",
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "XDG_STATE_HOME": os.environ.get("XDG_STATE_HOME", str(Path.home() / ".local" / "state")),
            "MACHINE": str(self.folder / "machine"),
            **self.environment,
        }
        environment.pop("PYTEST_CURRENT_TEST", None)  # by which NiceGUI thinks that it is to be tested
        arguments = ["/bin/sh", "-ec", command if "\n" in command.strip() else f"exec {command}"]
        return subprocess.Popen(arguments, cwd=self.folder, env=environment, text=True, **both)  # type: ignore[call-overload,no-any-return]

    def run(self, script: str, typed: str = "") -> tuple[int, str]:
        """Run a command or script as a test does it; returns exit code and output."""
        process = self.start(self.in_a_test(script))
        output, _ = process.communicate(typed, timeout=300)
        return process.returncode, output

    def run_python_here(self, file: str) -> str:
        """Run a Python file in this process, which has loaded and compiled most of what it uses; returns its output."""
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, shortened((self.folder / file).read_text(), self.folder):
            patch.chdir(self.folder)
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(self.folder / file), run_name="__main__")
        return output.getvalue()

    def run_here(self, script: str) -> tuple[int, str]:
        """The same for commands of hilserver and experiments, in this process, which needs no time to start."""
        output, code = io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, shortened(script, self.folder):
            patch.chdir(self.folder)
            patch.setenv("COLUMNS", "250")
            patch.setenv("XDG_RUNTIME_DIR", str(self.folder))
            for command in self.in_a_test(script).splitlines():
                program, *arguments = shlex.split(command, comments=True)
                patch.setattr(sys, "argv", arguments if program == "python" else [program, *arguments])
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                    try:
                        runpy.run_path(sys.argv[0], run_name="__main__") if program == "python" else main()
                    except SystemExit as ended:
                        code = int(ended.code or 0)
                if code:
                    break
        return code, output.getvalue()

    def log(self, rig: str) -> str:
        """The latest log of a rig, by its name on the pages."""
        logs = sorted((self.folder / "logs").glob(f"*_{self.rigs[rig]}.arrow"))
        assert logs, f"no log of {rig}"
        return str(logs[-1].relative_to(self.folder))

    def plain(self, text: str) -> str:
        """What is compared: rigs by the names they have on the pages, 0 for every number, one space for many."""
        for name, own in self.rigs.items():
            text = text.replace(own, name)
        return " ".join(re.sub(r"\d+([.,]\d+)*(e[-+]?\d+)?", "0", text).split())

    def compare(self, command: str, shown: str, output: str) -> None:
        """Fails unless all that is shown was printed, in that order."""
        rest = self.plain(output)
        for line in filter(None, map(self.plain, ANSWER.sub(r"\1", shown).splitlines())):
            assert line in rest, f"{command}: not printed (any more): {line}\n{output}"
            rest = rest.split(line, 1)[1]

    def carry_out_new(self, blocks: Sequence[Block]) -> None:
        """The same for several blocks; of scripts, a line that an earlier one contained in the same form is left out.

        They differ only in what a test shortens (how far the valves are driven).
        """
        done: set[str] = set()
        for block in blocks:
            if block.language == "console":
                self.carry_out(block)
                continue
            lines = {self.in_a_test(line): line for line in block.text.splitlines()}
            new = "\n".join(line for key, line in lines.items() if key not in done)
            done |= lines.keys()
            if new:
                self.carry_out(replace(block, text=new))

    def carry_out(self, block: Block) -> None:
        """Run the commands of a block one after the other."""
        for command, shown in block.commands:
            here = HERE if block.mark in OFFLINE else SENT
            run = self.run_here if here.fullmatch(command.strip()) else self.run
            code, output = run(command)
            deadline = time.monotonic() + ARMED_WITHIN
            while "Try again then." in output and "refused" not in block.mark and time.monotonic() < deadline:
                code, output = run(command)  # the check before arming is slow on a busy machine
            right = "any exit code" in block.mark or (code != 0) == block.mark.endswith("refused")
            assert right, f"{block}: {command}: exit code {code}\n{output}"
            self.compare(f"{block}: {command}", shown, output)


def workplace(folder: Path, name: str, files: Sequence[Block] = (), cycle: str = "8 s") -> Workplace:
    """A folder with the example configurations and the repository's tests; the demo's rig is called ``demo-<name>``.

    ``cycle``: as much of the lift's work cycle is run.
    """
    rigs = {rig: f"{rig}-{os.getpid()}-{name}" for rig in ("demo", "lab")}
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "docs").symlink_to(ROOT / "docs")
    for block in files or of_kind("file: "):
        file = folder / block.mark.removeprefix("file: ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text)
    demo = folder / DEMO
    text = demo.read_text().replace('name = "demo"', f'name = "{rigs["demo"]}"')
    patient = text.replace("max_missed = 1000 ", "max_missed = 10000 ").replace('max_age = "1 s"', LENIENT)
    demo.write_text(patient)  # the machine may be busy
    lift = folder / "config/cycles/lift.toml"
    (folder / "config/cycles/longer.toml").write_text(f'length = "4 s"\n{lift.read_text()}')
    (folder / LONGER).write_text(patient.replace("cycles/lift.toml", "cycles/longer.toml"))
    lift.write_text(f'length = "{cycle}"\n{lift.read_text()}')
    earthquake = folder / "config/cycles/el_centro.toml"
    earthquake.write_text(f'length = "{SHAKEN}"\n{earthquake.read_text()}')
    of_rigs = ("lift", "machine", "drive", "lift_machine", "conveyor_machine", "two_valves")
    in_longer_steps(*(folder / f"config/circuits/{name}.toml" for name in of_rigs))
    for study in (folder / "config/studies").glob("*.toml"):
        text = study.read_text()
        few = "samples = 2" if "\nrig = " in text else "samples = 8"
        study.write_text(re.sub(r"^samples = \d+", few, text, flags=re.M))
    return Workplace(folder, rigs)


def said_until(process: subprocess.Popen[str], words: str) -> str:
    """What a process prints up to and with the line that begins so."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            break
    return said


def end(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, as on the pages; returns what was printed last."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


def page_of(place: Workplace, command: str, context: ssl.SSLContext | None = None) -> str:
    """Start a panel on a free port of this computer, read the page that it serves, and end it."""
    command = re.sub(r"--host \S+|--port \S+", "", command).strip() + f" --port {_free_port()}"
    panel = place.start(place.in_a_test(command))
    try:
        address = re.search(r"https?://\S+", said_until(panel, "Ctrl-C ends it"))
        assert address is not None
        url = address[0].replace("127.0.0.1", "localhost")
        browser = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor()
        )
        deadline = time.monotonic() + 30.0
        while True:
            try:
                with browser.open(url) as answer:
                    return str(answer.read().decode())
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        end(panel)


def over(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``part`` in it; a fixed channel, and a scale, replace another as a whole."""
    merged = dict(base)
    for key, value in part.items():
        both_tables = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = over(base[key], value) if both_tables and "value" not in value and key != "scale" else value
    return merged


def inline(value: object) -> str:
    """A value in TOML, tables as inline tables; texts and numbers are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)
