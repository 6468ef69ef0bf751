"""Compiles the program into the wheel. Everything else is in pyproject.toml."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
BUILT = Path("hilserver/compiler/built")


class BuildWithProgram(build_py):
    """Copies the Python files and compiles the program beside them; not for an editable install, where `make` does."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / BUILT
            path = os.pathsep.join([str(ROOT), str(ROOT / "drivers"), *sys.path])
            command = [sys.executable, "-m", "hilserver.compiler", str(folder)]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})


class WithMachineCode(Distribution):
    """Not a pure Python package."""

    def has_ext_modules(self) -> bool:
        """Say so."""
        return True


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and any version of Python: its shared libraries use the C library only."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag with the oldest C library that has all symbols."""
        platform = super().get_tag()[2]
        versions = [
            tuple(map(int, version))
            for file in (Path(self.bdist_dir) / BUILT).glob("*.so")
            for version in re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes())
        ]
        major, minor = max(versions)
        return "py3", "none", re.sub("^linux", f"manylinux_{major}_{minor}", platform)


setup(distclass=WithMachineCode, cmdclass={"build_py": BuildWithProgram, "bdist_wheel": PlatformWheel})
