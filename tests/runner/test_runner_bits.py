"""The runner computes what hilserver computes, bit for bit: in lockstep with simulated rigs, and in replays of logs."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runner_bench import ROOT, Packed, rig_named

from hilserver.compiler.loading import RUNNER
from hilserver.compiler.machine_code import RUNNER_SOURCES
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.runner.rows import ROWS, RowsFile, RowsKind, log_of, write_log
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import ComputedRows, replay_log
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import headers

ORDERS = ("2 arm", "300 start", "301 cycle 1", "500 miss 3", "600 strategy {valve} inverse_lag")
TICKS = 900


def in_python(rig: Rig) -> Floats:
    """The same ticks with the same commands in Python's lockstep run (`run_bridged`)."""
    run = LockstepRun(rig)
    rows = [run.run(2)]
    run.command(CommandKind.ARM)
    rows.append(run.run(298))
    run.command(CommandKind.START)
    run.command(CommandKind.CYCLE, 1.0)
    rows.append(run.run(200))
    run.miss(3)
    rows.append(run.run(100))
    run.select("inverse_lag", next(iter(rig.settings.valves)))
    rows.append(run.run(300))
    return np.concatenate(rows)


@pytest.mark.parametrize("name", ["demo", "lift"])
def test_lockstep_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    rig = rig_named(load_rig(ROOT / f"config/rigs/{name}.toml"), f"runner_{name}")
    packed = Packed(rig, tmp_path / "rig")
    orders = [text.format(valve=next(iter(rig.settings.valves))) for text in ORDERS]
    options = [word for order in orders for word in ("--at", order)]
    state = packed.done("--lockstep", TICKS, "--rows", tmp_path / "out.rows", *options)
    expected, rows = in_python(rig), RowsFile(tmp_path / "out.rows").rows()
    assert state == {"rig": rig.settings.name, "mode": "RUNNING", "tick": TICKS + 2, "fault": ""}
    assert len(rows) == TICKS
    assert np.isin((1, 2, 3), headers(rows)["mode"]).all()
    assert headers(rows)["missed"].sum() == 3
    assert rows.tobytes() == expected.tobytes()

    log_of(tmp_path / "out.rows", tmp_path / "out.arrow")
    replayed = replay_log(tmp_path / "out.arrow", tolerance=0.0)
    assert (replayed.compared, replayed.differences, replayed.starts) == (TICKS, (), ())


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the demo's golden run: every strategy, live switches, missed ticks, failing sensors, trips."""
    log = tmp_path_factory.mktemp("golden") / "demo.arrow"
    log.write_bytes(lzma.decompress((ROOT / "tests/golden/demo.arrow.xz").read_bytes()))
    return log


@pytest.fixture(scope="module")
def packed_log(golden: Path) -> Path:
    folder = golden.parent / "packed"
    result = write_log(golden, folder)
    assert result.compared == result.rows
    assert result.switches >= 1
    return folder


def replayed_by(folder: Path, file: Path, *options: object) -> subprocess.CompletedProcess[str]:
    words = [folder / RUNNER, folder, "--replay", file, *options]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True)


def test_a_log_is_replayed_with_the_same_bits(golden: Path, packed_log: Path, tmp_path: Path) -> None:
    """Against the rows that the replay in Python computes, and not only against those in the file that it is given."""
    expected: list[Floats] = []

    def take(computed: ComputedRows) -> None:
        width = computed.rig.layout.width
        expected.extend(np.concatenate([row, np.zeros(width - len(row))]) for row in computed.rows)

    replay_log(golden, watch=take)
    done = replayed_by(packed_log, packed_log / ROWS, "--rows", tmp_path / "again.rows")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f'{{"rows": {len(expected)}, "bit_identical": true}}\n'
    rows = RowsFile(tmp_path / "again.rows").rows()
    assert rows.tobytes() == np.array(expected).tobytes()


def test_what_was_packed_for_replays_does_not_run(packed_log: Path) -> None:
    for options in ([], ["--lockstep", "3"], ["--check"]):
        done = subprocess.run([packed_log / RUNNER, packed_log, *options], capture_output=True, text=True)
        assert done.returncode == 1
        assert "was packed from a log, to be replayed: it has no devices" in done.stderr


def test_a_difference_is_found(packed_log: Path, tmp_path: Path) -> None:
    """The last digit of one value in one row."""
    source = RowsFile(packed_log / ROWS)
    content, number, at = bytearray(source.path.read_bytes()), 0, 0
    column = source.about.columns.index("channel.p_A")
    for record in source.records():
        number += record.kind is RowsKind.ROW
        if number == 700:
            at = content.find(record.cells.tobytes())
            changed = record.cells.copy()
            changed[column] = np.nextafter(changed[column], np.inf)
            break
    size = changed.nbytes
    content[at : at + size] = changed.tobytes()
    file = tmp_path / "changed.rows"
    file.write_bytes(content)
    assert "not complete from byte" in replayed_by(packed_log, file).stderr, "the checksum does not match"
    content[at - 12 : at - 8] = np.uint32(_checksum(RowsKind.ROW, changed)).tobytes()
    file.write_bytes(content)
    done = replayed_by(packed_log, file)
    assert done.returncode == 1
    assert f"1 of 1247 rows differ, first row 699 in column {column}" in done.stderr


def _checksum(kind: RowsKind, cells: Floats) -> int:
    import zlib

    return zlib.crc32(cells.tobytes(), kind)


def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    sources = map(str, sorted(RUNNER_SOURCES.glob("*.c")))
    version, libraries = '-DHILSERVER_FINGERPRINT="0123456789abcdef"', ("-ldl", "-lpthread", "-lm")
    command = ["gcc", *options, version, "-o", str(tmp_path / "runner"), *sources, *libraries]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(len(path.read_text().splitlines()) <= 500 for path in RUNNER_SOURCES.iterdir())
