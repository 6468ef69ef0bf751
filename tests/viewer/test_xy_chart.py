"""X/Y with the datasheet's curve: it is that of the circuit that ran, in the units of the axes, either way round."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bare_page import bare_page

from hilserver.circuit.change import with_values
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.viewer.layout import ViewAnalysis, ViewLayout, ViewPlot, ViewTab
from hilserver.viewer.layout_view import ViewerFiles
from hilserver.viewer.page import ViewerPage
from hilserver.viewer.store import LogStore
from hilserver.viewer.xy_chart import xy_chart

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
SIGNALS = ("circuit.supply.p", "circuit.relief.q_T", "channel.x")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pump is blocked; after 0.5 s the relief valve opens at 100 bar, below the pump's pressure."""
    path, rig = tmp_path_factory.mktemp("xy") / "run.arrow", load_rig(DEMO)
    with LockstepRun(rig, path) as run:
        run.run(500)
        run.swap(rig.read_circuit(with_values(rig.circuit.written, "relief", {"opening_pressure": "100 bar"})))
        run.run(1500)
    return path


def page_with(log: Path, check: Any) -> None:
    """Call a function with a page that shows the log's signals, and an X/Y plot with the relief valve's curve."""

    async def run() -> None:
        async with bare_page():
            page = ViewerPage(LogStore(), lambda: {log.name: log}, [], ViewerFiles(lambda: log.parent))
            await page._open([log.name])
            analyses = (ViewAnalysis(kind="xy", signals=SIGNALS[:2], curve="relief"),)
            await page._load(ViewLayout(tabs=(ViewTab(plots=(ViewPlot(signals=SIGNALS),), analyses=analyses),)))
            check(page)

    asyncio.run(run())


def test_the_curve_is_drawn_behind_the_points(log: Path) -> None:
    def check(page: ViewerPage) -> None:
        supply, relief, x = page.overlay.curves()
        note, options = xy_chart(supply, relief, (0.6, 2.0), "relief")
        behind, points = options["series"]
        assert "Dashed: relief by its datasheet" in note
        assert (behind["name"], behind["lineStyle"]["type"], behind["z"]) == ("relief", "dashed", 1)
        curve = np.array(behind["data"])  # bar and l/min: 20 l/min at 5 bar above the opening pressure
        assert np.interp(105.0, *curve.T) == pytest.approx(20.0, abs=0.3)
        rest = points["data"][-1]  # at the end, the circuit is at rest: the last point lies on the curve
        assert rest[1] == pytest.approx(np.interp(rest[0], *curve.T), abs=0.3)
        assert rest[1] > 1.0
        _, turned = xy_chart(relief, supply, (0.6, 2.0), "relief")
        assert np.array(turned["series"][0]["data"])[:, ::-1] == pytest.approx(curve, abs=1e-6)
        assert (
            "No datasheet curve: relief has no curve over these units" in xy_chart(x, relief, (0.0, 2.0), "relief")[0]
        )
        assert len(xy_chart(supply, relief, (0.0, 2.0))[1]["series"]) == 1

    page_with(log, check)


def test_it_is_that_of_the_circuit_that_ran(log: Path) -> None:
    def check(page: ViewerPage) -> None:
        opened = page.overlay.curves()[0].opened.log
        pressures = [opened.circuit_at(t)["components"]["relief"]["opening_pressure"] for t in (-1.0, 0.499, 0.5, 9.0)]
        assert pressures == ["150 bar", "150 bar", "100 bar", "100 bar"]

    page_with(log, check)


def test_the_page_offers_the_components_and_keeps_the_choice(log: Path) -> None:
    def check(page: ViewerPage) -> None:
        (card,) = page._analyses._cards
        assert list(card._curve.options) == ["", "main_valve", "pump", "relief"]
        assert (card._curve.value, card._curve.visible) == ("relief", True)
        card._curve.set_value("pump")
        assert page.overlay.tabs.shown.analyses[0].curve == "pump"
        card._kind.set_value("bode")
        assert not card._curve.visible
        assert page.overlay.tabs.shown.analyses[0].curve == ""

    page_with(log, check)
