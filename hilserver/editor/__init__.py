"""The circuit editor: edits of a circuit file that keep its text, what is wrong meanwhile, and the page for it."""
