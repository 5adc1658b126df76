"""Commands: typed options, cell selection, and one module per topic."""
