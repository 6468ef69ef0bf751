"""The rig: its configuration, and what the tick needs of it as ready arrays."""
