"""The MQTT protocol: messages, addresses, connection, login at the broker."""
