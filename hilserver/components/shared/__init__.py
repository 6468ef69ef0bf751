"""Shared by several components: datasheet tables, base classes of families, and curve fitting."""
