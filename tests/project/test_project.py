"""The project as others get it: the wheel, the lock file, the changelog."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hilserver.compiler.levels import levels

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED_EXTRAS = {
    "requirements.lock": ("dev", "embedded-broker"),
    # what "make install" installs
    "requirements-run.lock": ("embedded-broker", "ni", "modbus", "serial", "panel", "export"),
}
SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Installation:
    """The wheel, and a fresh environment in which it is installed."""

    wheel: Path
    prefix: Path

    def run(self, program: str, *arguments: str) -> str:
        """The output of a program of the environment, started away from the checkout."""
        done = subprocess.run(
            [self.prefix / "bin" / program, *arguments], cwd=self.prefix, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Built from a copy of the sources, so that nothing left over from another build gets in."""
    source, built, prefix = (tmp_path_factory.mktemp(name) for name in ("source", "built", "prefix"))
    for folder in ("hilserver", "drivers", "config"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, source]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = built.glob("*.whl")

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True, timeout=120)
    python = prefix / "bin" / "python"
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    # The dependencies come from the environment of this test, after the wheel's own modules. An editable install of
    # hilserver there stays out of sight: Python does not look into .pth files of a folder named in a .pth file.
    (site,) = (prefix / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(wheel, prefix)


def files_below(folder: Path, pattern: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob(pattern)}


def test_wheel_holds_every_module_and_claims_no_generic_name(installation: Installation) -> None:
    names = set(zipfile.ZipFile(installation.wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"hilserver", "hilserver_drivers"}
    sources = {f"hilserver/{name}" for name in files_below(ROOT / "hilserver", "*.py")}
    sources |= files_below(ROOT / "drivers", "*.py")
    assert {name for name in names if name.endswith(".py")} == sources
    assert {"hilserver/py.typed", "hilserver_drivers/py.typed"} <= names


SIMULATION = """
import sys
from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.simulation.circuit_run import run_circuit_file
from pathlib import Path
file = Path(sys.prefix) / "share/hilserver/config/circuits/excavator.toml"
cycle = file.parents[1] / "cycles/excavator.toml"
print(len(run_circuit_file(file, standard_library(), cycle, 0.01).time), standard_program().library._name)
print({"numba", "llvmlite"} & sys.modules.keys())
"""


@pytest.mark.slow
def test_wheel_brings_the_compiled_program(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it, nothing is compiled, no compiler is loaded, and nothing is written."""
    names = set(zipfile.ZipFile(installation.wheel).namelist())
    assert {f"hilserver/compiler/built/{level}.so" for level in levels()} < names
    assert re.search(r"-py3-none-(many)?linux_", installation.wheel.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ticks, library, compilers = installation.run("python", "-c", SIMULATION).split(maxsplit=2)
    assert (ticks, compilers.strip()) == ("10", "set()")
    assert Path(library).is_relative_to(installation.prefix)
    assert not (tmp_path / "hilserver").exists() or not list((tmp_path / "hilserver").iterdir())


@pytest.mark.slow
def test_wheel_brings_the_example_configurations(installation: Installation) -> None:
    examples = files_below(ROOT / "config", "*.toml")
    folders = {"rigs", "circuits", "cycles", "mechanisms", "sequences"}
    assert {name.split("/")[0] for name in examples} == folders
    assert files_below(installation.prefix / "share/hilserver/config", "*") - folders == examples


@pytest.mark.slow
def test_wheel_registers_its_drivers(installation: Installation) -> None:
    script = """
from importlib.metadata import entry_points
for entry in entry_points(group="hilserver.drivers"):
    print(entry.name, __import__("inspect").getfile(entry.load()))
"""
    drivers = dict(line.split(maxsplit=1) for line in installation.run("python", "-c", script).splitlines())
    assert {"simulated", "replay"} <= drivers.keys()
    assert Path(drivers["simulated"]).is_relative_to(installation.prefix)


def test_installed_command_introduces_itself(installation: Installation) -> None:
    text = installation.run("hilserver", "--help")
    for command in ("run", "simulate", "replay", "check", "switch", "status", "export", "bench", "demo"):
        assert re.search(rf"\b{command}\b", text), f"hilserver --help does not name {command}"


def test_decisions_are_numbered_by_their_files() -> None:
    records = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [path.name[:5] for path in records] == [f"{number:04}-" for number in range(1, len(records) + 1)]
    for path in records:
        assert path.read_text().startswith(f"# {path.name[:4]}: ")


def test_changelog_names_the_version() -> None:
    version = Version(PROJECT["version"])
    first, section = re.findall(r"^## \[(.+?)\](.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)[0]
    if version.is_devrelease:
        assert first == "Unreleased"
        assert version.base_version in section
    else:
        assert first == str(version)
        assert re.match(r" - \d{4}-\d{2}-\d{2}$", section.splitlines()[0]), "a release has its date in the heading"


def pins(file: str) -> dict[str, Version]:
    """Name and version of every package in a lock file."""
    found = re.findall(r"^(\S+)==([^\s;]+)", (ROOT / file).read_text(), re.M)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("file", LOCKED_EXTRAS)
def test_lock_satisfies_the_ranges_of_the_project(file: str) -> None:
    extras, locked = PROJECT["optional-dependencies"], pins(file)
    ranges = [*PROJECT["dependencies"], *(text for extra in LOCKED_EXTRAS[file] for text in extras[extra])]
    for requirement in map(Requirement, ranges):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in {file}: run make lock"
        assert version in requirement.specifier, f"{file} has {version} for {requirement}: run make lock"


def test_what_is_installed_is_what_is_tested() -> None:
    assert pins("requirements-run.lock").items() <= pins("requirements.lock").items(), "run make lock"


@pytest.mark.parametrize("file", LOCKED_EXTRAS)
def test_lock_is_complete_for_every_supported_python(file: str) -> None:
    """It was made with one Python; a dependency of another Python only would be missing there."""
    locked = pins(file)
    for python in SUPPORTED_PYTHONS:
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        for package in locked:
            for requirement in map(Requirement, requires(package) or ()):
                if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""}):
                    name = canonicalize_name(requirement.name)
                    assert name in locked, f"{package} needs {requirement} with Python {python}"
                    assert locked[name] in requirement.specifier, f"{package} needs {requirement} with Python {python}"


@pytest.mark.parametrize("file", LOCKED_EXTRAS)
def test_lock_holds_pins_and_hashes_only(file: str) -> None:
    """No address of an index and no path of the machine on which it was made."""
    lines = (ROOT / file).read_text().splitlines()
    code = [line.removesuffix(" \\") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    allowed = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+( ; .+)?|    --hash=sha256:[0-9a-f]{64}")
    assert [line for line in code if not allowed.fullmatch(line)] == []
