"""The forecast of the log's size: what a real log takes, and what the settings make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hilserver.record.forecast import forecast, free_space, log_rate
from hilserver.rig.build import Rig, load_rig
from hilserver.simulation.lockstep import LockstepRun

DEMO = Path(__file__).parents[2] / "config/rigs/demo.toml"


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(DEMO)


def told(rig: Rig, free: float | None = None, **recording: Any) -> dict[str, str]:
    """The forecast with other settings of ``recording``."""
    changed = type(rig.settings.recording).model_validate(recording)
    settings = rig.settings.model_copy(update={"recording": changed})
    return dict(forecast(replace(rig, settings=settings), free))


def test_the_rate_is_that_of_a_log(rig: Rig, tmp_path: Path) -> None:
    sizes = []
    for ticks in (500, 1500):
        log = tmp_path / f"{ticks}.arrow"
        with LockstepRun(rig, log) as run:
            run.start()
            run.run(ticks)
        sizes.append(log.stat().st_size)
    assert log_rate(rig) == pytest.approx(sizes[1] - sizes[0], rel=0.03)  # 1000 ticks are a second


def test_what_is_kept_and_how_long_the_disk_lasts(rig: Rig) -> None:
    """At 256 values of 8 bytes per tick of 1 ms: 2.048 MB/s, 7.37 GB per hour."""
    assert len(rig.layout.names) + len(rig.packed.names) == 256
    assert told(rig) == {"log": "7.4 GB per hour, a new file every 8.1 min", "logs kept": "all (recording.keep)"}
    assert told(rig, max_duration="2 min")["log"].endswith("every 2 min")
    free = 500e6 + 2.048e6 * 36000
    assert told(rig, free)["disk of the logs"] == "74 GB free in logs: full after 10 h"
    limits = {"gigabytes": 50, "files": 20, "age": "30 d"}
    kept = told(rig, free, folder="/data", keep=limits)
    assert kept["logs kept"] == "50 GB: 6.8 h; 20 files: 2.7 h; 30 d: up to 5.3 TB"
    assert "keep.running" in kept["disk of the logs"]
    assert told(rig, free, keep={**limits, "running": False})["disk of the logs"].endswith(
        "enough for all that is kept"
    )
    too_much = told(rig, free, keep={"gigabytes": 100, "running": False})
    assert too_much["disk of the logs"] == "74 GB free in logs: full after 10 h"
    assert "nothing would be recorded" in told(rig, 499e6)["disk of the logs"]
    assert told(rig, free, enabled=False) == {"log": "not recorded (recording.enabled)"}


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    found = free_space(tmp_path / "later" / "logs")
    assert found is not None
    assert found > 0.0
