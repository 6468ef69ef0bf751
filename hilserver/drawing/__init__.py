"""A circuit as a schematic: from its table to SVG with ISO 1219 symbols, for the panel and for reports."""
