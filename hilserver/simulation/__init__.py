"""Runs without a clock: a circuit by itself, lockstep, replay, third-party logs, and the machine model.

`simulate` is for scripts and notebooks.
"""

from hilserver.simulation.simulated import Simulated, simulate

__all__ = ["Simulated", "simulate"]
