"""Environments with the clients, each of its own, kept below the user's cache for the next run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from tests.engine.conftest import USERS_CACHE
from tests.engine.ftserve.clients.table import Client

INSTALL_SECONDS = 600
# Debian's package `npm` brings some three hundred others, so that `bootstrap` leaves it to whoever has Node.
NODE, NPM = "node", "npm"


def program(tried: Client) -> list[str]:
    """Return the command that runs the client's program; skips where the client cannot be had."""
    if not tried.of_node:
        return [interpreter(tried), str(tried.source)]
    for needed in (NODE, NPM):
        if shutil.which(needed) is None:
            pytest.skip(f"{tried.name} needs the program {needed}, which `bootstrap` does not install")
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    folder = _environment(tried, version, _install_node)
    # Node looks for packages beside a program.
    shutil.copy(tried.source, folder)
    return [NODE, str(folder / tried.source.name)]


def interpreter(tried: Client) -> str:
    """Return the Python of an environment; skips where its packages cannot be had."""
    return str(_environment(tried, sys.version, _install_python) / "bin" / "python")


def _environment(tried: Client, interpreter: str, install: Callable[[Client, Path], None]) -> Path:
    """Return the folder of the environment for the client, made unless it is there."""
    key = hashlib.sha256(tried.locked.read_bytes() + interpreter.encode()).hexdigest()[:12]
    folder = USERS_CACHE / "clients" / f"{tried.requirements}-{key}"
    ready = folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if ready.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        install(tried, folder)
        ready.touch()
    return folder


def _install_python(tried: Client, folder: Path) -> None:
    """Install by the pip of this environment, and compile nothing: of thousands of modules few are loaded."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-compile"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run(tried, [*pip, *quiet, "--no-deps", "--requirement", str(tried.locked)], folder)


def _install_node(tried: Client, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(tried.locked.with_name(name), folder)
    _run(tried, [NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=peer"], folder)


def _run(tried: Client, command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{tried.name} was not installed within {INSTALL_SECONDS} s")
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason"]
        pytest.skip(f"{tried.name} cannot be had: {said[-1][:200]}")
