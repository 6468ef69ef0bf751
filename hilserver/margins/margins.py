"""Feasibility and stability of a rig's bridges together: examined, as tables, and as warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from math import isinf

from rich.table import Table

from hilserver.circuit.program import Program
from hilserver.margins import capacity as f
from hilserver.margins import delay as s
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.simulation.machine import Pause, no_pause


@dataclass(frozen=True)
class Margins:
    """What was found of a circuit at a rig."""

    feasibility: f.Feasibility
    stability: s.Stability

    def warnings(self, strategies: Collection[str]) -> Iterator[str]:
        """What is too small, in words; of stability for these strategies."""
        yield from f.warnings(self.feasibility)
        yield from s.warnings(self.stability, strategies)

    def tables(self) -> Iterator[Table]:
        """Capacity, speed, frequencies and stability, one table each."""
        yield _capacity_table(self.feasibility)
        yield _speed_table(self.feasibility)
        yield _frequency_table(self.feasibility)
        yield _stability_table(self.stability)


def margins(rig: Rig, program: Program, row: Floats | None = None, pause: Pause = no_pause) -> Margins:
    """Examine the rig's circuit, which takes a second or two. ``row``: of a running rig, for its supply pressures."""
    feasibility, stability = f.feasibility(rig, program, row, pause), s.stability(rig, program, row, pause)
    if (point := stability.fastest()) is not None and point.fastest > 0.0:
        on_machine = f.Frequency(
            f"the virtual circuit on the machine ({point})", point.fastest, rig.settings.loop.rate / point.fastest
        )
        feasibility = replace(feasibility, frequencies=(*feasibility.frequencies, on_machine))
    return Margins(feasibility, stability)


def _capacity_table(found: f.Feasibility) -> Table:
    heads = (
        "valve",
        "direction",
        "circuit",
        "real valve",
        "margin",
        "at the real supply",
        "smallest",
    )
    table = _table("Capacity", *heads)
    for capacity in found.capacities:
        if capacity.worst is None:
            table.add_row(capacity.valve, capacity.direction, "nothing", "", "", "", "")
            continue
        per_drop = [f"{C * 35e5**0.5 * 6e4:.4g} l/min" for C in (capacity.needed, capacity.real)]
        margin = "?" if capacity.valve in found.assumed else f"{capacity.margin:.3g}"
        same = f"{capacity.same_drop:.3g}"
        table.add_row(capacity.valve, capacity.direction, *per_drop, same, margin, f.stated(capacity.worst))
    table.caption = (
        "Flow at full command with 35 bar over an edge; margin: real valve by circuit, at the same drop and with the "
        "real supply. At least 1 is needed."
    )
    if found.assumed:
        table.caption += f" Real supply of {', '.join(found.assumed)}: not known before it is measured."
    return table


def _speed_table(found: f.Feasibility) -> Table:
    table = _table("Speed", "valve", "a step of the inputs asks for", "the spool reaches", "slew allows", "margin")
    for speed in found.speeds:
        asked = f"{speed.asked:.3g} 1/s" + (f" ({f.inputs_stated(speed.step)})" if speed.asked else "")
        margin = "-" if isinf(speed.margin) else f"{speed.margin:.3g}"
        table.add_row(speed.valve, asked, f"{speed.spool:.3g} 1/s", f"{speed.slew:.3g} 1/s", margin)
    table.caption = "Change of the real valve's opening, full strokes per second. Below 1 it comes late after a step."
    return table


def _frequency_table(found: f.Feasibility) -> Table:
    table = _table("Highest significant frequencies", "of", "frequency", "ticks per period")
    for frequency in found.frequencies:
        table.add_row(frequency.what, f"{frequency.hertz:.3g} Hz", f"{frequency.ticks:.3g}")
    table.caption = f"At least {f.EVERY:g} ticks per period are needed."
    return table


def _stability_table(found: s.Stability) -> Table:
    if found.missing:
        table = _table("Stability", "not known")
        table.add_row(found.missing)
        return table
    late = f"late, all {s.OFF:.0%} slower"
    table = _table("Stability", "strategy", "late", late, "critical delay", "frequency", "margin", "at")
    for margin in found.margins:
        lateness = [f"{1e3 * margin.late:.2f} ms", f"{1e3 * margin.late_off:.2f} ms"]
        if margin.where is None:
            table.add_row(margin.strategy, *lateness, "none", "", "any", "")
        else:
            critical = [f"{1e3 * margin.critical:.2f} ms", f"{margin.frequency:.3g} Hz", f"{margin.margin:.3g}"]
            table.add_row(margin.strategy, *lateness, *critical, str(margin.where))
    table.caption = (
        f"Machine: {found.origin}, at {len(found.points)} operating points. Margin: critical delay by lateness with "
        f"all parameters off; at least {s.SMALL:g} is wanted."
    )
    if not found.supply_known:
        table.caption += " Without the real valves' own damping: their supply is not known before it is measured."
    return table


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head)
    return table
