"""The published JSON Schemas of the messages, as an independent validator reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
SCHEMAS: dict[str, Any] = {
    file.relative_to(FOLDER).with_suffix("").as_posix(): json.loads(file.read_text()) for file in FOLDER.rglob("*.json")
}
"""By the end of the topic: ``state``, ``command/arm``, ..."""
_VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


def flaws(topic: str, message: object) -> list[str]:
    """What a topic's schema has against a message."""
    return [f"{topic}: {error.json_path}: {error.message}" for error in _VALIDATORS[topic].iter_errors(message)]
