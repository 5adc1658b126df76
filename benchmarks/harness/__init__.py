"""The harness of the benchmarks: catalogue, workspace, figures, tables, plots."""
