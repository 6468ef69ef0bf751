"""A datasheet value on a page: what it is, what is entered, what is wrong with that; and the symbol of a component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nicegui import ui

from hilserver.drawing.symbols import symbol
from hilserver.web.datasheet import DatasheetField, as_text

ONE_LINE = 16
"""Letters of a value that the field shows in one line on a phone."""


def picture(kind: str, values: Mapping[str, Any]) -> str:
    """The symbol of a component with these datasheet values as an SVG; empty if there is none."""
    drawn = symbol(kind, values)
    if drawn is None:
        return ""
    return (
        f'<svg viewBox="0 0 {drawn.width:g} {drawn.height:g}" width="{drawn.width * 0.9:g}" fill="none" '
        f'stroke="currentColor" stroke-width="1.2" style="overflow:visible">{drawn.body}</svg>'
    )


class ValueRow:
    """A datasheet value: name, value now, new value, range and meaning.

    ``changed`` is called with each letter that is entered, ``entered`` when an entry is complete.
    """

    def __init__(
        self, field: DatasheetField, changed: Callable[[], object], entered: Callable[[ValueRow], object] | None = None
    ) -> None:
        self.field, self.problem = field, ""
        self._changed = changed
        ui.label(field.title).classes("title")
        self._now = ui.label(field.given or field.default or "–").classes("now")
        if field.info.choices:
            known = [*field.info.choices]
            wrong = [field.given] if field.given and field.given not in known else []
            optional = entered is not None and not field.info.required
            self._box: Any = ui.select(known + wrong, value=field.given or None, clearable=optional)
        else:
            has_room = len(field.given or field.default) <= ONE_LINE and "\n" not in field.given
            self._box = (ui.input if has_room else ui.textarea)(value=field.given, placeholder=field.default)
            self._box.props("" if has_room else "autogrow")
        self._box.props("outlined dense hide-bottom-space")
        self._box.props.update({"data-field": field.key, "aria-label": field.title})
        self._box.classes("new")
        about = " · ".join(text for text in (field.range, field.info.description) if text)
        self._about = ui.label(about).classes("about")
        self._wrong = ui.label().classes("wrong")
        self._wrong.visible = False
        self._box.on_value_change(self._look)
        if entered is not None and field.info.choices:
            self._box.on_value_change(lambda: entered(self))
        elif entered is not None:
            for event in ("blur",) if "\n" in field.given else ("blur", "keydown.enter.prevent"):
                self._box.on(event, lambda: entered(self))

    @property
    def entry(self) -> str:
        """What is entered."""
        return str(self._box.value or "")

    @property
    def is_changed(self) -> bool:
        """Whether something else than the present value is entered."""
        return bool(self.entry) and self.entry != self.field.given

    def follow(self, field: DatasheetField) -> None:
        """Show another present value; an entry of the user is kept."""
        untouched = not self.is_changed
        self.field = field
        self._now.set_text(field.given or field.default or "–")
        if untouched:
            self._box.set_value(field.given)
        self._look()

    def put(self, value: object) -> None:
        """Show a value that was just made the present one here."""
        text = value if isinstance(value, str) else as_text(value)
        self.follow(replace(self.field, given=text))
        self._box.set_value(text)  # as such values are shown, however it was entered

    def refuse(self, reason: str) -> None:
        """Show why an entry is not taken."""
        self.problem = reason
        self._wrong.set_text(reason)
        self._wrong.visible = bool(reason)

    def _look(self) -> None:
        self._box.classes(add="changed" if self.is_changed else "", remove="" if self.is_changed else "changed")
        self.refuse(self.field.problem(self.entry) if self.is_changed else "")
        self._changed()
