"""Compiles the program into the wheel. Everything else is in pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BUILT = Path("hilserver/compiler/built")


class BuildWithProgram(build_py):
    """Copies the Python files and compiles the program from the copies; not for an editable install: `make` does it."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            root = Path(self.build_lib).absolute()
            shutil.rmtree(root / BUILT, ignore_errors=True)  # left from an earlier build
            command = [sys.executable, "-B", "-m", "hilserver.compiler", str(root / BUILT)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # an isolated build has its own
            subprocess.run(command, check=True, cwd=root, env=environment)


class WithMachineCode(Distribution):
    """Not a pure Python package."""

    def has_ext_modules(self) -> bool:
        """Say so."""
        return True


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and any version of Python: its shared libraries use the C library only."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag names the oldest C library that has all symbols. (An editable install contains no program.)"""
        platform = super().get_tag()[2]
        versions = {
            (int(major), int(minor))
            for file in (Path(self.bdist_dir) / BUILT).glob("*.so")
            for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes())
        }
        if versions:
            major, minor = max(versions)
            platform = re.sub("^linux", f"manylinux_{major}_{minor}", platform)
        return "py3", "none", platform


setup(distclass=WithMachineCode, cmdclass={"build_py": BuildWithProgram, "bdist_wheel": PlatformWheel})
