"""Workflow files for CI systems, rendered from the configuration: nightly runs, tests on push."""
