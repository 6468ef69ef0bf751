"""Studies: many runs with other values, what they have in common, and which values explain a recording."""
