"""Reactions and playouts: armed and started from the panel, with their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nicegui import ui

from hilserver.panel.command_dialog import CommandDialog
from hilserver.panel.view import Page
from hilserver.protocol.commands import BeginPlayout, Command, EndPlayout, React, Release
from hilserver.protocol.published import Description, PlayoutStatus, ReactionStatus
from hilserver.web.style import heading

REACTIONS = {
    "ARMED": "armed, waiting for RUNNING",
    "WATCHING": "watching",
    "RAMPING": "moving its input",
    "HOLDING": "holding the commands",
    "DONE": "fired",
    "ENDED": "ended the run: release it before the next start",
}
"""States of reactions in words."""
PLAYING = ("WAITING", "LEARNING", "CONTROLLED", "FADING")
"""States of playouts that can be ended."""
_REACTION = {"reaction": "overload", "when": "p_A > 200 bar", "hold": "5 ms", "hysteresis": "5 bar", "ramp": "0.5 s"}
_PLAYOUT = {
    **{"playout": "fatigue", "amplitude": "10 bar", "frequency": "2 Hz", "cycles": "100000"},
    **{"limit": "0.5", "centre": "300 mm", "centre_per": "300 mm"},
}


class AutomationView:
    """The cards; each is there only if the rig has room for what is in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._listed: object = None
        self._shown: list[tuple[ui.label, ui.label, ui.linear_progress]] = []
        self._buttons: list[ui.button] = []
        self._react = CommandDialog(page, React, "Arm a reaction", "Arm", self._inputs, _REACTION)
        self._play = CommandDialog(page, BeginPlayout, "Play a sine", "Play", self._inputs_and_channels, _PLAYOUT)
        self._reactions = self._card("Reactions", "Arm …", self._react, "reactions")
        self._playouts = self._card("Playouts", "Play …", self._play, "playouts")
        page.each_round(self._follow, "Operate")

    def _card(
        self, title: str, action: str, dialog: CommandDialog, name: str
    ) -> tuple[ui.column, ui.column, ui.button]:
        """A card with a list; returns both, and the button that opens the dialog."""
        with ui.column().classes(f"card w-full gap-2 {name}") as card:
            with ui.row().classes("w-full items-center"):
                heading(title)
                ui.space()
                button = ui.button(action, on_click=dialog.open).props("outline no-caps dense").classes("px-2")
            entries = ui.column().classes("w-full gap-2")
        card.visible = False
        return card, entries, button

    def _inputs(self) -> Mapping[str, Sequence[str]]:
        description = self.page.connection.description
        return {"input": list(description.inputs) if description is not None else []}

    def _inputs_and_channels(self) -> Mapping[str, Sequence[str]]:
        return {**self._inputs(), "channel": self.page.connection.history.channels()}

    def _follow(self) -> None:
        description, state = self.page.connection.description, self.page.connection.state
        if description is None or state is None:
            return
        modes = {"reactions": ("ARMED", "RUNNING"), "playouts": ("RUNNING",)}
        for kind, (card, _, button) in (("reactions", self._reactions), ("playouts", self._playouts)):
            card.visible = room(description, kind) > 0
            button.set_enabled(self.page.may_command and state.mode in modes[kind])
        entries = [
            *((self._reactions[1], _of_reaction(name, each)) for name, each in state.reactions.items()),
            *((self._playouts[1], _of_playout(name, each)) for name, each in state.playouts.items()),
        ]
        if (keys := [(box, entry.name, entry.command) for box, entry in entries]) != self._listed:
            self._listed = keys
            self._list(entries)
        for (_, entry), (about, words, progress) in zip(entries, self._shown, strict=True):
            about.set_text(entry.about)
            words.set_text(entry.state)
            progress.set_value(entry.share or 0.0)
        for button in self._buttons:
            button.set_enabled(self.page.may_command)

    def _list(self, entries: Sequence[tuple[ui.column, _Entry]]) -> None:
        """Build the lists again; `_follow` fills in all that changes while they are there.

        A click on a button is lost if the button is replaced before the panel knows of it.
        """
        self._shown, self._buttons = [], []
        for _, box, _ in (self._reactions, self._playouts):
            box.clear()
        for box, entry in entries:
            with box, ui.row().classes("w-full items-center no-wrap gap-2 automation-entry"):
                with ui.column().classes("gap-0 grow"):
                    with ui.row().classes("gap-2 items-baseline"):
                        ui.label(entry.name).classes("font-semibold")
                        about = ui.label().classes("text-sm text-slate-500")
                    words = ui.label().classes("text-sm automation-state")
                    progress = ui.linear_progress(0.0, show_value=False, size="6px").props("instant-feedback")
                    progress.visible = entry.share is not None
                self._shown.append((about, words, progress))
                if (command := entry.command) is not None:
                    button = ui.button(entry.action, on_click=partial(self.page.command, command))
                    self._buttons.append(button.props("outline no-caps dense").classes("px-2"))


@dataclass(frozen=True)
class _Entry:
    """A reaction or a playout in its list; ``command`` ends it, ``share`` of its cycles are done."""

    name: str
    about: str
    state: str
    action: str
    command: Command | None
    share: float | None = None


def _of_reaction(name: str, reaction: ReactionStatus) -> _Entry:
    met = "; its condition is met" if reaction.met else ""
    state = f"{REACTIONS.get(reaction.state, reaction.state)}{met}"
    return _Entry(name, reaction.text, state, "Release", Release(reaction=name))


def _of_playout(name: str, playout: PlayoutStatus) -> _Entry:
    end = EndPlayout(playout=name) if playout.state in PLAYING else None
    share = min(playout.cycles / max(playout.wanted, 1), 1.0)
    return _Entry(name, playout.state, played_text(playout), "End", end, share)


def room(description: Description, kind: str) -> int:
    """How many reactions or playouts the rig may have at a time."""
    return description.reactions if kind == "reactions" else description.playouts


def played_text(playout: PlayoutStatus) -> str:
    """Cycles, amplitude and phase of a playout.

    >>> played_text(PlayoutStatus(state="CONTROLLED", cycles=61250, wanted=1000000, frequency=4.0, amplitude=0.00598,
    ...     target=0.006, phase_error=-0.2, drive=0.21))
    '61250 of 1000000 cycles at 4 Hz; 99.7 % of the amplitude, phase −0.2°, drive 0.21'
    """
    cycles = f"{playout.cycles} of {playout.wanted} cycles at {playout.frequency:.4g} Hz"
    share = "–" if playout.amplitude is None else f"{100.0 * playout.amplitude / playout.target:.1f} %"
    phase = "–" if playout.phase_error is None else f"{playout.phase_error:+.1f}°".replace("-", "\N{MINUS SIGN}")
    return f"{cycles}; {share} of the amplitude, phase {phase}, drive {playout.drive:.3g}"
