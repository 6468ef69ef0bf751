"""Pages without a browser: their elements can be made, changed and read; nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nicegui import Client, background_tasks, core, ui


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
