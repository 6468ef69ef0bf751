"""Circuits as FMUs (functional mock-up units): exported for other simulation programs."""
