"""The layout of the live plots: the same file as that of recordings, with the log's names of the signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hilserver.protocol.published import Description
from hilserver.viewer.layout import ViewLayout, ViewPlot, ViewTab
from hilserver.viewer.tabs import Tabs

CHANNEL = "channel."
"""Beginning of the names of the rig's channels in a log; in telemetry, they stand alone."""
RIG_CHANNELS = ("measured", "configured")
"""Kinds of the channels that are those of the rig."""


class LiveLayout:
    """The tabs of live plots. Settings of recordings (analyses, alignment, units, …) are kept unchanged."""

    def __init__(self) -> None:
        self.tabs = Tabs()
        self._loaded = ViewLayout()

    @property
    def layout(self) -> ViewLayout:
        """What is shown, as it can be saved."""
        return self._loaded.model_copy(update={"tabs": self.tabs.all})

    def load(self, layout: ViewLayout) -> None:
        """Show this layout."""
        self._loaded, self.tabs = layout, Tabs(layout.tabs)

    def begin(self, plots: Mapping[str, Sequence[str]], description: Description | None) -> None:
        """Show one tab with these plots: titles and channels of telemetry."""
        made = (ViewPlot(name=title, signals=signals(channels, description)) for title, channels in plots.items())
        self.load(ViewLayout(tabs=(ViewTab(plots=tuple(made) or (ViewPlot(),)),)))


def signals(channels: Sequence[str], description: Description | None) -> tuple[str, ...]:
    """The names that channels of telemetry have in a log and in a layout."""
    return tuple(f"{CHANNEL}{name}" if _is_of_rig(name, description) else name for name in channels)


def channels_of(plot: ViewPlot, description: Description | None) -> list[str]:
    """The channels of telemetry that a plot shows. Of signals that are not in telemetry, the name is kept."""
    short = {name: name.removeprefix(CHANNEL) for name in plot.signals}
    return [short[name] if _is_of_rig(short[name], description) else name for name in plot.signals]


def _is_of_rig(name: str, description: Description | None) -> bool:
    known = description.channels.get(name) if description is not None else None
    return known is not None and known.kind in RIG_CHANNELS
