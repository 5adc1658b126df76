"""Two servers of the sample stack, compared: equal ones, and ones that differ from the third token on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ftbuild.cli import demo
from ftbuild.client import server_container
from ftbuild.client.comparing import runner, servers
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.client.comparing.report import ComparisonReport
from ftbuild.client.comparing.runner import ComparisonOptions
from ftbuild.client.comparing.servers import Address
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.models import repository
from ftbuild.models.repository import RepositoryOptions
from ftbuild.plan import Plan
from testing import ROOT, bytelevel
from testing.front import front
from testing.sample import SAMPLE, command

if TYPE_CHECKING:
    import docker

LENGTH = 8
CONVERTERS = {"gpt": "gpt.utils.huggingface_gpt_convert", "t5": "t5.utils.huggingface_t5_ckpt_convert"}
MODELS = loader.load(SAMPLE).models


def start(reference: ModuleType) -> int:
    """A token whose greedy answer repeats nothing in its first LENGTH tokens, and does not end."""
    weights = reference.make()
    for token in range(256):
        found = reference.greedy(weights, token, LENGTH).tokens
        if len({token, *found}) == LENGTH + 1 and reference.END_ID not in found:
            return token
    raise AssertionError("every answer repeats itself")


def changed(reference: ModuleType) -> Any:
    """Weights that give the second token of the answer to `start` another successor."""
    weights = reference.make()
    first, second = reference.greedy(weights, start(reference), 2).tokens
    table = [list(row) for row in weights.table]
    table[second] = list(weights.table[first])
    return reference.Checkpoint(table, weights.layers, weights.lm_head)


def repository_of(
    client: docker.DockerClient, plan: Plan, weights: Any, reference: ModuleType, folder: Path, family: str
) -> Path:
    checkpoint = folder / "checkpoint"
    reference.write(weights, family, checkpoint)
    arguments = ["-i", str(checkpoint), "-o", str(folder / "weights"), "-i_g", "1"]
    converter = [sys.executable, "-B", "-m", f"examples.pytorch.{CONVERTERS[family]}", *arguments]
    subprocess.run(converter, cwd=ROOT / "sample/upstream/FasterTransformer/base", check=True)
    options = RepositoryOptions(
        family, folder / "weights", folder / "models", dtype="fp32", bare=True, families=MODELS
    )
    return repository.make(repository.templates(client, plan.tag("sdk"), family), options).folder


@pytest.fixture(scope="module", params=["gpt", "t5"])
def both(
    request: pytest.FixtureRequest,
    client: docker.DockerClient,
    built: Plan,
    reference: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Server, Server]]:
    """The family, and a server of the sample's weights beside one of changed weights."""
    with ExitStack() as stack:
        found = []
        for weights in (reference.make(), changed(reference)):
            folder = tmp_path_factory.mktemp(request.param)
            models = repository_of(client, built, weights, reference, folder, request.param)
            found.append(stack.enter_context(server_container.serve(built.tag("runtime"), models)))
        yield request.param, found[0], found[1]


def compared(
    old: Address, new: Address, prompts: list[Prompt], tokenizer: Any = None, **options: Any
) -> ComparisonReport:
    with servers.connected({"old": old, "new": new}, MODELS, tokenizer) as connected:
        return runner.run(connected, prompts, ComparisonOptions(**{"length": LENGTH, **options}), print)


def outcomes(report: ComparisonReport) -> list[str]:
    return [each.outcome(report.tie).value for each in report.compared]


def test_a_server_agrees_with_itself_over_both_protocols(both: tuple[str, Server, Server]) -> None:
    _, old, _ = both
    prompts = [Prompt((5, 9, 77)), Prompt((71, 3, 12, 200, 41)), Prompt((130,))]
    report = compared(Address(old.grpc), Address(old.url), prompts, requests=2)
    assert outcomes(report) == ["equal"] * 3
    assert report.notes == []
    assert report.latencies["new"]["requests"] == 6
    report.require(100)


def test_servers_that_differ_from_the_third_token_on(
    both: tuple[str, Server, Server], reference: ModuleType
) -> None:
    family, old, new = both
    prompt = Prompt((17, start(reference)))
    report = compared(Address(old.grpc), Address(new.grpc), [prompt])
    (found,) = report.compared
    assert found.old is not None
    assert found.new is not None
    known = [
        reference.greedy(weights, prompt.tokens[-1], LENGTH)
        for weights in (reference.make(), changed(reference))
    ]
    assert [list(found.old.tokens), list(found.new.tokens)] == [row.tokens for row in known]
    assert found.parting is not None
    assert found.parting.step == 2
    # What each server tells is the reference's own, to the rounding of fp32 sums.
    assert found.parting.old.own == pytest.approx(known[0].log_probs[2], abs=1e-3)
    assert found.parting.new.own == pytest.approx(known[1].log_probs[2], abs=1e-3)
    # T5 takes no beginning of an answer, so its servers cannot rate another token.
    assert (found.parting.old.other is None) is (family == "t5")
    if family == "gpt":
        assert found.parting.old.gap is not None
        assert found.parting.old.gap >= known[0].gap[2] - 1e-3
        assert outcomes(report) == ["parted"]


def test_a_server_without_log_probabilities_is_compared(
    built: Plan, tmp_path: Path, both: tuple[str, Server, Server]
) -> None:
    """The demo's model has neither their input nor their output, and answers by the built-in rule."""
    family, old, _ = both
    if family == "t5":
        pytest.skip("its tensors are others than the demo's")
    models = demo.model_repository(tmp_path / "models")
    with server_container.serve(built.tag("runtime"), models) as bare:
        report = compared(Address(bare.grpc), Address(old.grpc), [Prompt(demo.PROMPT)])
    assert outcomes(report) == ["parted"]
    assert report.notes == ["the old server returns no log-probabilities"]
    assert report.compared[0].old is not None
    assert list(report.compared[0].old.tokens[: len(demo.ANSWER)]) == list(demo.ANSWER)


def test_the_openai_front_of_a_server_agrees_with_it(
    both: tuple[str, Server, Server], reference: ModuleType, tmp_path: Path
) -> None:
    """It tells text, which the tokenizer makes tokens of: the letters of an answer in ASCII."""
    from ftbuild.client import bleu

    family, old, _ = both
    if family == "t5":
        pytest.skip("the front of T5 has tests of its own")
    folder = bytelevel.write(tmp_path / "tokenizer")
    weights = reference.make()
    plain = [t for t in range(33, 127) if max(reference.greedy(weights, t, 4).tokens) < 127]
    with front(old.grpc, folder, tmp_path / "log", "--context", "64") as running:
        report = compared(
            Address(old.grpc),
            Address(f"{running.url}/v1"),
            [Prompt((token,)) for token in plain[:3]],
            bleu.tokenizer(folder),
            length=3,
        )
    assert outcomes(report) == ["equal"] * len(plain[:3])


def test_a_server_that_is_killed_in_the_middle_ends_the_command_with_what_was_compared(
    client: docker.DockerClient, built: Plan, reference: ModuleType, tmp_path: Path
) -> None:
    models = demo.model_repository(tmp_path / "models")
    file, out = tmp_path / "prompts.jsonl", tmp_path / "report.json"
    file.write_text("[1, 2, 3]\n" * 20_000)
    with (
        server_container.serve(built.tag("runtime"), models) as old,
        server_container.serve(built.tag("runtime"), models) as new,
    ):
        argv = command("compare", "--old", old.grpc, "--new", new.grpc, "--prompts", str(file))
        process = subprocess.Popen(
            [*argv, "--format", "json", "--out", str(out)],
            cwd=ROOT,
            env={**os.environ, "FTBUILD_CONFIG": str(SAMPLE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        # The first word about progress.
        assert process.stderr.readline().startswith("compared ")
        new.container.get_wrapped_container().kill()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 9, said
    assert "error: the new server stopped answering at prompt" in said
    record = json.loads(out.read_text())
    assert 0 < record["outcomes"]["equal"] == len(record["answers"]) < 20_000
