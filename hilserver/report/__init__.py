"""Reports: documents as HTML and Markdown, plots, drawings of circuits and mechanisms."""
