"""The web panel: an MQTT client in the browser. It knows the broker's address and what the server's topics say."""
