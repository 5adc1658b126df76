"""Commands for the development of ftbuild itself."""

from __future__ import annotations

from ftbuild.cli.checks import run

__all__ = ["run"]
