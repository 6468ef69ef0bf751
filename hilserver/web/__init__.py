"""What the web pages of hilserver share: protection against foreign pages, addresses, units and names as displayed."""
