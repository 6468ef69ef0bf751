"""The tabs above the plot with their plots, and the menu of layouts: save, load, share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from nicegui import run, ui
from nicegui.events import UploadEventArguments

from hilserver.errors import HilserverError
from hilserver.viewer.axis_units import axis_unit, offered_units
from hilserver.viewer.layout import (
    LARGEST_LAYOUT,
    SUFFIX,
    ViewLayout,
    layout_file,
    layout_text,
    layouts_in,
    name_of,
    parse_layout,
    read_layout,
    write_layout,
)
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.tabs import Tabs

NO_RIGHT = "your login no longer has the right to write."


@dataclass(frozen=True)
class ViewerFiles:
    """Where a page keeps layouts and notes: the folder (None: nowhere), the layout that was given, who may write."""

    folder: Callable[[], Path | None] = lambda: None
    layout: Path | None = None
    may_write: Callable[[], bool] = lambda: True


class Tabbed(Protocol):
    """Something with tabs."""

    tabs: Tabs


class LaidOut(Protocol):
    """Something with a layout, as it can be saved."""

    @property
    def layout(self) -> ViewLayout: ...


class TabsView:
    """The tabs. ``changed`` is called after every change; with True if another tab may be shown."""

    def __init__(self, shown: Tabbed, changed: Callable[[bool], None]) -> None:
        self._shown, self._changed = shown, changed
        self._tabs = ui.row().classes("items-center gap-1 tabs")

    def refresh(self) -> None:
        """Show the tabs as they are now."""
        tabs = self._shown.tabs
        self._tabs.clear()
        with self._tabs:
            for place, tab in enumerate(tabs.all):
                self._entry(tab.name or f"Tab {place + 1}", place == tabs.place, partial(tabs.show, place), True)
            rename = partial(self._rename, "Name of the tab", tabs.shown.name, lambda name: tabs.change(name=name))
            self._menu("tab", {"left": partial(tabs.move, -1), "right": partial(tabs.move, 1)}, tabs.remove, rename)
            self._button("Add a tab", tabs.add, True)

    def plot_menu(self, place: int | None = None) -> None:
        """A menu that changes the plot at this place in the tab; by default the selected one."""
        tabs = self._shown.tabs
        chosen = tabs.plot if place is None else place

        def selected(change: Callable[[], None]) -> None:
            tabs.select(chosen)
            change()

        def rename(name: str) -> None:
            selected(lambda: tabs.change_plot(name=name))

        steps = {"up": -1, "down": 1}
        moves = {where: partial(selected, partial(tabs.move_plot, by)) for where, by in steps.items()}
        name = tabs.shown.plots[chosen].name
        remove = partial(selected, tabs.remove_plot)
        self._menu("plot", moves, remove, partial(self._rename, "Name of the plot", name, rename))

    def add_plot_button(self) -> None:
        """A button that adds a plot to the tab."""
        self._button("Add a plot", self._shown.tabs.add_plot, False)

    def _menu(
        self,
        what: str,
        moves: Mapping[str, Callable[[], None]],
        remove: Callable[[], None],
        rename: Callable[[], Awaitable[None]],
    ) -> None:
        button = ui.button(icon="more_vert").props(f'flat dense round size=sm aria-label="Change this {what}"')
        with button, ui.menu():
            ui.menu_item("Rename …", rename)
            for where, move in moves.items():
                ui.menu_item(f"Move {where}", partial(self._do, move, False))
            ui.menu_item("Remove", partial(self._do, remove, what == "tab"))

    def _entry(self, name: str, is_shown: bool, show: Callable[[], None], of_tabs: bool) -> None:
        look = "unelevated color=primary" if is_shown else "flat"
        button = ui.button(name, on_click=lambda: self._do(show, of_tabs))
        button.props(f"{look} no-caps dense").classes("px-3")

    def _button(self, what: str, action: Callable[[], None], of_tabs: bool) -> None:
        button = ui.button(icon="add", on_click=lambda: self._do(action, of_tabs))
        button.props(f'flat dense round size=sm aria-label="{what}"').tooltip(what)

    def _do(self, action: Callable[[], None], of_tabs: bool) -> None:
        try:
            action()
        except HilserverError as error:
            ui.notify(str(error), type="negative")
            return
        self._changed(of_tabs)

    async def _rename(self, title: str, name: str, rename: Callable[[str], None]) -> None:
        given = await asked(title, name)
        if given is not None:
            self._do(lambda: rename(name_of(given)), False)


class TabsAndPlots(TabsView):
    """Tabs, and the plots of the tab that is shown, of which one is selected."""

    def __init__(self, overlay: Overlay, changed: Callable[[bool], None]) -> None:
        super().__init__(overlay, changed)
        self.overlay = overlay

    def plots_here(self) -> None:
        """Put the plots of the tab here."""
        self._plots = ui.row().classes("w-full items-center gap-1 plots")

    def refresh(self) -> None:
        """Show tabs and plots as they are now."""
        super().refresh()
        tabs = self.overlay.tabs
        self._plots.clear()
        with self._plots:
            for place, plot in enumerate(tabs.shown.plots):
                self._entry(plot.name or f"Plot {place + 1}", place == tabs.plot, partial(tabs.select, place), False)
            self.plot_menu()
            self.add_plot_button()
            ui.space()
            self._units()

    def _units(self) -> None:
        """The units of the selected plot, for each of its quantities that has several."""
        known, plot = self.overlay.available(), self.overlay.tabs.selected
        for si in dict.fromkeys(known.get(signal, "") for signal in plot.signals):
            unit = self.overlay.unit(plot, si).unit
            if offered := offered_units(si):
                choices = list(dict.fromkeys([*offered, unit]))
                select = ui.select(choices, value=unit, new_value_mode="add-unique")
                select.props("outlined dense options-dense").classes("w-28 unit").tooltip(
                    "Unit of the axis: choose one, or enter another one"
                )
                select.on_value_change(lambda event, si=si: self._choose_unit(si, str(event.value)))

    def _choose_unit(self, si: str, unit: str) -> None:
        try:
            axis_unit(unit, si)
        except ValueError as error:
            ui.notify(str(error), type="negative")
            self.refresh()
            return
        units = {**self.overlay.tabs.selected.units, si: unit}
        self._do(lambda: self.overlay.tabs.change_plot(units=units), False)


class LayoutMenu:
    """The button with the menu. ``load`` shows a layout; ``say`` shows a sentence. ``name``: of one without a file.

    ``file`` is that of the layout, which is not saved if somebody else has changed it since it was loaded or saved.
    """

    def __init__(
        self,
        shown: LaidOut,
        files: ViewerFiles,
        load: Callable[[ViewLayout], Awaitable[None]],
        say: Callable[[str], None],
        name: str = "recordings",
    ) -> None:
        self._shown, self._files, self._load, self._say, self._default = shown, files, load, say, name
        self.file = files.layout
        self._content: bytes | None = None
        with ui.button("Layout", icon="dashboard").props("outline no-caps dense").classes("px-3"), ui.menu() as menu:
            self._items = ui.column().classes("gap-0")
        menu.on("before-show", self._refresh)
        with ui.context.client.content, ui.dialog() as self._dialog, ui.column().classes("card gap-2"):
            ui.label("Load a layout from a file")
            self._upload = ui.upload(auto_upload=True, max_file_size=LARGEST_LAYOUT, on_upload=self._uploaded)
            self._upload.props("accept=.toml")

    def _refresh(self) -> None:
        self._items.clear()
        folder, may_write = self._files.folder(), self._files.may_write()
        with self._items:
            if may_write and self.file is not None:
                ui.menu_item(f"Save {self.file.name}", lambda: self._save(self.file))
            if may_write and folder is not None:
                ui.menu_item("Save as …", self._save_as)
            ui.menu_item("Download", lambda: ui.download.content(layout_text(self._shown.layout), self._name()))
            ui.menu_item("Load from a file …", self._dialog.open)
            for name, path in ({} if folder is None else layouts_in(folder)).items():
                ui.menu_item(f"Load {name}", lambda path=path: self._open(path))

    def _name(self) -> str:
        return self.file.name if self.file is not None else f"{self._default}{SUFFIX}"

    def _save(self, file: Path | None) -> None:
        if file is None:
            return
        if not self._files.may_write():
            self._say(f"{file.name} was not saved: {NO_RIGHT}")
            return
        try:
            if _content(file) != (self._content if file == self.file else None):
                raise HilserverError(
                    f"{file.name} was not saved: somebody else has changed it. Load it, or save as another one."
                )
            write_layout(self._shown.layout, file)
        except HilserverError as error:
            self._say(str(error))
            return
        self.file, self._content = file, _content(file)
        ui.notify(f"Saved: {file}", type="positive")

    async def _save_as(self) -> None:
        folder = self._files.folder()
        name = await asked("Name of the layout", "" if self.file is None else self.file.name.partition(".")[0])
        if folder is None or name is None:
            return
        try:
            file = layout_file(folder, name)
            if file.exists() and file != self.file:
                raise HilserverError(f"{file.name} exists already: choose another name, or load it first.")
        except HilserverError as error:
            self._say(str(error))
            return
        self._save(file)

    async def open_given(self) -> None:
        """Show the layout that was given, if there is one and its file exists."""
        if self.file is not None and self.file.exists():
            await self._open(self.file)

    async def _open(self, path: Path) -> None:
        content = _content(path)
        try:
            layout = await run.io_bound(read_layout, path)
        except HilserverError as error:
            self._say(str(error))
            return
        if layout is None:  # the program ends
            return
        self.file, self._content = path, content
        await self._load(layout)

    async def _uploaded(self, event: UploadEventArguments) -> None:
        self._dialog.close()
        self._upload.reset()
        try:
            layout = await run.io_bound(parse_layout, await event.file.read(), event.file.name)
        except HilserverError as error:
            self._say(str(error))
            return
        if layout is not None:  # else the program ends
            await self._load(layout)


def _content(file: Path) -> bytes | None:
    """What is in the file; None if there is none that can be read."""
    try:
        return file.read_bytes()
    except OSError:
        return None


async def asked(title: str, value: str) -> str | None:
    """A text that the user enters; None if they give up. (On the page itself: a menu takes all in it along.)"""
    with ui.context.client.content, ui.dialog() as dialog, ui.column().classes("card gap-3"):
        text = ui.input(title, value=value).props("outlined dense autofocus").classes("w-80 asked")
        text.on("keydown.enter", lambda: dialog.submit(text.value))
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("OK", on_click=lambda: dialog.submit(text.value)).props("no-caps")
    given = await dialog
    dialog.delete()
    return None if given is None else str(given)
