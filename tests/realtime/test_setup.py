"""What the supervisor passes to its processes is read as it was written."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.rig_setup import make_setup
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.setup import read_setup, write_setup
from hilserver.rig.build import load_rig

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"


@pytest.mark.parametrize("scheduling", [Scheduling(80, frozenset({3, 1})), Scheduling(None, None, lock_memory=False)])
def test_devices_and_scheduling_are_read_as_written(tmp_path: Path, scheduling: Scheduling) -> None:
    made = make_setup(load_rig(DEMO), {}, {})
    settings = {"limit": inf, "registers": [1, 2.5, {"name": "p"}]}
    devices = tuple(replace(device, settings=settings, folder="/tmp/\udcff") for device in made.devices)  # not UTF-8
    assert devices
    write_setup(replace(made, devices=devices, scheduling=scheduling), tmp_path / "setup")
    read = read_setup(tmp_path / "setup")
    assert (read.devices, read.scheduling) == (devices, scheduling)


@pytest.mark.parametrize("wrong", [{"unheard_of": 1}, {"inputs": 7}, {"first_slot": "none"}])
def test_a_device_with_other_keys_or_types_is_refused(wrong: dict[str, Any]) -> None:
    known = vars(DeviceSetup("slow", "", {}, "", ("in",), ("out",), 0, (0,), 0, 0))
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        DeviceSetup(**{**known, **wrong})
