"""The bridge: from the flow of the virtual circuit to the command at which the real valve passes the same flow."""
