"""Figures as JSON, as text and as a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hilserver.errors import HilserverError


def write_json(figures: Any, path: Path) -> Path:
    """Write figures as a JSON file; NaN and infinity become null. Raises HilserverError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(figures) + "\n", encoding="utf-8")
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error
    return path


def json_text(figures: Any) -> str:
    """Figures as standard JSON text: null instead of NaN and infinity."""
    return json.dumps(_finite(figures), indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
