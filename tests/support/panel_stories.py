"""What a user does in the panel to look closely at a running rig, and what they see; in a browser, at a server."""

from __future__ import annotations

import re
import time
from pathlib import Path

from panel_bench import User
from playwright.sync_api import expect
from service_harness import Server, eventually
from study_bench import written_state

from hilserver.client import Client
from hilserver.protocol import commands
from hilserver.record.reader import LogReader
from hilserver.report.studies import lock


def sees_the_window_of_a_trigger(user: User, client: Client, server: Server) -> None:
    """Armed in the panel, found by the recorder: every sample, also of a signal that is not in telemetry."""
    page = user.page
    client.do(commands.Cycle(action="stop"))  # of another test
    client.set_input("joystick", 0.0)
    user.opens_plots()
    expect(page.locator(".trigger-signal input")).not_to_have_value("")  # the channels are offered
    page.locator(".trigger-signal input").fill("joystick")
    page.get_by_role("option", name="input joystick").click()
    page.locator(".trigger-level input").fill("0.25")
    user.presses("Single")
    expect(page.locator(".trigger-row", has_text="panel")).to_contain_text("waiting")
    client.set_input("joystick", 0.5)
    expect(page.locator(".trigger-row", has_text="panel")).to_contain_text("input.joystick > 0.25")
    expect(page.locator(".trigger-window")).to_contain_text("_panel.arrow")
    client.set_input("joystick", 0.0)
    page.locator(".window-signals input").fill("compute_time")
    page.get_by_role("option", name="compute_time", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.locator(".trigger-window .time-plot canvas").first).to_be_visible()
    (cut,) = (server.logs[-1].parent / "cuts").glob("*_panel.arrow")
    joystick = LogReader(cut).read_all().columns["input.joystick"]
    assert len(joystick) == 25 + 125 + 1
    assert joystick[24] <= 0.25 < joystick[25]


def keeps_the_layout(user: User, server: Server, url: str) -> None:
    """In the file with the rig's name, which the wall shows."""
    page = user.page
    page.get_by_role("button", name="Add a tab").click()
    expect(page.locator(".live-plot")).to_have_count(1)
    plots = """() => [...panel.charts.values()].filter((chart) => chart.group === "Plots").length"""
    eventually(lambda: page.evaluate(plots) == 1, 60)  # those of the other tab are not waited for
    page.get_by_role("button", name="Layout").click()
    page.locator(".q-menu .q-item", has_text=f"Save {server.name}.layout.toml").click()
    file = server.logs[-1].parent / f"{server.name}.layout.toml"
    eventually(file.exists, 60)
    page.goto(f"{url}/wall?layout={server.name}")
    expect(page.locator(".live-plot .heading").first).to_have_text("Pressures")
    file.unlink()


def arms_and_releases_a_reaction(user: User) -> None:
    """A wrong one is refused in the form, in which it can be corrected."""
    page = user.page
    user.presses("Stop work cycle")
    page.locator(".reactions").get_by_role("button", name="Arm …").click()
    for name, text in {"reaction": "over", "when": "p_A > 9 bar/s"}.items():
        page.locator(f".command-dialog .field-{name} input").fill(text)
    page.locator(".field-then").click()
    page.get_by_role("option", name="hold").click()
    page.locator(".send-command:visible").click()
    expect(page.locator(".command-dialog .refusal-reason:visible")).to_contain_text("when: ")
    page.locator(".field-when input").fill("p_A > 900 bar")
    page.locator(".send-command:visible").click()
    expect(page.locator(".reactions")).to_contain_text("over")
    expect(page.locator(".reactions .automation-state")).to_have_text("watching")
    page.locator(".reactions").get_by_role("button", name="Release").click()
    expect(page.locator(".reactions .automation-state")).to_have_count(0)


def begins_and_ends_a_playout(user: User) -> None:
    """With input and channel chosen from lists."""
    page = user.page
    page.locator(".playouts").get_by_role("button", name="Play …").click()
    fields = {"playout": "shake", "amplitude": "5 mm", "frequency": "2 Hz", "cycles": "1000"}
    for name, text in fields.items():
        page.locator(f".command-dialog .field-{name} input").fill(text)
    for name, text in {"input": "joystick", "channel": "x"}.items():
        page.locator(f".command-dialog .field-{name} input").fill(text)
        page.get_by_role("option", name=text, exact=True).click()
    page.locator(".send-command:visible").click()
    expect(page.locator(".playouts .automation-state")).to_contain_text("of 1000 cycles at 2 Hz")
    page.locator(".playouts").get_by_role("button", name="End").click()
    expect(page.locator(".playouts")).to_contain_text("ENDED")


def zooms_all_plots(user: User) -> None:
    """All plots of the tab zoom together, in the moving picture as in the held one, and back."""
    user.opens_plots()
    chart = user.page.locator(".chart:visible").first

    def zooms() -> list[tuple[float, float]]:
        """The part of the time axis, in per cent, that each plot shows."""
        script = """() => [...panel.charts].filter(([id, chart]) => chart.group === "Plots").map(([id]) => {
            const zoom = getElement(id)?.chart?.getOption()?.dataZoom?.[0];  // none before it is drawn
            return zoom ? [Math.round(zoom.start), Math.round(zoom.end)] : [-1, -1];
        })"""
        return [(start, end) for start, end in user.page.evaluate(script)]

    def turn_the_wheel() -> None:
        chart.hover(position={"x": 300, "y": 100})
        for _ in range(5):
            user.page.mouse.wheel(0, -120)

    eventually(lambda: set(zooms()) == {(0, 100)}, 60)
    turn_the_wheel()
    (zoomed,) = eventually(lambda: len(found := set(zooms())) == 1 and found != {(0, 100)} and found, 60)
    assert 10 < zoomed[1] - zoomed[0] < 90
    last = user.points()[-1][0]
    eventually(lambda: user.points()[-1][0] > last + 1000, 60)
    assert set(zooms()) == {zoomed}, "it stays so"
    user.presses("Whole window")
    eventually(lambda: set(zooms()) == {(0, 100)}, 60)
    user.presses("Pause")
    turn_the_wheel()
    eventually(lambda: (0, 100) not in zooms(), 60)
    user.presses("Whole window")
    eventually(lambda: set(zooms()) == {(0, 100)}, 60)
    assert len(user.points()) > 20, "what is held is still there"
    user.presses("Continue")


def opens_the_page_of_a_study(user: User, url: str, reports: Path) -> None:
    """Of one that has ended, without rights in the panel whatever is in it; another one goes on meanwhile."""
    reports.mkdir()
    written_state(reports / "relief", runs=448, done=448, failed=2, finished=True)
    (reports / "relief.html").write_text(
        "<h1>Relief valves</h1><p id=p>text</p><script>p.textContent = document.cookie + 'executed'</script>"
        f"<img src='{url}/recordings/x' onerror=\"p.textContent = 'executed'\">"
    )
    user.opens("Studies")
    row = user.page.locator(".studies tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(re.compile("relief.*448 runs.*2 failed.*finished"))
    with user.page.expect_popup() as popup:
        row.get_by_role("button", name="Open").click()
    expect(popup.value.locator("h1")).to_have_text("Relief valves")
    expect(popup.value.locator("#p")).to_have_text("text")
    popup.value.close()
    written_state(reports / "types", runs=90, done=50, remaining=30.0, written=time.time())
    with (reports / "types.part.arrows").open("wb") as table:
        assert lock(table)
        expect(row.first).to_contain_text(re.compile("types.*50 of 90 runs.*running, 30 s left"))
    expect(row.first).to_contain_text("interrupted")
