"""What a page shows, as a file: tabs with plots and analyses, units of the axes, alignment of the logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomlkit
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from hilserver.errors import ConfigurationError, HilserverError, problems_of, shown
from hilserver.toml import parse_toml, read_plain_toml, replace_file
from hilserver.viewer.alignment import Alignment
from hilserver.viewer.axis_units import SI_OF_AXES, axis_unit
from hilserver.viewer.spectra import SEGMENTS
from hilserver.viewer.trigger import MOST_OCCURRENCES, Trigger

SUFFIX = ".layout.toml"
"""How the files of layouts end."""
LARGEST_LAYOUT = 100_000
"""Bytes of a file that is uploaded as a layout."""
MOST_TABS, MOST_PLOTS, MOST_ANALYSES, MOST_SIGNALS = 50, 20, 20, 200
"""Tabs of a layout; plots and analyses of a tab; signals of a plot, and differences of a tab."""
_FILE_NAME = re.compile(r"[\w][\w .-]{0,59}")

T = TypeVar("T")
Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=60)]


def _units(units: dict[str, str]) -> dict[str, str]:
    for si, unit in units.items():
        if si not in SI_OF_AXES:
            known = ", ".join(sorted(SI_OF_AXES))
            raise ValueError(f"{shown(si)} is not the SI unit of a quantity. Known are {known}.")
        axis_unit(unit, si)
    return units


def _some(parts: tuple[T, ...]) -> tuple[T, ...]:
    if not parts:  # pydantic's own bound would also be reported where a part is wrong
        raise ValueError("there must be at least one.")
    return parts


def _averages(count: int) -> int:
    if count not in SEGMENTS:
        raise ValueError(f"{count} is not one of {', '.join(map(str, SEGMENTS))}.")
    return count


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ViewPlot(_Part):
    """A plot over time: its signals, in a pane for each unit. ``units``: those of its axes, by SI unit."""

    name: Name = ""
    signals: Annotated[tuple[str, ...], Field(max_length=MOST_SIGNALS)] = ()
    units: Annotated[dict[str, str], AfterValidator(_units)] = {}


class ViewAnalysis(_Part):
    """An analysis of the span: ``signals`` are those of a plot (from, to; x, y), a spectrum has only one.

    ``curve``: of an X/Y plot, the component of the circuit whose datasheet curve is drawn behind the points.
    """

    name: Name = ""
    kind: Literal["spectrum", "bode", "xy"] = "spectrum"
    signals: Annotated[tuple[str, ...], Field(max_length=2)] = ()
    averages: Annotated[int, AfterValidator(_averages)] = 8
    curve: Annotated[str, Field(max_length=255)] = ""


class ViewTab(_Part):
    """A tab: plots one below the other, differences of their signals (drawn in the first's plot), and analyses."""

    name: Name = ""
    plots: Annotated[tuple[ViewPlot, ...], Field(max_length=MOST_PLOTS), AfterValidator(_some)] = (ViewPlot(),)
    differences: Annotated[tuple[tuple[str, str], ...], Field(max_length=MOST_SIGNALS)] = ()
    analyses: Annotated[tuple[ViewAnalysis, ...], Field(max_length=MOST_ANALYSES)] = (ViewAnalysis(),)


class ViewAlign(_Part):
    """How several logs are aligned (see `hilserver.viewer.alignment.offsets`)."""

    by: Alignment = "start"
    event: str = ""
    number: Annotated[int, Field(ge=1, le=MOST_OCCURRENCES)] = 1


class ViewLayout(_Part):
    """All that a page shows, but for the logs: it fits any log with the same signals."""

    align: ViewAlign = ViewAlign()
    trigger: Trigger | None = None
    tabs: Annotated[tuple[ViewTab, ...], Field(max_length=MOST_TABS), AfterValidator(_some)] = (ViewTab(),)

    def signals(self) -> list[str]:
        """All signals that it shows, each once."""
        return list(dict.fromkeys(name for tab in self.tabs for plot in tab.plots for name in plot.signals))


def read_layout(path: Path) -> ViewLayout:
    """The layout in a file. Raises `ConfigurationError` with file, key and reason."""
    return _layout(read_plain_toml(path), str(path))


def parse_layout(content: bytes, name: str) -> ViewLayout:
    """The layout in the content of a file of this name. Raises `ConfigurationError`."""
    return _layout(parse_toml(content, name), name)


def _layout(table: Mapping[str, Any], name: str) -> ViewLayout:
    try:
        return ViewLayout.model_validate(table)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, table, file=name, names=ViewLayout.model_fields)) from None


def layout_text(layout: ViewLayout) -> str:
    """A layout as written in its file.

    >>> print(layout_text(ViewLayout(tabs=(ViewTab(plots=(ViewPlot(signals=("p_A", "p_B")),), analyses=()),))))
    # Layout of recordings: hilserver view LOG --layout FILE
    <BLANKLINE>
    [[tabs]]
    analyses = []
    <BLANKLINE>
    [[tabs.plots]]
    signals = ["p_A", "p_B"]
    <BLANKLINE>
    """
    written = layout.model_dump(exclude_defaults=True)
    return f"# Layout of recordings: hilserver view LOG --layout FILE\n\n{tomlkit.dumps(written)}"


def write_layout(layout: ViewLayout, path: Path) -> None:
    """Write a layout to its file, which is replaced at once. Raises `HilserverError` if it can't be written."""
    replace_file(path, layout_text(layout))


def name_of(text: str) -> str:
    r"""What a user has entered as the name of a tab, plot or analysis: at most 60 letters in one line.

    >>> name_of("  Chamber\tA \x07")
    'Chamber A'
    """
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:60].strip()


def layouts_in(folder: Path) -> dict[str, Path]:
    """The layouts in a folder by name; none if there is no such folder."""
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    return {file.name.removesuffix(SUFFIX): file for file in files}


def layout_file(folder: Path, name: str) -> Path:
    """The file of a new layout in a folder. Raises `HilserverError` if it can't have this name.

    >>> layout_file(Path("logs"), "pressures").as_posix()
    'logs/pressures.layout.toml'
    """
    name = name.strip().removesuffix(SUFFIX)
    if _FILE_NAME.fullmatch(name) is None:
        raise HilserverError(
            f"{shown(name)} can't be the name of a layout: up to 60 letters, digits, spaces, ., - and _, "
            "the first of them a letter or a digit."
        )
    return folder / f"{name}{SUFFIX}"
