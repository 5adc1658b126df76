"""Clients of other projects as they are, before the front and the sample stack's server.

`FTBUILD_RECORD=1` writes what is found into results.json, of which docs/openai.md has a table.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from ftbuild.client import server_container
from ftbuild.plan import Plan
from testing.front import NAME, Front, front
from tests.engine.clients.table import CLIENTS, HERE, RESULTS, Client
from tests.engine.conftest import USERS_CACHE
from tests.engine.test_front import CONTEXT, answer, converted, letter, served, text

if TYPE_CHECKING:
    import docker

# Tokens of an answer: as many as are known to be ASCII (`letter`).
LENGTH = 3
INSTALL_SECONDS, ASK_SECONDS = 600, 240


@pytest.fixture(scope="module")
def asked(
    client: docker.DockerClient, built: Plan, reference: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """The front of a server that streams."""
    folder = tmp_path_factory.mktemp("clients")
    checkpoint = converted(reference, folder / "gpt", "gpt")
    models = served(client, built, checkpoint, folder / "models", streamed=True)
    with (
        server_container.serve(built.tag("runtime"), models) as running,
        front(running.grpc, checkpoint, folder / "log", "--context", str(CONTEXT)) as found,
    ):
        yield found


def environment_of(tried: Client) -> Path:
    """Return the interpreter of an environment with the client, which is kept for the next run."""
    key = hashlib.sha256(tried.locked.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = USERS_CACHE / "clients" / f"{tried.requirements}-{key}"
    python, ready = folder / "bin" / "python", folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if ready.exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        try:
            done = subprocess.run(
                [*install, "--requirement", str(tried.locked)],
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{tried.name} was not installed within {INSTALL_SECONDS} s")
        if done.returncode:
            pytest.skip(f"{tried.name} cannot be had: {done.stderr.strip().splitlines()[-1][:200]}")
        ready.touch()
    return python


@pytest.mark.parametrize("tried", CLIENTS, ids=lambda tried: tried.name)
def test_a_client_gets_the_models_own_answers(
    tried: Client, asked: Front, reference: ModuleType, tmp_path: Path
) -> None:
    python = environment_of(tried)
    prompt = letter(reference)
    program = HERE / "programs" / f"{tried.program}.py"
    # Some clients have settings, caches and telemetry of their own.
    quiet = {"HOME": str(tmp_path), "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [str(python), str(program), f"{asked.url}/v1", NAME, prompt, str(LENGTH)],
        env={**os.environ, **quiet},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=ASK_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    rendered = f"u:{prompt};a:"
    wanted = {
        name: text(answer(reference, rendered, LENGTH)) for name in ("chat", "streamed chat", "second turn")
    }
    for name, said in answers.items():
        assert said == wanted.get(name, text(answer(reference, prompt, LENGTH))), name
    found = {"version": tried.version, "asked": sorted(answers)}
    if os.environ.get("FTBUILD_RECORD"):
        with FileLock(tmp_path.parent / "results.lock"):
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps({**known, tried.name: found}, indent=2, sort_keys=True) + "\n")
    assert json.loads(RESULTS.read_text())[tried.name] == found
