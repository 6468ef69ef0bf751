"""Studies: many runs with varied values and their statistics, and values identified from a recording."""
