"""Clients of other projects as they are, before the front and the sample stack's server.

`FTBUILD_RECORD=1` writes what is found into results.json, of which docs/ftserve/openai.md has a table.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from ftbuild.client import server_container
from ftbuild.models.config_pbtxt import MODEL
from ftbuild.plan import Plan
from testing.front import NAME, front
from tests.engine.ftserve.clients import environments
from tests.engine.ftserve.clients.table import CLIENTS, RESULTS, Client
from tests.engine.ftserve.test_front import CONTEXT, answer, converted, letter, served, text
from tests.engine.ftserve.test_front_ratings import rated

if TYPE_CHECKING:
    import docker

# Tokens of an answer: as many as are known to be ASCII (`letter`).
LENGTH = 3
ASK_SECONDS = 240


@pytest.fixture(scope="module")
def checkpoint(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(reference, tmp_path_factory.mktemp("gpt"), "gpt")


@pytest.fixture(scope="module")
def addresses(
    client: docker.DockerClient, built: Plan, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[str]]]:
    """Where to ask, and for what: the front of a server that streams, and a server that answers at once."""
    folder, image = tmp_path_factory.mktemp("clients"), built.tag("runtime")
    streams = served(client, built, checkpoint, folder / "streams", streamed=True)
    answers = served(client, built, checkpoint, folder / "answers", streamed=False)
    with (
        server_container.serve(image, streams) as streaming,
        server_container.serve(image, answers) as server,
        front(streaming.grpc, checkpoint, folder / "log", "--context", str(CONTEXT)) as asked,
    ):
        yield {"front": [f"{asked.url}/v1", NAME], "triton": [server.url, server.grpc, MODEL]}


@pytest.mark.parametrize("tried", CLIENTS, ids=lambda tried: tried.name)
def test_a_client_gets_the_models_own_answers(
    tried: Client, addresses: dict[str, list[str]], reference: ModuleType, tmp_path: Path
) -> None:
    program = environments.program(tried)
    prompt = letter(reference)
    # Some clients have settings, caches and telemetry of their own.
    quiet = {"HOME": str(tmp_path), "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [*program, *addresses[tried.asks], prompt, str(LENGTH)],
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
    for continuation, rate, best in answers.get("loglikelihood", ()):
        # What goes before the first token of a text is no part of it.
        row = [*prompt.encode(), *continuation.encode()]
        assert rate == pytest.approx(sum(rated(reference, row)), abs=1e-3)
        assert best == (continuation == answers["generate_until"])
    for name, said in answers.items():
        if name == "loglikelihood":
            continue
        assert said == wanted.get(name, text(answer(reference, prompt, LENGTH))), name
    found = {"version": tried.version, "asked": sorted(answers)}
    if os.environ.get("FTBUILD_RECORD"):
        with FileLock(tmp_path.parent / "results.lock"):
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps({**known, tried.name: found}, indent=2, sort_keys=True) + "\n")
    assert json.loads(RESULTS.read_text())[tried.name] == found
