"""The circuit engine: a circuit is data that one compiled program steps."""
