"""Reading TOML files: rig, circuit, work cycle, sequence, calibration, broker login."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hilserver.errors import ConfigurationError, Problem


def read_toml(path: Path, shown_as: str = "") -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigurationError naming the file, and the line of a syntax error.

    Values with a tolerance are `hilserver.tolerances.Toleranced`: the value, which carries its tolerance.
    ``shown_as``: the name of the file in errors, instead of its path.
    """
    name = shown_as or str(path)
    try:
        return _with_tolerances(tomllib.loads(path.read_bytes().decode("utf-8-sig")), name)
    except FileNotFoundError:
        text = "no such file."
    except (OSError, UnicodeDecodeError) as error:
        text = f"can't be read: {error}."
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits, lists nested too deeply
        text = f"is not valid TOML: {error}."
    raise ConfigurationError([Problem(text, file=name)])


def _with_tolerances(table: dict[str, Any], name: str) -> dict[str, Any]:
    from hilserver.tolerances import with_tolerances  # not needed where no file is read: hilserver send stop

    problems: list[Problem] = []
    found = with_tolerances(table, name, problems)
    if problems:
        raise ConfigurationError(problems)
    return found
