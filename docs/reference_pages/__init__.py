"""Pages of the reference, generated from the classes, models and commands they describe."""
