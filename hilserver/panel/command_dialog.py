"""A dialog for any command: a field for each of its values, as the command's model describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from nicegui import ui
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from hilserver.errors import HilserverError, problems_of
from hilserver.panel.view import Page
from hilserver.protocol.commands import Command
from hilserver.viewer.trigger import level_text

COMMON = ("id", "expires")
"""Fields of every command, which the connection fills in."""


class CommandDialog:
    """The dialog of one command. A refusal is shown in it, with the entries kept.

    ``choices`` are the values that are offered for some fields now; ``examples`` are shown in empty ones.
    """

    def __init__(
        self,
        page: Page,
        model: type[Command],
        title: str,
        action: str,
        choices: Callable[[], Mapping[str, Sequence[str]]],
        examples: Mapping[str, str],
    ) -> None:
        self.page, self._model, self._choices = page, model, choices
        self._fields: dict[str, Any] = {}
        offered = choices()
        with ui.dialog() as self.dialog, ui.column().classes("card gap-2 command-dialog"):
            ui.label(title).classes("text-lg font-bold")
            with ui.element("div").classes("grid grid-cols-1 sm:grid-cols-2 gap-2 w-full"):
                for name, info in model.model_fields.items():
                    if name not in COMMON:
                        self._fields[name] = self._field(name, info, name in offered, examples.get(name, ""))
            self._reason = ui.label().classes("note fault w-full refusal-reason whitespace-pre-line")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=self.dialog.close).props("flat no-caps")
                self._apply = ui.button(action, on_click=self._send).props("no-caps").classes("send-command")

    def _field(self, name: str, info: FieldInfo, is_offered: bool, example: str) -> Any:
        """The element of a field: a selection, a switch, or a text box."""
        words, title = literals(info.annotation), name.replace("_", " ")
        element: Any
        if words or is_offered:
            element = ui.select(words, label=title, with_input=is_offered, value=words[0] if words else None)
            element.props("outlined dense options-dense" + (" clearable" if is_offered else ""))
        elif kind_of(info.annotation) is bool:
            element = ui.checkbox(title, value=bool(info.default)).props("dense")
        else:
            default = "" if info.is_required() or info.default is None else f"{info.default}"
            element = ui.input(title, value=default, placeholder=example).props("outlined dense")
        return element.classes(f"field-{name}").tooltip(info.description or name)

    def open(self) -> None:
        """Open the dialog, with what is offered now."""
        self._reason.visible = False
        for name, offered in self._choices().items():
            chosen = self._fields[name].value
            self._fields[name].set_options(list(offered), value=chosen if chosen in offered else None)
        self.dialog.open()

    async def _send(self) -> None:
        self._reason.visible = False
        try:
            command = command_of(self._model, {name: field.value for name, field in self._fields.items()})
        except HilserverError as error:
            self._refuse(str(error))
            return
        answer = await self.page.command(command, quiet=True)
        if answer is None:
            self._refuse("No answer came: check whether the command was carried out.")
        elif not answer.ok:
            self._refuse("\n".join(answer.problems) or str(answer.reason))
        else:
            self.dialog.close()

    def _refuse(self, text: str) -> None:
        self._reason.set_text(text)
        self._reason.visible = True


def command_of(model: type[Command], entered: Mapping[str, object]) -> Command:
    """The command with what was entered; empty texts are left out. Raises HilserverError with what is wrong."""
    given: dict[str, Any] = {}
    for name, value in entered.items():
        text = value.strip() if isinstance(value, str) else value
        if text not in ("", None):
            given[name] = _number(name, text, kind_of(model.model_fields[name].annotation))
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise HilserverError("\n".join(map(str, problems_of(error, given, names=model.model_fields)))) from None


def _number(name: str, text: object, kind: object) -> object:
    """A text as the number that a field needs; as it is if it is none: the model says so."""
    if kind not in (int, float) or not isinstance(text, str):
        return text
    try:
        return int(text) if kind is int else level_text(text, "", "")
    except ValueError:
        return text
    except HilserverError as error:
        raise HilserverError(f"{name}: {error}") from None


def kind_of(annotation: object) -> object:
    """The type of a field's value: of ``float | None``, float."""
    if get_origin(annotation) in (Union, UnionType):
        return next(kind_of(each) for each in get_args(annotation) if each is not NoneType)
    return annotation


def literals(annotation: object) -> list[str]:
    """The words of which a field takes one; none if it takes something else."""
    kind = kind_of(annotation)
    return [str(word) for word in get_args(kind)] if get_origin(kind) is Literal else []
