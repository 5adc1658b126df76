"""Benchmarks with goals: topics, the tools they measure with, and the harness that runs them."""
