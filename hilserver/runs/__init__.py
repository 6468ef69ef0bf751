"""Runs without a clock: lockstep, simulation beside the truth, replay of logs, benchmarks, their reports and plots."""
