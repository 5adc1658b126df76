"""Tools that make parts of the documentation."""
