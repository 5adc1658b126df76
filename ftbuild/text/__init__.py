"""Text output: tables, units, terminal codes."""
