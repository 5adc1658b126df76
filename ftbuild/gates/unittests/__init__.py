"""Upstream's own unit tests: an image that holds them, and what they find on a GPU."""
