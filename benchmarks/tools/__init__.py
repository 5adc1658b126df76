"""Measuring tools that benchmarks and people run."""
