"""The bridge: from the flow that the virtual circuit passes to the command of the real valve that passes it too."""
