"""Descriptions of actuators that are refused before arming, or of which `hilserver check` warns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from frame_bench import FRAME
from service_harness import CONFIG

from hilserver.compiler import compiled_program
from hilserver.margins.margins import RigMargins, margins
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig


def changed(folder: Path, changes: Mapping[str, str]) -> tuple[Rig, RigMargins]:
    """The frame with other values, and its margins."""
    text = FRAME.read_text().replace('"../', f'"{CONFIG}/')
    for right, other in changes.items():
        assert text.count(right) == 1
        text = text.replace(right, other)
    file = folder / "frame.toml"
    file.write_text(text)
    rig = load_rig(file)
    return rig, margins(rig, compiled_program(rig.library))


@pytest.mark.parametrize("strategy", ["prediction", "direct", "manual"])
def test_an_actuator_that_is_unstable_by_itself_is_refused_with_the_gain_that_would_be_right(
    strategy: str, tmp_path: Path
) -> None:
    rig, found = changed(tmp_path, {'"50.33 1/s"': '"500 1/s"', '"prediction"': f'"{strategy}"'})
    (text,) = found.refusals(rig, {})
    key = "actuators.table.servo.velocity_gain: actuator and specimen as described are unstable by themselves (a motion"
    assert text.startswith(key)
    assert "with this mass on its oil, the gain may be 253 1/s at most. " in text
    model = rig.settings.actuators["table"].model()
    for gain, grows in ((252.0, False), (254.0, True)):
        poles = np.linalg.eigvals(replace(model, velocity_gain=gain).motion().A)
        assert (poles.real.max() > 0.0) == grows


@pytest.mark.parametrize(("channel", "noise"), [("F", '"2.2 N" }'), ("x", '"0.016 mm" }')])
@pytest.mark.parametrize(("filter_time", "noted"), [("30 ms", True), ("2 ms", False)])
def test_a_filter_longer_than_the_lag_of_the_actuator(
    channel: str, noise: str, filter_time: str, noted: bool, tmp_path: Path
) -> None:
    _, found = changed(tmp_path, {noise: noise.replace(" }", f', filter = "{filter_time}" }}')})
    said = [text for text in found.warnings({}) if "filter" in text]
    assert [text.split(",")[0] for text in said] == noted * [
        f"channels.{channel}.filter: 30 ms is longer than the lag of actuator table"
    ]
