"""What bridges have learned about valves and actuators, in words."""

from __future__ import annotations

from collections.abc import Mapping

from hilserver.protocol.driven import LearnedValue
from hilserver.web.display import in_practice


def learned_text(learned: Mapping[str, LearnedValue]) -> str:
    """What a bridge has learned about what it drives, where it differs from the rig file; empty if nothing does.

    >>> at = {"value": 0.0125, "configured": 0.0, "minimum": -0.05, "maximum": 0.05}
    >>> value = LearnedValue(**at, unit="", known=True, at_bound=False, state="tracked")
    >>> learned_text({"null": value, "overlap": value.model_copy(update={"value": 0.0})})
    'learned: null 0.0125 (tracked)'
    """
    changed = {key: v for key, v in learned.items() if v.value != v.configured}
    texts = [f"{key.replace('_', ' ')} {in_practice(v.value, v.unit)} ({v.state})" for key, v in changed.items()]
    return f"learned: {'; '.join(texts)}" if texts else ""
