"""SECURITY.md: each threat in its table names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "SECURITY.md").read_text().partition("## Threats and their tests")[2].partition("\n## ")[0]
LINES = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]


def test_the_table_of_threats_is_complete() -> None:
    assert len(LINES) > 20


@pytest.mark.parametrize("line", LINES)
def test_each_threat_names_its_test(line: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
    assert named, "without a test, it is a hope"
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.M), f"{file} has no {test}"
