"""Runs without a clock: lockstep, replay, logs of other systems, a circuit by itself."""
