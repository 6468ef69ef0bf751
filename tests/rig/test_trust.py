"""Python that a log contains is run only if it was run here before, or if the user trusts the log."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from own_library import OWN, rig_file
from typer.testing import CliRunner

from hilserver.circuit.own import OwnFile
from hilserver.cli import program
from hilserver.errors import HilserverError
from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.rig.trust import fingerprint, library_of_log
from hilserver.simulation.replay import replay_log

GOLDEN = Path(__file__).parents[1] / "golden" / "boom.arrow.xz"


@pytest.fixture(autouse=True)
def _empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hilserver.rig.trust.cache_root", lambda: tmp_path / "cache")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that the log's Python creates when it is run."""
    return tmp_path / "mark"


@pytest.fixture
def log(tmp_path: Path, mark: Path) -> Path:
    """A log as somebody else may have sent it."""
    golden = tmp_path / "golden.arrow"
    golden.write_bytes(lzma.decompress(GOLDEN.read_bytes()))
    reader = LogReader(golden)
    table = reader.header.configuration
    brought = {"name": "theirs.py", "text": OWN + f"\nopen({str(mark)!r}, 'w').close()\n"}
    header = reader.header.model_copy(update={"configuration": {**table, "library": [brought]}})
    path = tmp_path / "sent.arrow"
    batch = next(reader.batches())
    with LogWriter(path, header) as writer:
        writer.append(
            batch.rows(), {row: [event for at, event in batch.events if at == row] for row, _ in batch.events}
        )
    return path


def test_replay_of_a_log_with_unknown_python_runs_none_of_it(log: Path, mark: Path) -> None:
    with pytest.raises(HilserverError, match=r"(?s)theirs\.py, SHA-256 [0-9a-f]{64}.*add --trust"):
        replay_log(log)
    assert not mark.exists()


def test_replay_on_the_command_line_needs_trust(log: Path, mark: Path) -> None:
    refused = CliRunner().invoke(program(), ["replay", str(log)])
    assert refused.exit_code != 0
    assert not mark.exists()
    allowed = CliRunner().invoke(program(), ["replay", str(log), "--trust"])
    assert allowed.exit_code == 0, allowed.output
    assert mark.exists()


def test_trust_covers_one_replay_only(log: Path, mark: Path) -> None:
    replay_log(log, trust=True)
    with pytest.raises(HilserverError, match="Nothing was run"):
        replay_log(log)


def test_python_code_that_a_rig_file_has_run_is_trusted(tmp_path: Path) -> None:
    sources = {"library": [{"name": "/elsewhere/my_components.py", "text": OWN}]}
    with pytest.raises(HilserverError, match="was not run here before"):
        library_of_log(sources, tmp_path / "run.arrow")
    load_rig(rig_file(tmp_path))
    assert "annular_gap" in library_of_log(sources, tmp_path / "run.arrow").types
    changed = {"library": [{"name": "/elsewhere/my_components.py", "text": OWN + "\n"}]}
    with pytest.raises(HilserverError, match="was not run here before"):
        library_of_log(changed, tmp_path / "run.arrow")


def test_the_fingerprint_is_that_of_sha256sum() -> None:
    """The digest of "abc" in FIPS 180-4's examples."""
    assert fingerprint(OwnFile("abc.py", "abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_an_unwritable_store_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    load_rig(rig_file(tmp_path))
    with pytest.raises(HilserverError, match="was not run here before"):
        library_of_log({"library": [{"name": "my_components.py", "text": OWN}]}, tmp_path / "run.arrow")
