"""Documentation, and the tools that make parts of it."""
