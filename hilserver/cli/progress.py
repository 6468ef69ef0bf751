"""The progress of a long command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, done: bar.update(task, completed=done, description=what)
