"""`hilserver view`: a page on this computer that shows the given logs, without rig or broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hilserver.viewer.store import LogStore
from hilserver.web.listening import new_token
from hilserver.web.local_page import local_url, serve_locally


@dataclass(frozen=True)
class ViewerSettings:
    """The logs to show, by name, and the address of the page. ``layout``: its file; ``token``: what admits a browser.

    Layouts are saved beside the given one, else beside the first log.
    """

    logs: Mapping[str, Path]
    port: int
    layout: Path | None = None
    token: str = field(default_factory=new_token, repr=False)

    @property
    def folder(self) -> Path:
        """Where layouts are kept."""
        return (self.layout or next(iter(self.logs.values()))).parent

    @property
    def url(self) -> str:
        """The address to open in the browser."""
        return local_url(self.port, self.token)


def named(paths: Sequence[Path]) -> dict[str, Path]:
    """The logs by the names under which they are listed: those of the files, with their folders if they are equal.

    >>> list(named([Path("a/run.arrow"), Path("b/run.arrow"), Path("b/other.csv"), Path("b/other.csv")]))
    ['a/run.arrow', 'b/run.arrow', 'other.csv']
    """
    distinct = list(dict.fromkeys(paths))
    names = [path.name for path in distinct]
    return {str(path) if names.count(path.name) > 1 else path.name: path for path in distinct}


def view(settings: ViewerSettings, store: LogStore) -> None:
    """Serve the page until Ctrl-C or SIGTERM; only this computer can reach it, and only with the token."""

    def build() -> None:
        from hilserver.viewer.layout_view import ViewerFiles
        from hilserver.viewer.page import ViewerPage

        files = ViewerFiles(lambda: settings.folder, settings.layout)
        ViewerPage(store, lambda: settings.logs, list(settings.logs), files)

    serve_locally("Recordings · hilserver", "hilserver view", settings.port, settings.token, build)
