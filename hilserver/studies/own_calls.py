"""Calls of the user's Python code that do not return while a study is prepared: ended after a stated time, and named.

The runs themselves have a time limit; what a component does in Python (its module, ``parameters()``, a validator) is
called before them, in the process that would wait for it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from hilserver.circuit.library import types_in
from hilserver.circuit.own import is_own
from hilserver.components.base import Component
from hilserver.errors import HilserverError

LIMIT = 60.0
"""s by the clock that a call may take."""
LOOKS = 20
"""Number of looks at it in this time."""


class _NoReturnError(BaseException):
    """Not an Exception, which the user's Python may catch."""


@contextmanager
def ending_own_calls(limit: float | None = None) -> Iterator[None]:
    """End calls of the user's Python that take longer than ``limit`` (default: `LIMIT`), s by the clock.

    Raises HilserverError with file, line and component. Only the main thread is watched: it alone can be interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(LIMIT if limit is None else limit)
    handler = signal.signal(signal.SIGALRM, watch.look)
    timer = signal.setitimer(signal.ITIMER_REAL, watch.limit / LOOKS, watch.limit / LOOKS)
    try:
        yield
    except _NoReturnError as found:
        raise HilserverError(str(found)) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


class _Watch:
    """Looks again and again whether the main thread is still in the same call."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._call: FrameType | None = None
        self._since = monotonic()

    def look(self, _number: int, frame: FrameType | None) -> None:
        """The handler of the timer's signal. Raises _NoReturnError."""
        call = _own_call(frame)
        if call is not self._call:
            self._call, self._since = call, monotonic()
        elif call is not None and monotonic() - self._since > self.limit:
            raise _NoReturnError(f"{_described(call)} has not returned after {self.limit:g} s.")


def _own_call(frame: FrameType | None) -> FrameType | None:
    """The outermost call of the user's Python on this stack."""
    found = None
    while frame is not None:
        if _is_users(str(frame.f_globals.get("__name__", ""))):
            found = frame
        frame = frame.f_back
    return found


def _is_users(module: str) -> bool:
    """Whether a module is a file with components, or one of an installed package that defines some."""
    return is_own(module) or (
        module.partition(".")[0] != "hilserver" and module in sys.modules and bool(types_in(sys.modules[module]))
    )


def _described(call: FrameType) -> str:
    """File, line and function of a call, and the component with the values that it was given."""
    file, name, component = call.f_code.co_filename, call.f_code.co_qualname, call.f_locals.get("self")
    file = file.rpartition(" (")[0] if is_own(str(call.f_globals["__name__"])) else file
    text = f"{file}, line {call.f_lineno}: {'the file' if name == '<module>' else f'{name}()'}"
    if not isinstance(component, Component):
        return text
    given = ", ".join(f"{key} = {getattr(component, key)!r}" for key in sorted(component.model_fields_set))
    return f"{text} of a component of type {component.type_name} with {given or 'its default values'}"
