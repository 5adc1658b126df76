"""Upstream sources: lock, fetch, object store, bundles, patched trees."""
