"""Rigs on machines without Python: packed for the runner (`compiler/runner/`), and what it has recorded."""
