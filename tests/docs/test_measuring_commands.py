"""The commands on the documentation's pages that measure times: carried out in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import driving_examples, only, workplace

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


def test_examples_that_measure_times(tmp_path: Path) -> None:
    place = workplace(tmp_path, "times")
    place.carry_out(only("run: first"))
    place.carry_out_new(driving_examples(drive=False))
