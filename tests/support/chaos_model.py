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
SLOWLY, FAR = 0.05, 0.1
"""m/s, m: a piston that has moved so far, and faster than that all the time, moves: its sensor can't show the same. The
product's own figures for this piston are a tenth of the valve's nominal flow, 0.03 m/s, and 5 % of the stroke."""
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
    unseen: float = 0.0
    """m that the piston has moved, not slowly, since its sensor is stuck."""
    stopped: bool = False
    """Whether the loop was in another mode than RUNNING in any of the ticks since the last look."""


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
    _late: bool = False
    """Whether the valve was seen open although it should be closed. Once is not enough: a loop that goes on after its
    process stood still writes its command a moment before its row."""
    _unseen: float = 0.0
    """What had been moved unseen when the rig was seen not to run, or its sensor showed something else."""

    def see(self, look: Look) -> None:
        """Compare the next look with what must be."""
        last, self._last = self._last, look
        if last is None or look.at - last.at > BLIND:
            self._running = self._not_running = self._not_safe = look.at
            self._unseen = look.unseen
            return
        ticks = look.tick != last.tick
        if ticks and Mode.RUNNING in (look.mode, last.mode):  # until the tick in which a loop that stood still goes on
            self._running = look.at
        if look.stopped or not ticks or look.mode != Mode.RUNNING:
            self._not_running, self._unseen = look.at, look.unseen
        self._unseen = min(self._unseen, look.unseen)
        if look.unseen - self._unseen > FAR:
            self._blame(f"still RUNNING though the piston has moved by {look.unseen - self._unseen:.2f} m unseen")
        if not ticks or look.mode != Mode.SAFE:
            self._not_safe = look.at
        was_late, self._late = self._late, look.at - self._running > SAFE_WITHIN and abs(look.valve or 0.0) > 0.0
        if was_late and self._late:
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
