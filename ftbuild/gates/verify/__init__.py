"""The verify gate: checks of built images without a GPU."""
