"""What a test needs of the machine: without it the test skips, or fails where it was to be there.

FTBUILD_REQUIRE names, with blanks between, what was to be there; `./bootstrap test` sets it to what it has
installed or found, so that a test of it cannot silently stop running.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import pytest

VARIABLE = "FTBUILD_REQUIRE"
ENGINE = "engine"
PACKAGES = "python-packages"
# The plugin, or the same program by itself.
COMPOSE = (["docker", "compose"], ["docker-compose"])
# The first version of Python for which pyproject.toml leaves a package out.
_LEFT_OUT = {"tokenizers": (3, 14)}


def absent(name: str, reason: str) -> NoReturn:
    """Skip the test for a reason, or fail it if `name` is required."""
    __tracebackhide__ = True
    if name in os.environ.get(VARIABLE, "").split():
        pytest.fail(f"{reason}; {VARIABLE} says that {name} is here, so this is no reason to skip")
    pytest.skip(reason, allow_module_level=True)


def program(name: str, package: str = "") -> str:
    """Return the path of a program, which Debian's `package` (default: of that name) installs."""
    __tracebackhide__ = True
    found = shutil.which(name)
    if found is None:
        absent(name, f"needs {name} (Debian: {package or name}; ./bootstrap test installs it)")
    return found


def tool(name: str, variable: str) -> str:
    """Return the path of a program that nothing here installs: what a variable names, or found by name."""
    __tracebackhide__ = True
    found = shutil.which(os.environ.get(variable) or name)
    if found is None:
        absent(name, f"needs {name} ({variable} names the program)")
    return found


def package(module: str) -> ModuleType:
    """Import a package of the extras `test` and `dev`."""
    __tracebackhide__ = True
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        reason = f"needs the Python package {module} (./bootstrap test installs it): {missing}"
    left_out = module in _LEFT_OUT and sys.version_info >= _LEFT_OUT[module]
    absent("" if left_out else PACKAGES, reason)


def compose() -> Sequence[str]:
    """Return the command line of Docker Compose 2."""
    __tracebackhide__ = True
    for command in COMPOSE:
        if shutil.which(command[0]):
            asked = subprocess.run(
                [*command, "version", "--short"], capture_output=True, text=True, check=False
            )
            if asked.returncode == 0 and int(asked.stdout.lstrip("v").partition(".")[0]) >= 2:
                return command
    absent("docker-compose", "needs Docker Compose 2 (Debian: docker-compose of trixie)")
