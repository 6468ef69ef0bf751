"""Folders of the documentation."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
EXAMPLES = DOCS / "examples"
