"""The program `invoke` as bootstrap installs it: our rules hold before Invoke has found tasks.py.

The script that pip makes imports Invoke first, a third of the time in which Ctrl-C finds no command yet, and
Invoke's own help and complaints come from there.
"""

from invoke.main import program

from ftbuild.cli.program import guard

__all__ = ["program"]
guard()
