"""The component library: one file per hydraulic component."""
