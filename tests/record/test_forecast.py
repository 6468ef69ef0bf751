"""The forecast of the log's size: what a real log takes, and what the settings make of it."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hilserver.record.forecast import TYPICAL_SHARE, forecast, free_space, log_rate
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun

DEMO = Path(__file__).parents[2] / "config/rigs/demo.toml"


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(DEMO)


def with_recording(rig: Rig, **recording: Any) -> Rig:
    """The rig with other settings of ``recording``."""
    changed = type(rig.settings.recording).model_validate(recording)
    return replace(rig, settings=rig.settings.model_copy(update={"recording": changed}))


def told(rig: Rig, free: float | None = None, **recording: Any) -> dict[str, str]:
    """The forecast with other settings of ``recording``."""
    return dict(forecast(with_recording(rig, **recording), free))


@pytest.mark.parametrize("compression", sorted(TYPICAL_SHARE))
def test_the_rate_is_that_of_a_log(rig: Rig, tmp_path: Path, compression: str) -> None:
    """Exactly so without compression; a compressed log is smaller by what the forecast says, within some per cent.

    It is measured here with a simulation, whose durations are all zero, and in batches of 1000 rows.
    """
    sizes = []
    for ticks in (500, 1500):
        log = tmp_path / f"{ticks}.arrow"
        with LockstepRun(with_recording(rig, compression=compression), log) as run:
            run.start()
            run.run(ticks)
        sizes.append(log.stat().st_size)
    share = (sizes[1] - sizes[0]) / log_rate(rig)  # 1000 ticks are a second
    if compression == "none":
        assert share == pytest.approx(1.0, rel=0.03)
    else:
        assert 0.5 * TYPICAL_SHARE[compression] < share < TYPICAL_SHARE[compression]


def test_what_is_kept_and_how_long_the_disk_lasts(rig: Rig) -> None:
    """At 302 values of 8 bytes per tick of 1 ms: 2.416 MB/s, 8.70 GB per hour."""
    assert len(rig.layout.names) + len(rig.packed.names) == 302
    plain = functools.partial(told, rig, compression="none")
    assert plain() == {"log": "8.7 GB per hour, a new file every 6.9 min", "logs kept": "all (recording.keep)"}
    assert plain(max_duration="2 min")["log"].endswith("every 2 min")
    free = 500e6 + 2.416e6 * 36000
    assert plain(free)["disk of the logs"] == "87 GB free in logs: full after 10 h"
    limits = {"gigabytes": 50, "files": 20, "age": "30 d"}
    kept = plain(free, folder="/data", keep=limits)
    assert kept["logs kept"] == "50 GB: 5.7 h; 20 files: 2.3 h; 30 d: up to 6.3 TB"
    assert "keep.running" in kept["disk of the logs"]
    assert plain(free, keep={**limits, "running": False})["disk of the logs"].endswith("enough for all that is kept")
    too_much = plain(free, keep={"gigabytes": 100, "running": False})
    assert too_much["disk of the logs"] == "87 GB free in logs: full after 10 h"
    assert "nothing would be recorded" in plain(499e6)["disk of the logs"]
    assert plain(free, enabled=False) == {"log": "not recorded (recording.enabled)"}


def test_the_size_of_a_compressed_log_is_an_estimate_below_a_bound(rig: Rig) -> None:
    """0.6 of 8.70 GB: 5.2 GB; a file of 1 GB lasts 690 s; 87.0 GB last 10 h at least, and 16.7 h as in the demo."""
    free = 500e6 + 2.416e6 * 36000
    limits = {"gigabytes": 50, "age": "30 d"}
    found = told(rig, free, keep=limits)
    assert "about 5.2 GB per hour" in found["log"]
    assert "at most 8.7 GB" in found["log"]
    assert found["log"].endswith("a new file every about 11 min")
    assert found["logs kept"] == "50 GB: about 9.6 h; 30 d: up to 6.3 TB"
    assert "full after about 17 h, 10 h at least" in found["disk of the logs"]


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    found = free_space(tmp_path / "later" / "logs")
    assert found is not None
    assert found > 0.0
