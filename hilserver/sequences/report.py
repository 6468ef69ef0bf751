"""The results of a test sequence: JUnit XML for CI, and a report with plots."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence as Many
from importlib.metadata import version
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hilserver.errors import HilserverError
from hilserver.report.circuit_blocks import components, drawing
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.report.plots import panels_figure
from hilserver.sequences.check import FAILED, PASSED, SKIPPED, SequenceResult, title_of, window
from hilserver.sequences.model import Expectation
from hilserver.tick.codes import Mode
from hilserver.units import shown_unit

MARKS = {PASSED: "passed", FAILED: "FAILED", SKIPPED: "skipped"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")


def junit(results: Many[SequenceResult]) -> str:
    """The results as JUnit XML: one suite per sequence, one case per step and expectation.

    Jenkins and the reporters of GitHub add up the suites themselves or read the totals of the root element. Some show a
    case without a time as NaN: the time of the sequence is given for its suite, and cases have 0.
    """
    suites = [_suite(done) for done in results]
    sums = {key: str(sum(int(suite[key]) for suite in suites)) for key in ("tests", "failures", "errors", "skipped")}
    took = f"{sum(done.took for done in results):.3f}"
    root = ElementTree.Element("testsuites", {"name": "hilserver", **sums, "time": took})
    for done, attributes in zip(results, suites, strict=True):
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for verdict in done.verdicts:
            about = {"classname": done.sequence.file.stem, "name": verdict.name, "time": "0"}
            case = ElementTree.SubElement(suite, "testcase", {key: _clean(v) for key, v in about.items()})
            if verdict.outcome == FAILED:
                failure = ElementTree.SubElement(case, "failure", type="expectation", message=_clean(verdict.found))
                failure.text = _clean(f"{verdict.name}: {verdict.found}")
            elif verdict.outcome == SKIPPED:
                ElementTree.SubElement(case, "skipped", message=_clean(verdict.found))
        out = ElementTree.SubElement(suite, "system-out")
        where = f"{done.where}, hilserver {version('hilserver')}" + (f", log {done.log}" if done.log else "")
        out.text = _clean(" ".join([f"{where}.", *ending_lines(done)] if done.endings else [where]))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(done: SequenceResult) -> dict[str, str]:
    counts = {outcome: sum(v.outcome == outcome for v in done.verdicts) for outcome in (FAILED, SKIPPED)}
    return {
        "name": _clean(str(done.sequence.file)),
        "tests": str(len(done.verdicts)),
        "failures": str(counts[FAILED]),
        "errors": "0",
        "skipped": str(counts[SKIPPED]),
        "time": f"{done.took:.3f}",
        "timestamp": done.at.isoformat(timespec="seconds"),
    }


def _clean(text: str) -> str:
    """The text without the characters that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)


def write_junit(results: Many[SequenceResult], file: Path) -> Path:
    """Write the results as JUnit XML. Raises HilserverError if that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(junit(results), encoding="utf-8")
    except OSError as error:
        raise HilserverError(f"{file}: can't be written: {error.strerror or error}.") from error
    return file


def summary_line(done: SequenceResult) -> str:
    """The number of passed, failed and skipped results, in a sentence."""
    counts = {word: sum(v.outcome == word for v in done.verdicts) for word in (PASSED, FAILED, SKIPPED)}
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{done.sequence.file}: {shown} ({done.where}, {done.sequence.length:.4g} s in {done.took:.1f} s)"


def ending_lines(done: SequenceResult) -> list[str]:
    """When and why RUNNING or ARMED has ended without a command, in sentences."""
    return [f"At {at:.4g} s, the mode changed to {how}." for at, how in done.endings]


def document(done: SequenceResult) -> Document:
    """The report on one sequence."""
    settings, blocks = done.sequence.settings, list[Block]()
    if settings.description:
        blocks.append(settings.description)
    about = [
        summary_line(done),
        *ending_lines(done),
        f"{done.at:%Y-%m-%d %H:%M} UTC, hilserver {version('hilserver')}.",
    ]
    blocks.append(Listing((*about, *([f"Log: {done.log}"] if done.log else []))))
    rows = tuple((v.name, MARKS[v.outcome], v.found) for v in done.verdicts)
    blocks += [Heading("Results"), Grid(("what", "result", "found"), rows)]
    if (figure := plot(done)) is not None:
        about_plot = "Expectations are shaded, red where they were not met; dotted lines: a step or fault took effect."
        blocks += [Heading("Signals"), Picture("signals", figure, about_plot)]
    steps = tuple((f"{at:.4g}", text) for at, text in done.moments)
    if steps:
        blocks += [Heading("Steps and faults"), Grid(("time, s", "step or fault"), steps)]
    if done.circuit:
        blocks += [Heading("The virtual circuit at the start"), *drawing(done.circuit), components(done.circuit)]
    passed = "passed" if done.ok else "FAILED"
    return Document(f"{done.sequence.file.stem}: {passed}", blocks)


def plot(done: SequenceResult) -> Figure | None:
    """One panel per channel with an expectation; below them the inputs and the valves' commands."""
    recorded = done.recorded
    if len(recorded.time) == 0:
        return None
    expected: dict[str, list[tuple[int, Expectation]]] = {}
    for number, expectation in enumerate(done.sequence.settings.expect, 1):
        if expectation.channel in recorded.channels:
            expected.setdefault(expectation.channel, []).append((number, expectation))
    panels = [
        (channel, recorded.units.get(channel, group[0][1].unit), {channel: recorded.channels[channel]})
        for channel, group in expected.items()
    ]
    driven = {
        name: values
        for name, values in recorded.channels.items()
        if name not in expected and (name.startswith("input.") or name.endswith(".command"))
    }
    panels += [("inputs, commands", "", driven)] if driven else []
    if not panels:
        return None
    figure = panels_figure(recorded.time, panels, f"{done.sequence.file.stem} ({done.where})")
    outcomes = {verdict.name: verdict.outcome for verdict in done.verdicts}
    for axis, (channel, unit, _) in zip(figure.axes, panels, strict=True):
        if channel == "mode":
            axis.set_yticks(range(len(Mode)), Mode.__members__)
        for number, expectation in expected.get(channel, []):
            _shade(axis, expectation, outcomes[title_of(expectation, number)], done, unit)
        for at, _ in done.moments:
            axis.axvline(at, color="0.5", ls=":", lw=0.8)
    return figure


def _shade(axis: Axes, e: Expectation, outcome: str, done: SequenceResult, unit: str) -> None:
    effects = {name: at for at, name in done.moments}
    if e.after and e.after not in effects:
        return
    _, due, end = window(e, effects.get(e.after, 0.0) if e.after else 0.0, done.recorded.time)
    low, high = axis.get_ylim()
    factor = shown_unit(unit)[1]
    bottom, top = (np.clip(bound * factor, -1e300, 1e300) for bound in (e.lower, e.upper))
    colour = {PASSED: "tab:green", FAILED: "tab:red", SKIPPED: "0.6"}[outcome]
    width = max(end - due, 0.002 * float(np.ptp(done.recorded.time)))
    spread = max(high - low, 1e-12)
    low, high = min(low, bottom if e.lower > -np.inf else low), max(high, top if e.upper < np.inf else high)
    bottom, top = max(bottom, low - 0.05 * spread), min(top, high + 0.05 * spread)
    axis.fill_between([due, due + width], bottom, top, color=colour, alpha=0.18, lw=0)
    axis.hlines([bottom, top], due, due + width, color=colour, lw=0.8)
    axis.set_ylim(low, high)
