"""The runner refuses what it can't use, with a reason, and never crashes."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runner_bench import Packed, demo

from hilserver.circuit.engine import N_CALLS
from hilserver.compiler.levels import level_of_this_machine
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.rig.build import load_rig
from hilserver.runner.pack import PACK, write_rig
from hilserver.runner.rows import RECORD, RowsKind, log_of

CHECKSUM, SIZE, HEAD = 24, 32, 8 + 16 + 8 + 8 + 8 * (2 * 14 + 19)
"""Places in the file of a rig, in bytes: its checksum, its size, the end of its header."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(demo("runner_files"), tmp_path_factory.mktemp("packed") / "rig")


@pytest.fixture
def copy(packed: Packed, tmp_path: Path) -> Packed:
    """A copy that a test may damage."""
    found = object.__new__(Packed)
    found.rig, found.folder = packed.rig, tmp_path / "copy"
    shutil.copytree(packed.folder, found.folder)
    return found


def sealed(content: bytes) -> bytes:
    """With size and checksum as they should be: only the header's own checks can find what is wrong."""
    content = content[:SIZE] + np.int64(len(content)).tobytes() + content[SIZE + 8 :]
    return content[:CHECKSUM] + np.int64(zlib.crc32(content[SIZE:])).tobytes() + content[CHECKSUM + 8 :]


def wrong_table(content: bytes, chance: random.Random) -> bytes:
    """Another number in one of the tables behind the header: the plan, circuit, row, columns, frames of devices."""
    parts = np.frombuffer(content, np.int64)[SIZE // 8 + 1 :][: 2 * 11].reshape(-1, 2)
    first, n = parts[chance.choice((1, 2, 3, 4, 5, 8, 9))]
    at = HEAD + 8 * int(first + chance.randrange(min(n, 400)))
    number = np.int64(chance.choice((-1, 1, 2**20, 2**31, 2**62, -(2**63))))
    return sealed(content[:at] + number.tobytes() + content[at + 8 :])


def truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flipped(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def truncated_and_sealed(content: bytes, chance: random.Random) -> bytes:
    return sealed(content[: 8 * chance.randrange(SIZE // 8 + 1, HEAD // 8 + 200)])


def wrong_number(content: bytes, chance: random.Random) -> bytes:
    """Another number in the header."""
    at = SIZE + 8 + 8 * chance.randrange((HEAD - SIZE - 8) // 8)
    number = np.int64(chance.choice((-1, 2**31, 2**40, 2**62, -(2**63))))
    return sealed(content[:at] + number.tobytes() + content[at + 8 :])


@pytest.mark.parametrize("damage", [truncated, flipped, truncated_and_sealed, wrong_number, wrong_table])
def test_damaged_files_are_refused(copy: Packed, damage: Callable[[bytes, random.Random], bytes]) -> None:
    chance, file = random.Random(1), copy.folder / PACK
    whole, answers = file.read_bytes(), set[int]()
    for _ in range(40):
        file.write_bytes(damage(whole, chance))
        answers.add(copy.run("--check").returncode)
    allowed = {0, 1} if damage in (wrong_number, wrong_table) else {1}  # some numbers are only other ones
    assert answers <= allowed
    assert 1 in answers
    file.write_bytes(whole)
    assert copy.done("--check")["ready"]


def test_damaged_rows_are_refused(copy: Packed, tmp_path: Path) -> None:
    copy.done("--lockstep", 40, "--rows", tmp_path / "whole.rows")
    whole, file, chance = (tmp_path / "whole.rows").read_bytes(), tmp_path / "damaged.rows", random.Random(2)
    assert copy.done("--replay", tmp_path / "whole.rows")["rows"] == 40
    for number in range(30):
        file.write_bytes(flipped(whole, chance) if number % 2 else truncated(whole, chance))
        assert copy.run("--replay", file).returncode == 1
    file.write_bytes(whole[:-100])
    assert "is damaged or not complete from byte" in copy.refusal("--replay", file)
    assert "within the record at byte" in log_of(file, tmp_path / "rest.arrow").damage, "all complete rows"


def test_records_that_are_none_end_a_file(copy: Packed, tmp_path: Path) -> None:
    """Their checksums are as they should be."""
    copy.done("--lockstep", 5, "--rows", tmp_path / "whole.rows")
    whole = (tmp_path / "whole.rows").read_bytes()
    for kind, n in ((1, 3), (2, 9), (4, 0), (7, 8), (3, 40)):
        content, file = bytes(8 * n), tmp_path / f"{kind}.rows"
        head = np.array([(kind, zlib.crc32(content, kind), n)], dtype=RECORD)
        file.write_bytes(whole + head.tobytes() + content)
        assert f"the record at byte {len(whole)} can't be replayed" in copy.refusal("--replay", file)
        if kind != RowsKind.CIRCUIT:
            assert log_of(file, file.with_suffix(".arrow")).damage


def test_a_program_that_fails_with_the_rig(copy: Packed) -> None:
    """Nothing in the file shows that this circuit is none: the number of kernels that it calls is wrong."""
    file = copy.folder / PACK
    content = file.read_bytes()
    at = HEAD + 8 * int(np.frombuffer(content, np.int64)[SIZE // 8 + 1 + 4]) + 8 * N_CALLS
    file.write_bytes(sealed(content[:at] + np.int64(2**40).tobytes() + content[at + 8 :]))
    for options in (["--check"], ["--for", "1"], ["--lockstep", "3"]):
        assert "the rig is damaged: the program fails with it (Segmentation fault)" in copy.refusal(*options)


def test_other_versions_and_other_files(copy: Packed) -> None:
    file = copy.folder / PACK
    whole = file.read_bytes()
    file.write_bytes(whole[:8] + b"0123456789abcdef" + whole[24:])
    assert "was packed by another version of hilserver (0123456789abcdef, this runner is of" in copy.refusal()
    file.write_bytes(b"something else")
    assert "is not a packed rig. Make one with: hilserver pack" in copy.refusal()
    file.unlink()
    assert "can't be read: No such file or directory" in copy.refusal()


def test_a_program_that_is_not_the_one_of_the_pack(copy: Packed) -> None:
    program = copy.folder / f"{level_of_this_machine()}.so"
    program.write_bytes(program.read_bytes()[:-1] + b"\xff")
    assert "is damaged, or not the program that the rig was packed with" in copy.refusal("--check")
    program.unlink()
    assert f"{program}: can't be read" in copy.refusal("--check")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--foo"], "--foo: there is no such option"),
        (["--rows"], "--rows: its value is missing"),
        (["--for", "x"], "--for x: must be a number greater than 0"),
        (["--lockstep", "-3"], "--lockstep -3: must be a number greater than 0"),
        (["other"], "other: one folder only"),
        (["--lockstep", "0.5"], "--lockstep 0.5: must be a whole number"),
        (["--at", "1 arm"], "--at belongs to --lockstep"),
        (["--lockstep", "3", "--status"], "one at a time"),
        (["--lockstep", "3", "--for", "1"], "--for belongs to a run in real time"),
        (["--status", "--rows", "x"], "--rows: nothing is recorded here"),
        (["--lockstep", "3", "--at", "arm"], "must begin with the number of a tick, 0 to 2"),
        (["--lockstep", "3", "--at", "3 arm"], "must begin with the number of a tick, 0 to 2"),
        (["--lockstep", "3", "--at", "1 miss -1"], "miss needs a number of ticks"),
        (["--lockstep", "3", "--at", "1 miss 1x"], "miss needs a number of ticks"),
        (["--lockstep", "3", "--at", "1 arm", "--at", "1 start"], "there is another one in this tick"),
        (["--lockstep", "3", "--at", f"1 arm{' ' * 300}"], "is too long"),
        (["--lockstep", "3", "--at", "1 fly"], '"fly" is no command: arm, start, stop'),
        (["--lockstep", "3", "--at", "1 input lever 1"], "the rig has no input lever"),
        (["--lockstep", "3", "--at", "1 input joystick much"], "much is not a number"),
        (["--lockstep", "3", "--at", "1 strategy main best"], "the rig has no strategy best"),
        (["--lockstep", "3", "--at", "1 arm now"], "now is too much"),
        (["--lockstep", "3", "--rows", "/nowhere/x"], "/nowhere/x: can't be created: No such file"),
        (["--replay", "/dev/null"], "/dev/null: is not a file of rows"),
        (["--status"], "does not run here"),
        (["--send", "arm"], "does not run here"),
    ],
)
def test_wrong_use(packed: Packed, options: list[str], text: str) -> None:
    assert text in packed.refusal(*options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_missing_rights(copy: Packed) -> None:
    (copy.folder / PACK).chmod(0)
    assert "can't be read: Permission denied" in copy.refusal()


def test_what_the_runner_can_not_run_is_refused_when_it_is_packed(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "config/rigs/actuator_log.toml").resolve()
    with pytest.raises(ConfigurationError, match=r"devices\..*\.driver: \"replay\" is a driver that the loop itself"):
        write_rig(load_rig(text), tmp_path / "rig")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    with pytest.raises(HilserverError, match="is not empty"):
        write_rig(demo(), tmp_path / "full")
