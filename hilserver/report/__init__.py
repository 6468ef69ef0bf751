"""Pages for the reader: documents, plots, drawings."""
