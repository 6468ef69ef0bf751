"""Recordings in the browser: curves over one another, cursors, statistics, spectra, exports."""
