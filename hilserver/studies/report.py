"""The page of a study: distributions, sensitivities, the worst runs and those that failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Plot

from hilserver.numerics.arrays import Floats
from hilserver.report.document import Block, Code, Document, Facts, Grid, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.plots import new_figure
from hilserver.studies.figures import Figure
from hilserver.studies.sensitivity import FEWEST, Sensitivity
from hilserver.studies.study import StudyResult
from hilserver.studies.varied import VariedValue
from hilserver.units import shown_unit

PERCENTILES = (5.0, 50.0, 95.0)
WORST = 3
"""Number of worst runs of each figure that are shown."""
MOST_VALUES = 6
"""Number of values of a worst run that are shown: those on which the figure depends most."""
MOST_REASONS = 20
"""Number of different reasons for failed runs that are shown."""
ENDED_EARLY = "Runs that ended early"
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d.]*(?:e[+-]?\d+)?")


def write_study(result: StudyResult, folder: Path) -> list[Path]:
    """The page as HTML and Markdown, and the statistics as JSON; returns the files. Raises HilserverError."""
    title = result.study.settings.description or result.study.name
    page = Document(title, tuple(_blocks(result))).write(folder, result.study.name)
    return [*page, write_json(study_figures(result), folder / f"{result.study.name}.json"), result.file]


def _blocks(result: StudyResult) -> Iterator[Block]:
    yield Facts(tuple(facts(result)))
    if notes := tuple(study_notes(result)):
        yield Listing(notes)
    yield Heading("Figures")
    yield figures_grid(result)
    yield Picture("distributions", _histograms(result), "Distribution of each figure; dashed: with nominal values.")
    for figure in result.study.figures:
        if (grid := sensitivity_grid(result, figure)) is not None:
            yield Heading(f"What {figure.name} depends on")
            yield grid
    for each in result.study.varied:
        if each.choices:
            yield Heading(f"By {each.key}")
            yield choices_grid(result, each)
    yield Heading("Worst runs")
    yield worst_grid(result)
    yield "To repeat one of them, with a report of its own, enter this command with its number:"
    yield Code(result.command(result.worst(result.study.figures[0], 1)[0]) if len(_finite(result)) else "")
    if (failed := failures_grid(result)) is not None:
        yield Heading("Failed runs")
        yield failed
    if (ended := ends_grid(result)) is not None:
        yield Heading(ENDED_EARLY)
        yield ended
    yield Heading("Varied quantities")
    yield quantities_grid(result)


def _finite(result: StudyResult) -> Floats:
    found = result.column(result.study.figures[0].name)
    return found[np.isfinite(found)]


def facts(result: StudyResult) -> Iterator[tuple[str, str]]:
    """Facts on the study and its run."""
    s, total, failed = result.study.settings, result.table.num_rows, len(result.failures())
    yield from result.study.studied.facts.items()
    yield "Plan", f"{s.plan}, {total} runs of {result.study.duration:g} s; seed {s.seed}"
    yield "Failed runs", _share(failed, total)
    if result.runs_here.nominal_end is not None:
        yield "Ended early", _share(len(result.ends()), total)
    if result.step:
        yield "Step", result.step
    if result.runs:
        rate = 60.0 * result.runs / result.wall
        of = f"{result.workers} processes" if result.workers > 1 else "1 process"
        yield "Elapsed time", f"{result.wall:.3g} s on {of}: {rate:.0f} runs per minute"
    yield "Software", f"hilserver {version('hilserver')}"


def _share(number: int, total: int) -> str:
    return f"{number} ({number / total:.1%})" if number else "none"


def study_notes(result: StudyResult) -> Iterator[str]:
    """What the reader should know."""
    if without := [figure.name for figure in result.study.figures if result.sensitivity(figure) is None]:
        why = f"it does not vary, or fewer than {FEWEST} samples of the plan have it"
        yield f"Without a sensitivity: {', '.join(without)} ({why})."
    if result.runs_here.without_effect:
        yield f"Without effect on the circuit: {', '.join(result.runs_here.without_effect)}."
    if result.runs_here.nominal_end:
        yield f"The nominal run ended early, too: {result.runs_here.nominal_end}."
    for figure in result.study.figures:
        if figure.has_limits:
            share, limits = result.share_within(figure), _limits(figure)
            yield f"{figure.name}: {share:.1%} of all runs are within the limits ({limits})."


def _limits(figure: Figure) -> str:
    texts = [f"below {figure.shown(figure.below)}"] if np.isfinite(figure.below) else []
    texts += [f"above {figure.shown(figure.above)}"] if np.isfinite(figure.above) else []
    return ", ".join(texts)


def figures_grid(result: StudyResult) -> Grid:
    """Statistics of each figure."""
    rows = []
    for figure in result.study.figures:
        found = result.column(figure.name)
        found = found[np.isfinite(found)]
        statistics = [result.nominal[figure.name], *_statistics(found)]
        rows.append((figure.name, figure.text, *map(figure.shown, statistics), str(len(found))))
    head = ("figure", "of", "nominal", "mean", "standard deviation", "smallest", *(f"{p:g} %" for p in PERCENTILES))
    return Grid((*head, "largest", "runs"), tuple(rows), "Over all runs that have the figure, with percentiles.")


def _statistics(found: Floats) -> list[float]:
    if not len(found):
        return [np.nan] * (4 + len(PERCENTILES))
    deviation = float(np.std(found, ddof=1)) if len(found) > 1 else np.nan
    return [float(found.mean()), deviation, float(found.min()), *np.percentile(found, PERCENTILES), float(found.max())]


def by_importance(result: StudyResult, found: Sensitivity) -> list[int]:
    """The places of the quantities, that on which the figure depends most first."""
    return [int(k) for k in np.argsort(-np.abs(found.first if result.study.settings.plan != "sobol" else found.second))]


def sensitivity_grid(result: StudyResult, figure: Figure, most: int | None = None) -> Grid | None:
    """The sensitivity of a figure to the ``most`` important quantities, or to all, in this order; None without one."""
    found = result.sensitivity(figure)
    if found is None:
        return None
    in_unit = result.study.settings.plan == "morris"
    shown = figure.shown if in_unit else (lambda value: f"{value:.3f}")
    rows = [
        (
            result.study.varied[k].key,
            *_with_interval(found.first[k], found.first_interval[k], shown),
            *(_with_interval(found.second[k], found.second_interval[k], shown) if found.heads[1] else ()),
        )
        for k in by_importance(result, found)[:most]
    ]
    caption = {
        "sobol": "Shares of the variance, with 95 % intervals: of the quantity alone, and with all its interactions.",
        "morris": "Mean absolute effect over the whole range, with 95 % interval; standard deviation of the effects.",
    }.get(result.study.settings.plan, "Spearman's rank correlation, -1 … 1.")
    if found.dropped:
        caption += f" {found.dropped} samples were left out, because one of their runs failed."
    heads = tuple(text for text in found.heads if text)
    return Grid(("quantity", *heads), tuple(rows), caption)


def choices_grid(result: StudyResult, choice: VariedValue) -> Grid:
    """Each figure with each of the choices."""
    rows, numbers = [], result.values[:, result.study.varied.index(choice)]
    for figure in result.study.figures:
        column = result.column(figure.name)
        for number, name in enumerate(choice.choices):
            found = column[numbers == number]
            failed = int((~np.isfinite(found)).sum())
            statistics = map(figure.shown, _statistics(found[np.isfinite(found)]))
            rows.append((figure.name, name, *statistics, f"{len(found) - failed} of {len(found)}"))
    head = ("figure", choice.key, "mean", "standard deviation", "smallest", *(f"{p:g} %" for p in PERCENTILES))
    return Grid((*head, "largest", "runs"), tuple(rows), "Over the runs with this choice that have the figure.")


def _with_interval(value: float, interval: float, shown: Any) -> tuple[str]:
    text = shown(value) if np.isfinite(value) else "–"
    return (f"{text} ± {shown(interval)}",) if np.isfinite(interval) else (text,)


def worst_grid(result: StudyResult) -> Grid:
    """The worst runs of each figure with their values."""
    rows = []
    for figure in result.study.figures:
        for number in result.worst(figure, WORST):
            text = _values_of(result, figure, number)
            value, error = result.column(figure.name)[number], result.step_error(figure, number)
            rows.append((figure.name, figure.shown(value), figure.shown(error), str(number), text))
    caption = "Step: by how much the figure changes with half of every integration step."
    return Grid(("figure", "value", "step", "run", "with"), tuple(rows), caption)


def _values_of(result: StudyResult, figure: Figure, number: int) -> str:
    """The values of a variant, in words; of many, those on which the figure depends most."""
    varied, values = result.study.varied, result.values[number]
    places = list(range(len(varied)))
    if len(places) > MOST_VALUES:
        found = result.sensitivity(figure)
        places = (by_importance(result, found) if found is not None else places)[:MOST_VALUES]
    texts = [f"{varied[k].key} {varied[k].shown(values[k])}" for k in places]
    rest = len(varied) - len(places)
    return ", ".join([*texts, *([f"{rest} others"] if rest else [])])


def failures_grid(result: StudyResult) -> Grid | None:
    """The reasons of failed runs, how often, and the first of them; None without any."""
    return _reasons_grid(result.failures(), "")


def ends_grid(result: StudyResult) -> Grid | None:
    """The same for runs that ended early; None without any."""
    return _reasons_grid(result.ends(), "Their figures also include what the rig did afterwards. ")


def _reasons_grid(reasons: Mapping[int, str], caption: str) -> Grid | None:
    """Reasons that differ in numbers only, such as a time, are one; its text is that of the first run."""
    alike = {number: NUMBER.sub("#", reason) for number, reason in reasons.items()}
    count = Counter(alike.values())
    first = {kind: number for number, kind in reversed(alike.items())}
    rows = tuple((reasons[first[kind]], str(n), str(first[kind])) for kind, n in count.most_common(MOST_REASONS))
    rest = len(count) - len(rows)
    caption += f"For {rest} other reasons, see the table." if rest else "Their numbers are in the table."
    return Grid(("the run", "runs", "the first"), rows, caption) if rows else None


def quantities_grid(result: StudyResult) -> Grid:
    """The varied quantities and their tolerances."""
    rows = []
    for each, is_in_place in zip(result.study.varied, result.runs_here.in_place, strict=True):
        t = each.tolerance
        of = ", ".join(each.shown(x) for x in t.steps) if t.steps else f"{each.shown(t.lower)} … {each.shown(t.upper)}"
        how = "prepared once each" if each.choices else "in place" if is_in_place else "packed again"
        rows.append((each.key, each.shown(each.value), of, "choice" if each.choices else t.distribution, how))
    caption = "Values that are written in place take no time; for the others the circuit is packed again in each run."
    return Grid(("quantity", "nominal", "values", "distribution", "changed"), tuple(rows), caption)


def _histograms(result: StudyResult) -> Plot:
    figures = result.study.figures
    plot = new_figure(len(figures), result.study.name)
    for axis, figure in zip(plot.subplots(len(figures), 1, squeeze=False)[:, 0], figures, strict=True):
        found = result.column(figure.name)
        unit, factor = shown_unit(figure.unit)
        axis.hist(factor * found[np.isfinite(found)], bins="auto" if len(found) < 10_000 else 100, color="tab:blue")
        if np.isfinite(nominal := result.nominal[figure.name]):
            axis.axvline(factor * nominal, color="black", ls="--", lw=1.0)
        for limit in (figure.below, figure.above):
            if np.isfinite(limit):
                axis.axvline(factor * limit, color="tab:red", lw=1.0)
        axis.set_xlabel(f"{figure.name}: {figure.text}" + (f", {unit}" if unit else ""))
        axis.set_ylabel("runs")
        axis.grid(alpha=0.3)
    return plot


def study_figures(result: StudyResult) -> dict[str, Any]:
    """The statistics as data, SI."""
    found: dict[str, Any] = {}
    for figure in result.study.figures:
        column = result.column(figure.name)
        values = _statistics(column[np.isfinite(column)])
        names = ("mean", "standard_deviation", "min", *(f"p{p:g}" for p in PERCENTILES), "max")
        found[figure.name] = {"nominal": result.nominal[figure.name], **dict(zip(names, values, strict=True))}
        if figure.has_limits:
            found[figure.name]["within_limits"] = result.share_within(figure)
        if (of := result.sensitivity(figure)) is not None:
            heads = zip(of.heads, (of.first, of.second), (of.first_interval, of.second_interval), strict=True)
            keys = [each.key for each in result.study.varied]
            found[figure.name]["sensitivity"] = {
                head: {key: [float(a), float(b)] for key, a, b in zip(keys, one, interval, strict=True)}
                for head, one, interval in heads
                if head
            }
    return {
        "study": result.study.name,
        "runs": result.table.num_rows,
        "failed": len(result.failures()),
        **({"ended_early": len(result.ends())} if result.runs_here.nominal_end is not None else {}),
        "figures": found,
    }
