"""The asyncio side of the server: MQTT, commands, telemetry, the embedded broker, the supervisor of the processes."""
