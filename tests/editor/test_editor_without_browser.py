"""What the editor's page shows of faulty and hostile files, and what its boxes do; no browser is needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bare_page import bare_page, box_of, elements, happen
from editor_bench import BASE, document
from nicegui import ui

from hilserver.editor.edits import SetValue
from hilserver.editor.page import EditorPage
from hilserver.editor.selection import Selection
from hilserver.editor.session import EditorSession
from hilserver.editor.trial import Trial, TrialPanel
from hilserver.editor.trial_view import TrialView


def shown(session: EditorSession) -> Selection:
    return Selection(session, lambda name: None, lambda action, *arguments: action(*arguments) or True)


VALVE = """
[components.valve]
type = "directional_valve_4_3"
ports = { P = "supply", T = "tank", A = "A", B = "B" }
centre = "nonsense"

[solver]
integrator = "magic"
"""


def test_a_choice_that_does_not_exist_is_shown_as_it_is() -> None:
    """The page opens, says what is wrong, and the box offers what would be right."""
    session = EditorSession(document(BASE + VALVE))

    async def run() -> None:
        async with bare_page():
            page = EditorPage(session)
            assert (box_of("integrator").value, "rk4" in box_of("integrator").options) == ("magic", True)
            page.select("valve")
            assert (box_of("centre").value, "tandem" in box_of("centre").options) == ("nonsense", True)
            box_of("centre").set_value("tandem")
            assert session.document.table["components"]["valve"]["centre"] == "tandem"

    asyncio.run(run())


HOSTILE = 'x" innerHTML="<img src=y onerror=alert(1)>'


def test_names_in_a_file_are_texts_never_elements_of_the_page(tmp_path: Path) -> None:
    name = HOSTILE.replace('"', '\\"')
    (tmp_path / "inner.toml").write_text(
        f'ports = ["{name}"]\n[components.v]\ntype = "volume"\nports = {{ P = "{name}" }}\nvolume = "1 l"\n'
    )
    quoted = HOSTILE.replace('"', "'")
    part = f'[components."{quoted}"]\ntype = "subcircuit"\nfile = "inner.toml"\nports = {{ "{name}" = "supply" }}\n'
    session = EditorSession(document(f'{BASE}{part}[parameters]\n"{name}" = 1\n', tmp_path))

    async def run() -> None:
        async with bare_page():
            card = shown(session)
            for each in (quoted, "node supply", ""):
                card.show(each)
                assert not [e for e in elements() if "innerHTML" in e.props and not isinstance(e, ui.html)]
                assert all("<img" not in e.content for e in elements() if isinstance(e, ui.html))
            card.show(quoted)
            assert [e.props["aria-label"] for e in elements() if e.props.get("data-port") == HOSTILE] == [
                f"Node at {HOSTILE}"
            ]

    asyncio.run(run())


def test_a_box_that_is_only_looked_at_changes_nothing() -> None:
    text = BASE + 'description = """\nFirst paragraph.\n\nSecond one.\n"""\n'
    session = EditorSession(document(text))

    async def run() -> None:
        async with bare_page():
            shown(session).show("line")
            box = box_of("description")
            assert isinstance(box, ui.textarea), "all lines can be seen"
            happen("blur", box)
            assert session.document.text == text
            box.set_value("other")
            happen("blur", box)
            assert session.document.table["components"]["line"]["description"] == "other"

    asyncio.run(run())


def test_nodes_can_be_reached_by_keys() -> None:
    session, chosen = EditorSession(document(BASE)), list[str]()

    async def run() -> None:
        async with bare_page():
            Selection(session, chosen.append, lambda *_: True).show("line")
            (button,) = (e for e in elements() if isinstance(e, ui.button) and e.text == "P (hydraulic)")
            happen("click", button)
            assert chosen == ["node supply"]

    asyncio.run(run())


def test_one_trial_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit meanwhile does not offer another one."""
    session = EditorSession(document(BASE))

    async def run() -> None:
        async with bare_page():
            view = TrialView(session)
            (button,) = (e for e in elements() if isinstance(e, ui.button))
            seen: list[bool] = []

            async def slow(*_: object) -> Trial:
                view.refresh()
                seen.append(button.enabled)
                return Trial(panels=(TrialPanel("pressure", "Pa", {"line": [(0.0, 0.0)]}),))

            monkeypatch.setattr("hilserver.editor.trial_view.run_trial", slow)
            await view._run()
            assert [*seen, button.enabled] == [False, True]
            (old,) = (e for e in elements() if "trial-old" in e.classes)
            assert not old.visible
            session.make(SetValue(("components", "pump", "speed"), "1500 rpm"))
            view.refresh()
            assert old.visible, "its curves are those of another circuit now"
            session.undo()
            view.refresh()
            assert not old.visible

    asyncio.run(run())


@pytest.mark.parametrize("name", ["o'ring", "a<b", "é", "a#b", "a\\\\b"])
def test_parts_with_any_name_are_shown(name: str) -> None:
    session = EditorSession(document(BASE.replace("components.pump", f'components."{name}"')))
    own = name.replace("\\\\", "\\")

    async def run() -> None:
        async with bare_page():
            page = EditorPage(session)
            page.select(own)
            assert any(isinstance(e, ui.input) and e.value == own for e in elements())

    asyncio.run(run())
