"""What a study runs: something that is prepared once in a process, and then gives the figures of any variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hilserver.numerics.arrays import Floats


class VariantFailedError(Exception):
    """A variant without figures; its text is the reason."""


Evaluate = Callable[[Floats], Floats]
"""The figures of a variant, from its values; raises VariantFailedError."""


class StudySubject(Protocol):
    """Can be pickled: every worker process prepares it for itself."""

    def prepare(self) -> Evaluate:
        """Everything that is the same for all variants."""
        ...
