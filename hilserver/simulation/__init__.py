"""Runs without a clock: lockstep, replay, third-party logs, circuit runs, and the machine model."""
