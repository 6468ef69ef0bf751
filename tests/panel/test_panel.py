"""The panel in a real browser, on a real server and broker: what a user sees and does.

``pytest tests/panel/test_panel.py --screenshots`` writes the pictures of docs/panel.md.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from own_library import GAP, OWN, with_gap
from panel_bench import (
    CHROMIUM,
    MOSQUITTO,
    PASSWORDS,
    ROOT,
    WITHIN,
    Broker,
    User,
    chromium,
    circuit_of,
    component_of,
    login,
    picture,
    served,
)
from panel_stories import (
    arms_and_releases_a_reaction,
    begins_and_ends_a_playout,
    keeps_the_layout,
    opens_the_page_of_a_study,
    sees_the_window_of_a_trigger,
    zooms_all_plots,
)
from playwright.sync_api import Browser, expect
from service_harness import Server, eventually

from hilserver.client import connect
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or MOSQUITTO is None, reason="not installed: chromium or mosquitto (make test-programs)"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("panel")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def server(folder: Path, broker: Broker, request: pytest.FixtureRequest) -> Iterator[Server]:
    login = f'user = "server"\npassword_file = "{folder / "server"}"\ntelemetry_batch = "500 ms"'
    changes = {
        "embedded =": "embedded = false",
        "port = 0": f"port = {broker.port}\n{login}",
        "max_missed": "max_missed = 5000",
        "cycle =": f'cycle = "{ROOT}/config/cycles/lift.toml"\nlibrary = ["my_components.py"]',
        "max_age": 'max_age = "5 s"',
        "lost_after =": 'lost_after = "60 s"',  # the broker is restarted, on a machine that may be busy
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "5 s"\nreactions = 2\nplayouts = 1',
    }
    (folder / "my_components.py").write_text(OWN)
    name = "lift" if request.config.getoption("--screenshots", default=False) else ""
    with Server(folder, name, changes=changes) as server:
        yield server


@pytest.fixture(scope="module")
def url(folder: Path, broker: Broker, server: Server) -> Iterator[str]:
    with served(folder, broker.port, server, really=True) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def logged_in(browser: Browser, url: str) -> Iterator[User]:
    """An operator, logged in once."""
    user = User(browser, url, "anna", PASSWORDS["anna"])
    expect(user.page.locator(".link")).to_have_text("anna · operator")
    yield user
    user.context.close()
    assert user.errors == []


@pytest.fixture
def anna(logged_in: User, url: str) -> Iterator[User]:
    """The operator with the page newly loaded: no test finds a dialog or a tab that another one has left open.

    Afterwards the page is blank: one that is shown keeps browser and panel busy.
    """
    logged_in.page.goto(url)
    expect(logged_in.page.locator(".link")).to_have_text("anna · operator")
    yield logged_in
    logged_in.page.goto("about:blank")


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--screenshots", default=False))


def test_users_without_an_account_are_refused(browser: Browser, url: str, server: Server) -> None:
    stranger = User(browser, url, "anna", "guessed")
    expect(stranger.page.locator(".login-reason")).to_contain_text("refuses this user and password")
    stranger.page.get_by_label("User").fill("")
    stranger.presses("Log in")
    expect(stranger.page.locator(".login-reason")).to_contain_text("Enter a user name")
    assert stranger.page.locator(".schematic").count() == 0
    log = server.logs[-1]
    assert stranger.page.request.get(f"{url}/recordings/{log.name}").status == 404
    shown = stranger.page.request.get(f"{url}/view?log={log.name}")
    assert shown.url == f"{url}/", "the login"
    assert "time_plot" not in shown.text()
    stranger.context.close()


def test_the_panel_works_over_tls(folder: Path, broker: Broker, server: Server, browser: Browser) -> None:
    """With a certificate and its key: https, a cookie for https only, live values over it; nothing in the clear."""
    key, certificate = folder / "panel.key", folder / "panel.crt"
    kind = (
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    )
    subprocess.run(
        ("openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate), check=True, capture_output=True
    )
    files = ("--certificate", str(certificate), "--key", str(key))
    with served(folder, broker.port, server, *files, scheme="https") as url:
        wall = User(browser, url, "wall", PASSWORDS["wall"])
        expect(wall.page.locator(".link")).to_have_text("wall · viewer, read-only")
        expect(wall.page.locator('[data-value="value.p_S"]')).to_have_text(re.compile(r"\d+\.\d bar"))
        assert all(cookie["secure"] for cookie in wall.context.cookies())
        with pytest.raises((ConnectionResetError, URLError)), urlopen(url.replace("https", "http"), timeout=10):
            pass
        wall.context.close()
        assert wall.errors == []


def test_arm_start_and_see_the_plot_move(anna: User, screenshots: bool) -> None:
    anna.runs()
    anna.presses("Start work cycle")
    points = eventually(lambda: len(found := anna.points()) > 50 and found, 60)
    later = eventually(lambda: (found := anna.points())[-1][0] > points[-1][0] + 3000 and found, 60)
    moved = [value for _, value in later if value is not None]
    assert max(moved) - min(moved) > 5, "the cycle asks for 30 l/min, in l/min"
    expect(anna.page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"supply\s+1\d\d\.\d bar"))
    picture(anna, "panel", screenshots)


def test_a_component_is_changed_live(
    anna: User, server: Server, broker: Broker, folder: Path, screenshots: bool
) -> None:
    anna.runs()
    before = circuit_of(server, broker, folder).version
    for _ in range(2):
        anna.presses("larger")  # in the zoomed schematic as in the whole one
    expect(anna.page.locator(".schematic-view.zoomed")).to_be_visible()
    anna.clicks_component("relief")
    anna.types("opening_pressure", "120 bar")
    anna.applies_live()
    expect(anna.page.locator(".circuit-version")).to_have_text(f"version {before + 1}")
    now = circuit_of(server, broker, folder)
    assert now.version == before + 1
    assert component_of(server, broker, folder, "relief")["opening_pressure"] == "120 bar"
    anna.closes_component()
    zoomed = anna.page.locator(".zoomed .schematic")
    expect(zoomed).to_be_visible()  # the new drawing, too
    expect(zoomed.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"supply\s+1[123]\d\.\d bar"))
    anna.presses("fit")
    expect(zoomed).to_have_count(0)


def test_a_bad_value_is_refused_with_the_reason(
    anna: User, server: Server, broker: Broker, folder: Path, screenshots: bool
) -> None:
    before = circuit_of(server, broker, folder)
    anna.clicks_component("relief")
    wrong = anna.page.locator(".datasheet .wrong:visible")
    for entry, problem in (("120 l/min", "has the wrong unit"), ("100000 bar", "out of range: 0 … 4000 bar")):
        anna.types("opening_pressure", entry)
        expect(wrong).to_contain_text(problem)
        expect(anna.page.locator(".apply")).to_be_disabled()
    anna.types("opening_pressure", "0 bar")  # the panel knows the range only
    anna.applies()
    expect(anna.page.locator(".refusal-reason")).to_contain_text("must be > 0")
    picture(anna, "panel-component", screenshots)
    anna.closes_component()
    now = circuit_of(server, broker, folder)
    assert (now.version, now.source) == (before.version, before.source)


def test_another_type_takes_the_place(anna: User, server: Server, broker: Broker, folder: Path) -> None:
    before = component_of(server, broker, folder, "relief")
    anna.clicks_component("relief")
    anna.page.get_by_label("Type").click()
    anna.page.get_by_role("option", name="static_relief_valve", exact=True).click()
    anna.switches_to("static_relief_valve")
    anna.closes_component()
    relief = component_of(server, broker, folder, "relief")
    assert relief["type"] == "static_relief_valve"
    assert relief["opening_pressure"] == before["opening_pressure"], "what both have is kept"


def test_a_type_of_the_rig_s_own_takes_the_place(anna: User, server: Server, broker: Broker, folder: Path) -> None:
    """Of an orifice, which a script has put into the circuit; its values are those that its file declares."""
    with connect(broker=login(server, broker, folder, "anna")) as client:
        before = client.circuit.source
        circuit: Any = with_gap(before)
        orifice = {"type": "orifice", "nominal_flow": {"flow": "0.1 l/min", "drop": "10 bar"}}
        circuit["components"]["leak"] = {**orifice, "ports": circuit["components"]["leak"]["ports"]}
        client.switch_circuit(circuit)
        anna.clicks_component("leak")
        anna.page.get_by_label("Type").click()
        anna.page.get_by_role("option", name="annular_gap", exact=True).click()
        for key in ("gap", "length", "diameter"):  # an orifice has a diameter too: not before its form has gone
            anna.types(key, GAP[key])
        anna.switches_to("annular_gap")

        def leak() -> Any:
            components: Any = client.circuit.source["components"]
            return components["leak"]

        client.wait(lambda _: leak()["type"] == "annular_gap")
        assert {key: leak()[key] for key in GAP} == GAP
        anna.types("gap", "-1 um")
        expect(anna.page.locator(".datasheet .wrong:visible")).to_contain_text('"-1 um" is out of range: at least 0 mm')
        anna.closes_component()
        client.switch_circuit(before)


def test_an_input_is_moved(anna: User) -> None:
    anna.runs()
    anna.presses("Stop work cycle")
    slider = anna.page.get_by_role("slider", name="joystick")
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": 0.75 * box["width"], "y": box["height"] / 2})
    expect(anna.page.locator('[data-value="signal.joystick"]')).to_have_text(re.compile(r"joystick 0\.[45]\d+"))
    anna.page.get_by_role("button", name="to 0").click()
    expect(anna.page.locator('[data-value="signal.joystick"]')).to_have_text("joystick 0.000")


def test_the_strategy_is_shown_and_a_valve_is_jogged_while_a_button_is_held(anna: User, server: Server) -> None:
    anna.runs()
    anna.presses("Stop work cycle")
    strategy = anna.page.locator(".strategy input")
    expect(strategy).to_have_value("feedback")
    expect(anna.page.get_by_role("button", name="jog +")).to_be_hidden()
    anna.page.get_by_label("Strategy").click()
    anna.page.get_by_role("option", name="manual", exact=True).click()
    anna.sees_strategy("manual")
    command = anna.page.locator('[data-value="valve.main.command"]')
    expect(command).to_have_text("0.0 %")
    anna.page.get_by_role("button", name="jog +").hover()
    anna.page.mouse.down()
    expect(command).to_have_text("5.0 %")
    time.sleep(1.0)
    expect(command).to_have_text("5.0 %")
    anna.page.mouse.up()
    expect(command).to_have_text("0.0 %")
    anna.page.get_by_label("Strategy").click()
    anna.page.get_by_role("option", name="feedback", exact=True).click()
    anna.sees_strategy("feedback")


def test_units_are_chosen_and_commands_stay_si(anna: User) -> None:
    anna.runs()
    anna.page.locator(".units").click()
    anna.page.get_by_label("pressure", exact=True).click()
    anna.page.get_by_role("option", name="MPa").click()
    expect(anna.page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"supply\s+1\d\.\d\d\d MPa"))
    anna.page.get_by_label("pressure", exact=True).click()
    anna.page.get_by_role("option", name="bar", exact=True).click()
    anna.page.keyboard.press("Escape")
    expect(anna.page.locator('[data-value="value.p_S"]')).to_have_text(re.compile(r"\d+\.\d bar"))


def test_plots_pause_and_go_on(anna: User, screenshots: bool) -> None:
    anna.runs()
    anna.presses("Start work cycle")
    anna.opens_plots()
    eventually(lambda: len(found := anna.points()) > 20 and found[-1][0] > found[0][0] + 2000, 60)
    time.sleep(12 if screenshots else 0)
    picture(anna, "panel-plots", screenshots)
    anna.presses("Pause")
    held = anna.last_point_held()
    anna.presses("1 min")
    eventually(lambda: anna.points()[0][0] < held[0] - 1000, 60)
    assert anna.points()[-1] == held, "another window of what is held"
    anna.presses("30 s")
    anna.presses("Continue")
    eventually(lambda: anna.points()[-1][0] > held[0] + 1000, 60)


def test_a_zoomed_plot_stays_zoomed_while_data_come(anna: User) -> None:
    zooms_all_plots(anna)


def test_a_trigger_shows_its_window_and_the_layout_is_kept(
    anna: User, server: Server, broker: Broker, folder: Path, url: str
) -> None:
    anna.runs()
    with connect(broker=login(server, broker, folder, "anna")) as client:
        sees_the_window_of_a_trigger(anna, client, server)
    keeps_the_layout(anna, server, url)


def test_a_reaction_and_a_playout_are_begun_and_ended(anna: User) -> None:
    anna.runs()
    arms_and_releases_a_reaction(anna)
    begins_and_ends_a_playout(anna)


def test_a_viewer_sees_everything_and_cannot_operate(browser: Browser, url: str, anna: User, server: Server) -> None:
    anna.runs()
    viewer = User(browser, url, "wall", PASSWORDS["wall"])
    expect(viewer.page.locator(".link")).to_have_text("wall · viewer, read-only")
    viewer.sees_mode("RUNNING")
    expect(viewer.page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"supply\s+\d+\.\d bar"))
    for name in ("Arm", "Start", "Disarm", "Reset", "Trip", "STOP"):
        expect(viewer.page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    viewer.page.locator("#stop").click(force=True)  # sent all the same: a slow server and a viewer look alike
    expect(viewer.page.locator("#stop small")).to_contain_text("this login is read-only: use the emergency stop")
    anna.sees_mode("RUNNING")
    viewer.clicks_component("relief")
    expect(viewer.page.locator(".apply")).to_be_disabled()
    assert viewer.page.request.get(f"{url}/recordings/../panel.log").status == 404
    viewer.page.goto(f"{url}/view?log={server.logs[-1].name}")
    expect(viewer.page.locator("body:has(.log-name)").get_by_role("button", name="Add a note")).to_be_disabled()
    viewer.context.close()
    assert viewer.errors == []


def test_recordings_are_listed_and_downloaded(anna: User, server: Server) -> None:
    anna.opens("Recordings")
    log = server.logs[-1]
    row = anna.page.locator(".recordings tr", has_text=log.name)
    with anna.page.expect_download() as download:
        row.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == log.name
    got = Path(download.value.path()).read_bytes()
    assert len(got) > 10_000
    assert log.read_bytes().startswith(got), "it is being written, and has grown meanwhile"


@pytest.fixture
def ended(server: Server) -> Iterator[Path]:
    """A recording of this rig that has ended, beside the one that is being written."""
    log = server.logs[0].with_name(f"2026-01-01T00-00-00_{server.name}.arrow")
    with LockstepRun(load_rig(server.rig), log) as run:
        run.start()
        run.run(500)
    yield log
    log.unlink()


def test_recordings_are_viewed(anna: User, ended: Path, url: str) -> None:
    """An ended one with the one being written beside it; no file outside of the folder can be opened."""
    anna.opens("Recordings")
    viewer = anna.views(ended.name)
    expect(viewer.locator(".log-name")).to_have_text(ended.name)
    expect(viewer.locator(".figures")).to_contain_text(re.compile(r"channel\.p_A\s*bar"))
    expect(viewer.locator(".figures tbody tr").first).to_contain_text(re.compile(r"50\d$"))
    viewer.locator(".add-log").click()
    other = viewer.get_by_role("option").first
    name = other.inner_text()
    other.click()
    expect(viewer.locator(".log-name")).to_have_text([ended.name, name])
    viewer.goto(f"{url}/view?log=../server.toml")
    expect(viewer.locator(".trouble")).to_contain_text("../server.toml is not among the logs that can be opened here")
    viewer.close()


def test_a_recording_is_replayed(anna: User, server: Server, ended: Path) -> None:
    """An ended one and the one being written, bit for bit; a file that is no log is refused with the reason."""
    broken = ended.with_name("2026-01-02T00-00-00_broken.arrow")
    broken.write_bytes(b"ARROW1\0\0" + 500 * b"no such thing")
    anna.opens("Recordings")
    running = [log for log in server.logs if log not in (ended, broken)][-1]
    verdicts = {ended: "The replay reproduces", running: "The replay reproduces", broken: "This recording can't be"}
    # A recorder that stood still on a busy machine was replaced, and its log has ended like another.
    words: dict[Path, str | re.Pattern[str]] = {
        ended: "identical, bit for bit",
        running: re.compile("no end mark|bit for bit"),
        broken: broken.name,
    }
    for log, verdict in verdicts.items():
        anna.replays(log.name)
        expect(anna.page.locator(".replay-verdict")).to_contain_text(verdict, timeout=5 * WITHIN)
        expect(anna.page.locator(".replay pre")).to_contain_text(words[log])
        anna.presses("Close")
        expect(anna.page.locator(".replay")).to_have_count(0)
    broken.unlink()


def test_studies_are_listed_and_opened(anna: User, browser: Browser, url: str, folder: Path) -> None:
    opens_the_page_of_a_study(anna, url, folder / "reports")
    stranger = browser.new_context()
    assert stranger.request.get(f"{url}/studies/relief.html").url == f"{url}/", "the login"
    stranger.close()


def test_the_panel_survives_a_restart_of_the_broker(anna: User, broker: Broker) -> None:
    anna.runs()
    broker.stop()
    expect(anna.page.locator("#lost-link")).to_contain_text("No connection to the broker")
    expect(anna.page.locator(".mode")).to_have_text("OFFLINE")
    expect(anna.page.get_by_role("button", name="STOP", exact=True)).to_be_disabled()
    broker.start()
    anna.sees_mode("RUNNING")
    expect(anna.page.locator("#lost-link")).to_be_hidden()
    last = eventually(anna.points, 60)[-1][0]
    eventually(lambda: anna.points()[-1][0] > last, 60)


def test_stop_is_within_reach_of_an_open_dialog(anna: User) -> None:
    anna.runs()
    anna.clicks_component("pump")
    assert anna.page.evaluate("document.getAnimations().length") == 0, "this user wants less motion"
    anna.presses("STOP")
    anna.sees_mode("ARMED")
    anna.presses("STOP")
    anna.sees_mode("SAFE")
    anna.closes_component()


def test_a_trip_is_an_alarm_until_it_is_reset(anna: User, server: Server, broker: Broker, folder: Path) -> None:
    with connect(broker=login(server, broker, folder, "anna")) as client:
        before = client.circuit.source
        client.switch("relief", {"opening_pressure": "151 bar"})  # an event that is no alarm
        client.switch_circuit(before)
    anna.presses("Trip")
    anna.sees_mode("FAULT")
    expect(anna.page.locator(".notes")).to_contain_text("FAULT")
    anna.opens("Alarms")
    expect(anna.page.locator(".events tbody tr").first).to_contain_text("FAULT")
    expect(anna.page).to_have_title(re.compile(r"^\(\d+\) "))
    anna.page.locator(".acknowledge").first.click()
    expect(anna.page.locator(".events tbody tr", has_text="FAULT").locator(".acknowledge")).to_have_count(0)
    anna.acknowledges_all()
    expect(anna.page).to_have_title(re.compile(r"^[^(]"))
    anna.presses("switches")
    expect(anna.page.locator(".events")).to_contain_text(" → ")
    anna.presses("Reset")
    anna.sees_mode("SAFE")


def test_the_panel_fits_on_a_tablet(browser: Browser, url: str, anna: User) -> None:
    """Upright, 10 inches: nothing is wider than the screen."""
    anna.page.set_viewport_size({"width": 820, "height": 1180})
    anna.page.wait_for_timeout(500)
    wide = anna.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0
    expect(anna.page.get_by_role("button", name="STOP", exact=True)).to_be_in_viewport()
    anna.page.set_viewport_size({"width": 1400, "height": 1000})
