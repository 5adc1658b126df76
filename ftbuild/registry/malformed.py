"""The error of an answer that no registry should give."""

from __future__ import annotations

from ftbuild.errors import PublishError


class Malformed(PublishError):
    """A registry answered something that is too large, not of the expected form, or not to be trusted."""
