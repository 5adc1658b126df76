"""The benchmarks: one module per topic, each with its figures and goals."""
