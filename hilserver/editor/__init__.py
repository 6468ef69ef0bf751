"""The circuit editor: edits that preserve the text of the file, its problems while it is edited, and its page."""
