"""The source text of a function."""

from __future__ import annotations

import linecache
from types import CodeType, FunctionType


def source_of(function: FunctionType) -> str:
    """A function's source, by the lines of its code: `inspect.getsource` looks for its end with a slow tokenizer.

    ``linecache`` must know of changed files (`linecache.checkcache`). Raises OSError if the source can't be read.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise OSError(f"the source of {code.co_name} ({code.co_filename}) can't be read")
    return "".join(lines[code.co_firstlineno - 1 : _last_line(code)])


def _last_line(code: CodeType) -> int:
    within = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([line or 0 for start, end, _, _ in code.co_positions() for line in (start, end)] + within)
