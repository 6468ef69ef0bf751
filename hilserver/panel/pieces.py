"""Pieces of HTML for the panel, from the macros of its template."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def piece(name: str, **values: Any) -> str:
    """The HTML of a macro in pieces.html.jinja; all texts are escaped."""
    return str(getattr(_macros(), name)(**values))


@functools.cache
def _macros() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("pieces.html.jinja").module
