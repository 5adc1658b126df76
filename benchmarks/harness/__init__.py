"""What runs benchmarks: catalogue, stage, figures, tables, plots."""
