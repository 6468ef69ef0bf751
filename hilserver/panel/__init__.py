"""The web panel: an MQTT client in the browser, which knows only the broker's address and the server's topics."""
