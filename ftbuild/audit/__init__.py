"""The audit: availability of pinned sources and bases, and the series on every release.

It runs nightly, since both upstreams are dead.
"""
