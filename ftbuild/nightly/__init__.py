"""Nightly runs over the whole matrix: schedule, budget, records, reports."""
