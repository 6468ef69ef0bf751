"""Components in a Python file of the user, loaded from its text, so that all processes have the same components.

The text is passed on to the processes of a run, and in the log to a replay, which requires no other file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import traceback
from dataclasses import dataclass
from importlib.abc import ExecutionLoader
from pathlib import Path
from types import ModuleType

from hilserver.components.base import Component
from hilserver.errors import ConfigurationError, Problem, shown

PREFIX = "hilserver_own_"
"""Of the modules' names."""


@dataclass(frozen=True)
class OwnFile:
    """A Python file with components: its name, as shown to the user, and its text."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path, name: str = "") -> OwnFile:
        """Read a file. Raises ConfigurationError if that fails."""
        named = name or str(path)
        try:
            return cls(named, path.read_bytes().decode("utf-8-sig"))
        except FileNotFoundError:
            text = "no such file."
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null character in the name
            text = f"can't be read: {getattr(error, 'strerror', '') or error}."
        raise ConfigurationError([Problem(text, file=named)])

    @classmethod
    def named(cls, names: object, folder: Path, file: str, problems: list[Problem]) -> list[OwnFile]:
        """The files that the key ``library`` of ``file`` names, relative to ``folder``, as far as they can be read."""
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            text = f'{shown(names)} is not a list of Python files such as ["my_components.py"].'
            problems.append(Problem(text, "library", file))
            return []
        found = []
        for name in dict.fromkeys(names):
            try:
                found.append(cls.read(folder / name, cls.shown_name(name, folder)))
            except ConfigurationError as error:
                problems += error.problems
        return found

    @staticmethod
    def shown_name(name: str, folder: Path) -> str:
        """The name of a file that is named relative to a folder, as shown to the user."""
        return os.path.normpath(folder / name)

    @property
    def module(self) -> str:
        """Name of its module: the file's and a hash of its text."""
        stem = re.sub(r"\W", "_", Path(self.name).stem)
        return f"{PREFIX}{stem}_{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"


class _Loader(ExecutionLoader):
    """Loads a module from a text, which is also returned as its source."""

    def __init__(self, file: OwnFile) -> None:
        self._file = file

    def get_source(self, fullname: str) -> str:
        return self._file.text

    def get_filename(self, fullname: str) -> str:
        return f"{self._file.name} ({fullname.rpartition('_')[2]})"  # not the name of an existing file


def own_module(file: OwnFile) -> ModuleType:
    """The module of a file, run once per process. Raises ConfigurationError naming the file, the line and its error."""
    return sys.modules.get(file.module) or _run(file)


def _run(file: OwnFile) -> ModuleType:
    spec = importlib.util.spec_from_loader(file.module, _Loader(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.module] = module  # pydantic and inspect look it up there
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        problem = f"line {error.lineno}: {error.msg}."
    except (Exception, SystemExit) as error:  # any exception of the user's code is reported to the user
        name = getattr(module, "__file__", None)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
        problem = f"line {lines[-1] if lines else 1}: {_said(error)}"
    else:
        return module
    del sys.modules[file.module]
    raise ConfigurationError([Problem(problem, file=file.name)])


def _said(error: BaseException) -> str:
    text = str(error)
    return text if isinstance(error, TypeError) and text.startswith("kernel ") else f"{type(error).__name__}: {text}"


def is_own(module: str) -> bool:
    """Whether this is the name of the module of such a file."""
    return module.startswith(PREFIX)


def where(component: type[Component]) -> str:
    """Where a component type comes from, for the user."""
    if component.__module__.startswith("hilserver.components."):
        return "a built-in component"
    loader = getattr(sys.modules.get(component.__module__), "__loader__", None)
    return loader._file.name if isinstance(loader, _Loader) else component.__module__
