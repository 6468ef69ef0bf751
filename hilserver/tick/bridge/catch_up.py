r"""Catching up after the slew limit: where it delays a command, the spool falls behind; the next commands make it good.

The lead is a command that moves the spool exactly as required. Where the slew limit withholds a part of it, such as of
a jump across the overlap, the spool is behind by e, which follows from what was withheld: in the model of the spool,

.. math:: \begin{pmatrix} e \\ \dot e \end{pmatrix}_{k+1} = \Phi \begin{pmatrix} e \\ \dot e \end{pmatrix}_k
   + \Gamma\,(U_{wanted} - U)_k .

Without further action e would decay as slowly as the spool moves, which is what the lead is there to avoid. The command
is therefore increased by the state feedback K (e, ė) that places both poles of this difference at `POLE`. A feedback
behind a rate limiter can oscillate (see e.g. Rundqwist & Ståhl-Gunnarsson, Phase compensation of rate limiters in
unstable aircraft, IEEE CCA 1996); it is therefore limited to what the slew limit passes within one tick. Without a
withheld command it is exactly zero.
"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.plan import SUBSTEPS_OF_MACHINE, ValveRecord
from hilserver.tick.row import ValveState

POLE = 0.3
"""Fraction of the difference that is left after a tick, where the spool itself is not faster."""


@compilable
def catching_up(b: ValveState, v: ValveRecord, dt: float) -> float:
    """By how much the command has to exceed the wanted one, so that the spool catches up."""
    if b.behind == 0.0 and b.behind_speed == 0.0:
        return 0.0
    most = v.slew_rate * dt
    return clip(v.catch_up * b.behind + v.catch_up_speed * b.behind_speed, -most, most)


@compilable
def note_withheld(command: float, b: ValveState, v: ValveRecord) -> None:
    """Advance by a tick how far the spool is behind, with this part of the wanted command withheld."""
    if command == 0.0 and b.behind == 0.0 and b.behind_speed == 0.0:
        return
    for _ in range(SUBSTEPS_OF_MACHINE):
        away, speed = b.behind - command, b.behind_speed
        b.behind = command + v.spool_11 * away + v.spool_12 * speed
        b.behind_speed = v.spool_21 * away + v.spool_22 * speed


@compilable
def forget_withheld(b: ValveState) -> None:
    """The spool is where the commands have moved it, and nothing is to be caught up."""
    b.behind = b.behind_speed = 0.0
