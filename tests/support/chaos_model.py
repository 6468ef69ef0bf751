"""What must be true of a server whatever happens to it, as seen from outside; and the shortest sequence that breaks it.

The model knows nothing of the server's own account of itself but the mode in its rows: whether a valve is safe is seen
at the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from hilserver.tick.codes import Mode

SAFE_WITHIN = 1.5
"""s from the end of RUNNING, or of the loop: a ramp takes 0.5 s, the device's watchdog 50 ms; and a busy machine."""
CONFIRMED_WITHIN = 1.5
"""s for which SAFE may be wrong: the age of confirmations that the rig of these tests allows, and as above."""
BLIND = 0.3
"""s between two looks beyond which nothing is known of the time between: this machine itself stood still."""


@dataclass(frozen=True)
class Look:
    """What is seen at a time: tick and mode of the loop's last row, the command the valve follows, the pump's coil.

    None: it can't be seen (the device has ended, or hangs).
    """

    at: float
    tick: int
    mode: Mode
    valve: float | None = None
    pump: bool | None = None


@dataclass
class Model:
    """Takes one look after the other; ``wrong`` holds what may not be."""

    wrong: list[str] = field(default_factory=list)
    _last: Look | None = None
    _running: float = -np.inf
    """When the rig was RUNNING last."""
    _not_running: float = -np.inf
    """When it was seen not to be."""
    _not_safe: float = -np.inf
    """When the mode was another than SAFE last."""

    def see(self, look: Look) -> None:
        """Compare the next look with what must be."""
        last, self._last = self._last, look
        if last is None or look.at - last.at > BLIND:
            self._running = self._not_running = self._not_safe = look.at
            return
        ticks = look.tick != last.tick
        if ticks and look.mode == Mode.RUNNING:
            self._running = look.at
        else:
            self._not_running = look.at
        if not ticks or look.mode != Mode.SAFE:
            self._not_safe = look.at
        if look.valve is not None and abs(look.valve) > 0.0 and look.at - self._running > SAFE_WITHIN:
            self._blame(f"the valve is open ({look.valve:.3g}) {look.at - self._running:.1f} s after RUNNING")
        if look.pump and look.at - self._not_safe > CONFIRMED_WITHIN:
            self._blame(f"SAFE for {look.at - self._not_safe:.1f} s while the pump is on")

    def require_stopped(self, since: float, why: str) -> None:
        """The rig must not have been RUNNING, at least for a moment, since this time."""
        if self._not_running < since:
            self._blame(f"still RUNNING, though {why}")

    def _blame(self, text: str) -> None:
        if not self.wrong:  # what follows the first is its consequence
            self.wrong.append(text)


@dataclass(frozen=True)
class Step:
    """A fault: seconds after the start, its name, for how many seconds."""

    at: float
    what: str
    lasts: float


Steps = tuple[Step, ...]


def as_text(steps: Steps) -> str:
    """Steps in one line, for the command line."""
    return json.dumps([list(asdict(step).values()) for step in steps])


def from_text(text: str) -> Steps:
    """The steps of `as_text`."""
    return tuple(Step(*entry) for entry in json.loads(text))


def random_steps(random: np.random.Generator, faults: Sequence[str], number: int, length: float) -> Steps:
    """So many faults at random moments; they may overlap."""
    steps = [
        Step(round(random.uniform(0.0, length), 2), str(random.choice(faults)), round(random.uniform(0.2, 5.0), 2))
        for _ in range(number)
    ]
    return tuple(sorted(steps, key=lambda step: step.at))


def shortest(steps: Steps, fails: Callable[[Steps], bool]) -> Steps:
    """The shortest part of a failing sequence that still fails, by leaving out ever smaller parts (delta debugging).

    Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Trans. Software Eng. 28 (2002).
    """
    parts = 2
    while len(steps) >= 2:
        size = -(-len(steps) // parts)
        rests = [steps[:k] + steps[k + size :] for k in range(0, len(steps), size)]
        if (rest := next((rest for rest in rests if fails(rest)), None)) is not None:
            steps, parts = rest, max(parts - 1, 2)
        elif parts >= len(steps):
            break
        else:
            parts = min(2 * parts, len(steps))
    return steps
