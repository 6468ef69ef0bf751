"""The page about a run: its figures are those of the log, whatever its length; one file that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from forged_log import rewritten

from hilserver.errors import HilserverError
from hilserver.record.notes import LogNote, change_note
from hilserver.record.reader import LogReader
from hilserver.record.summary import summarise
from hilserver.report.document import Code, Diagram, Document, Grid, Picture
from hilserver.report.envelope import MAX_BINS, Envelope
from hilserver.report.run_report import run_report, write_run_report
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.row import headers
from hilserver.toml import read_toml

RIG = Path(__file__).parents[2] / "config/rigs/demo.toml"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 s: armed and started, a smaller relief pressure, a refused command, a trip."""
    rig = load_rig(RIG)
    path = tmp_path_factory.mktemp("log") / "run.arrow"
    source = read_toml(RIG.parent / "../circuits/lift.toml")
    source["components"]["relief"]["opening_pressure"] = "100 bar"
    with LockstepRun(rig, path) as run:
        run.start()
        run.run(4000)
        run.swap(rig.read_circuit(source))
        run.run(4500)
        run.command(CommandKind.RESET)
        run.run(10)
        run.command(CommandKind.TRIP)
        run.run(500)
    return path


def grids(page: Document) -> dict[str, Grid]:
    return {block.head[0]: block for block in page.blocks if isinstance(block, Grid)}


def test_notes_on_the_log_are_listed(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run.arrow"
    copy.write_bytes(log.read_bytes())
    assert "note at, s" not in grids(run_report(copy))
    change_note(copy, None, LogNote(time=4.5, text="opens too early", author="Anna"))
    assert grids(run_report(copy))["note at, s"].rows == (("4.500", "opens too early", "Anna"),)


def test_figures_are_those_of_the_log(log: Path) -> None:
    """The same as the summary, which holds the whole log in memory."""
    page = run_report(log)
    (row,) = grids(page)["valve"].rows
    (expected,) = summarise(log).valves
    shown = (f"{expected.flow_range * 6e4:.1f}", f"{expected.rms * 6e4:.3g}", f"{100 * expected.nrmse:.2g} %")
    assert row[2:5] == shown
    assert row[5] == f"{expected.largest * 6e4:.3g}"
    columns = LogReader(log).read_all().columns
    assert float(row[1]) == pytest.approx(np.count_nonzero(columns["mode"] == Mode.RUNNING) * 1e-3)
    ticks = len(columns["tick"])
    assert f"{ticks} ticks of 1 ms, 0 missed, 1 switches of the circuit" in page.markdown(
        {"signals": "", "circuit-0": ""}
    )


def test_the_timing_is_that_of_the_log_also_with_missed_ticks(log: Path, tmp_path: Path) -> None:
    def in_real_time(values: np.ndarray[Any, Any], row: int) -> None:
        heads: Any = headers(values[np.newaxis])
        heads["wake_error"], heads["compute_time"], heads["missed"] = 20e-6, 100e-6, 3 if row == 700 else 0

    page = run_report(rewritten(log, tmp_path / "late.arrow", rows=in_real_time))
    timing = {row[0].strip(): row for row in grids(page)["µs"].rows}
    assert timing["wake-up after the deadline"][1] == "20.0"
    assert timing["wake-up after the deadline"][-1] == "3020.0"
    assert "3 ticks missed; time synchronisation error 3020 µs, minimum step 100 µs of 1000 µs." in page.blocks


def test_events_are_listed_in_order(log: Path) -> None:
    page = run_report(log)
    told = [text for _, _, text in grids(page)["time, s"].rows]
    assert told == [
        "FAULT: tripped by the operator (command trip)",
        "command arm",
        "ARMED",
        "command start",
        "RUNNING",
        "command cycle",
        "command switch",
        "switched: relief.opening_pressure: 150 bar → 100 bar",
        "command reset, refused: not possible in this mode",
        "command trip",
    ], "faults first, then all others"
    assert grids(page)["key"].rows == (("components.relief.opening_pressure", "150 bar", "100 bar"),)
    assert {row[0] for row in grids(page)["component"].rows} == {"tank", "pump", "line", "relief", "main_valve"}
    configuration = [block.text for block in page.blocks if isinstance(block, Code)]
    assert any('"max_age": "1 s"' in text for text in configuration)


def test_a_plot_shows_each_flow_once_and_no_channel_before_its_first_sample(log: Path, tmp_path: Path) -> None:
    layout = load_rig(RIG).layout

    def late(values: Any, row: int) -> None:
        if row < 50:
            values[layout.column("channel.x")], values[layout.column("stale.x")] = 0.0, np.inf

    path = rewritten(log, tmp_path / "late.arrow", rows=late)
    (signals,) = (block for block in run_report(path).blocks if isinstance(block, Picture))
    shown = {axis.get_ylabel(): {str(line.get_label()): line for line in axis.lines} for axis in signals.figure.axes}
    assert [name for name in shown["flow, l/min"] if not name.startswith("_")] == ["main virtual", "main measured"]
    position = np.asarray(shown["position, mm"]["x"].get_ydata(), dtype=float)
    assert np.isnan(position[:40]).all()
    assert np.nanmin(position) > 100.0


class _Links(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_self_contained(log: Path, tmp_path: Path) -> None:
    html, markdown, plot, circuit = run_report(log).write(tmp_path, "run")
    links = _Links()
    links.feed(html.read_text())
    assert links.open == []
    assert links.sources
    assert all(source.startswith("data:image/png;base64,") for source in links.sources)
    assert re.findall(r"\]\((.*?)\)", markdown.read_text()) == [plot.name, circuit.name]
    assert circuit.read_text() in html.read_text()


def test_a_circuit_is_drawn_anew_only_where_it_looks_different(tmp_path: Path) -> None:
    rig = load_rig(RIG)
    source = read_toml(RIG.parent / "../circuits/lift.toml")
    source["components"]["relief"]["opening_pressure"] = "100 bar"
    same = rig.read_circuit(source)
    del source["components"]["relief"]
    with LockstepRun(rig, tmp_path / "run.arrow") as run:
        run.run(10)
        for circuit in (same, rig.read_circuit(source)):
            run.swap(circuit)
            run.run(10)
    drawings = [block for block in run_report(tmp_path / "run.arrow").blocks if isinstance(block, Diagram)]
    assert [drawing.name for drawing in drawings] == ["circuit-0", "circuit-2"]
    looks = [ElementTree.fromstring(drawing.svg) for drawing in drawings]
    assert [bool(look.findall(".//{*}title[.='relief: relief_valve']")) for look in looks] == [True, False]


def test_a_killed_or_damaged_log_gives_its_page(log: Path, tmp_path: Path) -> None:
    whole = log.read_bytes()
    half = len(whole) // 2
    contents = {
        "killed": (whole[:-8], "no end mark"),
        "torn": (whole[: half + 1000], "<th>Damaged</th>"),
        "damaged": (whole[:half] + 1000 * b"\xa5" + whole[half + 1000 :], "<th>Damaged</th>"),
    }
    for name, (content, said) in contents.items():
        path = tmp_path / f"{name}.arrow"
        path.write_bytes(content)
        page = write_run_report(path, tmp_path / "pages").read_text()
        assert said in page
        assert '<td class="text">RUNNING</td>' in page


def test_empty_and_invalid_logs_are_refused(tmp_path: Path) -> None:
    with LockstepRun(load_rig(RIG), tmp_path / "empty.arrow"):
        pass
    for name in ("empty.arrow", "none.arrow"):
        with pytest.raises(HilserverError, match=name):
            run_report(tmp_path / name)


@pytest.mark.parametrize("batches", [(5,), (100, 1, 7), (MAX_BINS, 1), (MAX_BINS - 1, 3, MAX_BINS), (3,) * 9000])
def test_envelope_holds_every_peak(batches: tuple[int, ...]) -> None:
    """Whatever the lengths of the pieces: no peak is lost, nothing is added, few bins."""
    values = np.random.default_rng(1).normal(size=(sum(batches), 2))
    values[:, 0] = np.arange(len(values))
    envelope, start = Envelope(), 0
    for length in batches:
        envelope.add(values[start : start + length])
        start += length
    low, high = envelope.bounds()
    assert len(low) <= MAX_BINS + 1
    assert low.min(axis=0).tolist() == values.min(axis=0).tolist()
    assert high.max(axis=0).tolist() == values.max(axis=0).tolist()
    for first, last, smallest, largest in zip(low[:, 0], high[:, 0], low[:, 1], high[:, 1], strict=True):
        part = values[int(first) : int(last) + 1, 1]
        assert 0 < len(part) <= envelope.rows_per_bin
        assert (part.min(), part.max()) == (smallest, largest)
