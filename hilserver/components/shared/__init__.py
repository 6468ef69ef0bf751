"""What several components share: datasheet tables, bases of families, and the fitting of their curves."""
