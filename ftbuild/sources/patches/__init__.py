"""Patch series: DEP-3 headers, version ranges, strict application, conflict reports."""
