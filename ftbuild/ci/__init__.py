"""Workflow files for CI systems, rendered from the configuration: a night over the matrix, tests on push."""
