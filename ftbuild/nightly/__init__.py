"""The whole matrix in one night: schedule, budget, records, reports."""
