"""Benchmarks: the tick by its parts, drivers, wake-up latency."""
