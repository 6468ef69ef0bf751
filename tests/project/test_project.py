"""The project as others get it: the source archive, the wheel, the lock file, the changelog."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires
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
    # what "make install" installs: a part of it
    "requirements-run.lock": (
        *(
            "embedded-broker",
            "ni",
            "modbus",
            "serial",
            "panel",
            "export",
            "own-components",
            "compiled-circuits",
            "studies",
            "cluster",
        ),
    ),
}
SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")
BUILT = "hilserver/compiler/built"
COMPILER = {"numba", "llvmlite"}


@dataclass(frozen=True)
class Built:
    """A copy of the sources, and what is built from it."""

    source: Path
    archive: Path
    wheel: Path


@dataclass(frozen=True)
class Installation:
    """A fresh environment in which the wheel is installed."""

    prefix: Path

    def run(self, program: str, *arguments: str | Path) -> str:
        """The output of a program of the environment, started away from the checkout."""
        done = subprocess.run(
            [self.prefix / "bin" / program, *arguments], cwd=self.prefix, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source archive, and from it the wheel; from a copy, so that nothing left over from another build gets in."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for name in ("hilserver", "drivers", "config"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "built")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    run("-m", "build", "--no-isolation", "--outdir", folder, source)
    ((archive,), (wheel,)) = (folder.glob(name) for name in ("*.tar.gz", "*.whl"))
    return Built(source, archive, wheel)


@pytest.fixture(scope="module")
def installation(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """With the packages that "make install" can install, but without a compiler."""
    prefix = tmp_path_factory.mktemp("prefix")
    run("-m", "venv", "--without-pip", prefix)
    python = prefix / "bin" / "python"
    run("-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built.wheel)
    dependencies = prefix / "dependencies"
    dependencies.mkdir()
    for package in pins("requirements-run.lock").keys() - COMPILER:
        link(package, dependencies)
    (site,) = (prefix / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    return Installation(prefix)


def run(*arguments: str | Path, cwd: Path = ROOT) -> None:
    """Run this Python; an error shows what it has written. (The program, if it isn't in the cache, takes minutes.)"""
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


def link(package: str, folder: Path) -> None:
    """Make a package of this environment importable from a folder."""
    with suppress(PackageNotFoundError):  # it is for another version of Python
        found = distribution(package)
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / name).symlink_to(str(found.locate_file(name)))


def files_below(folder: Path, pattern: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob(pattern)}


def test_wheel_holds_every_module_and_claims_no_generic_name(built: Built) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"hilserver", "hilserver_drivers"}
    sources = {f"hilserver/{name}" for name in files_below(ROOT / "hilserver", "*.py")}
    sources |= files_below(ROOT / "drivers", "*.py")
    assert {name for name in names if name.endswith(".py")} == sources
    assert {"hilserver/py.typed", "hilserver_drivers/py.typed"} <= names


@pytest.mark.slow
def test_wheel_brings_the_compiled_program_for_every_python_of_a_platform(built: Built) -> None:
    names = {name for name in zipfile.ZipFile(built.wheel).namelist() if name.startswith(BUILT)}
    files = (*(f"{level}.so" for level in levels()), "circuit.bc", "fmi.so", "hilserver-runner", "fingerprint")
    assert names == {f"{BUILT}/{file}" for file in files}
    platform = sysconfig.get_platform().removeprefix("linux-")
    assert re.search(rf"-py3-none-(manylinux_2_\d+|linux)_{platform}\.whl$", built.wheel.name)


@pytest.mark.slow
def test_source_archive_holds_no_compiled_program(built: Built) -> None:
    with tarfile.open(built.archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "setup.py",
        "pyproject.toml",
        *(f"config/{name}" for name in files_below(ROOT / "config", "*.toml")),
    } < names
    assert not {name for name in names if name.startswith(BUILT) or name.endswith(".so")}


def test_editable_install_compiles_nothing(built: Built, tmp_path: Path) -> None:
    """There, `make` compiles the program."""
    script = "import setuptools.build_meta, sys; setuptools.build_meta.build_editable(sys.argv[1])"
    run("-c", script, tmp_path, cwd=built.source)
    (wheel,) = tmp_path.glob("*.whl")
    assert not {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("hilserver/")}
    assert not (built.source / BUILT).exists()


@pytest.mark.slow
def test_user_simulates_without_a_compiler(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the program from the wheel. Nothing is written but the results."""
    cache, results = tmp_path / "cache", tmp_path / "results"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))  # it stores a list of fonts
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    config = installation.prefix / "share/hilserver/config"
    circuit, cycle = config / "circuits/regenerative.toml", config / "cycles/regenerative.toml"
    installation.run("hilserver", "simulate", circuit, "--cycle", cycle, "--duration", "1", "--output", results)
    assert (results / "regenerative.csv").stat().st_size > 100_000
    assert not list(cache.rglob("*"))


LOADED = """
import ctypes, os, sys
def files(): return {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
before = files()
for file in sys.argv[1:]: ctypes.CDLL(file, mode=os.RTLD_NOW)
print(*sorted(files() - before))
"""


@pytest.mark.slow
def test_compiled_program_needs_only_the_c_library(installation: Installation) -> None:
    (folder,) = installation.prefix.glob(f"lib/python*/site-packages/{BUILT}")
    libraries = sorted(folder.glob("*.so"))
    loaded = installation.run("python", "-I", "-S", "-c", LOADED, *libraries).split()
    assert set(map(str, libraries)) <= set(loaded)
    others = {Path(file).name for file in loaded} - {file.name for file in libraries}
    assert all(re.match(r"lib[cm]\b", name) for name in others), others
    if readelf := shutil.which("readelf"):
        text = subprocess.check_output([readelf, "--wide", "--dynamic", "--dyn-syms", *libraries], text=True)
        assert {name.split(".")[0] for name in re.findall(r"\(NEEDED\) .*\[(.+)\]", text)} <= {"libc", "libm"}
        undefined = set(re.findall(r"GLOBAL .* UND ([^@\s]+)(?!.*@GLIBC)", text))
        assert undefined <= {"memset", "memcpy", "memmove"}, "of another library than the C library"


@pytest.mark.slow
def test_wheel_brings_the_example_configurations(installation: Installation) -> None:
    examples = files_below(ROOT / "config", "*.toml")
    folders = {"rigs", "circuits", "cycles", "mechanisms", "sequences", "studies", "catalogue"}
    assert {name.split("/")[0] for name in examples} == folders
    below = files_below(installation.prefix / "share/hilserver/config", "*")
    assert below - folders - {"circuits/parts"} == examples


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


def test_installed_versions_are_the_tested_ones() -> None:
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
