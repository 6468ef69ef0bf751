"""Recordings in the browser: overlaid curves, cursors, statistics, spectra, exports."""
