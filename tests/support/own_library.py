"""The component of docs/write-a-component.md, for the tests of what a user adds.

All use this one text, which is compiled once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-component.md").read_text()
GAP = {"type": "annular_gap", "diameter": "12 mm", "gap": "10 um", "length": "20 mm"}


def page_file(name: str) -> str:
    """A file as the page shows it."""
    found = re.search(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


OWN = page_file("my_components.py")


def with_gap(source: Any) -> dict[str, Any]:
    """The demo's circuit with the gap as a leakage of the supply."""
    leak = {**GAP, "ports": {"A": "supply", "B": "tank"}}
    return {**source, "components": {**source["components"], "leak": leak}}


def rig_file(folder: Path, text: str = OWN, library: str = '["../my_components.py"]') -> Path:
    """The demo's rig with a library, beside a folder of its own."""
    (folder / "my_components.py").write_text(text)
    (folder / "rigs").mkdir(exist_ok=True)
    whole = (ROOT / "config/rigs/demo.toml").read_text().replace('"../', f'"{ROOT}/config/')
    rig = folder / "rigs" / "rig.toml"
    rig.write_text(f"library = {library}\n{whole}")
    return rig
