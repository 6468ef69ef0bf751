"""Pages without a browser: their elements can be made, changed and read; nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from nicegui import Client, background_tasks, core, ui
from nicegui.events import ClickEventArguments, handle_event

PATIENCE = 60.0


@asynccontextmanager
async def bare_page() -> AsyncIterator[None]:
    """In this context, elements are made on a page. At its end, what waits for a browser is cancelled."""
    before, core.loop = core.loop, asyncio.get_running_loop()
    client = Client(ui.page("/bare"), request=None)
    try:
        with client:
            yield
    finally:
        client.delete()
        tasks = list(background_tasks.running_tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        core.loop = before


def elements() -> Iterator[Any]:
    """All elements of the page."""
    yield from ui.context.client.elements.values()


def box_of(value: str, name: str = "data-field") -> Any:
    """The element with this property."""
    return next(each for each in elements() if each.props.get(name) == value)


def happen(event: str, element: Any) -> None:
    """As if the browser had told this event of an element."""
    for listener in list(element._event_listeners.values()):
        if listener.type == event:
            handle_event(listener.handler, ClickEventArguments(sender=element, client=element.client))


async def in_the_end(condition: Callable[[], bool]) -> None:
    """Let what runs in the background go on until this holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
