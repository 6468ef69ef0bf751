"""What holds for every test."""

from hypothesis import settings

# The first call of a compiled function takes seconds, and a shared machine steals time: no deadline per example.
# The same examples in every run: a failure in CI is the same failure here.
settings.register_profile("hilserver", deadline=None, derandomize=True)
settings.load_profile("hilserver")
