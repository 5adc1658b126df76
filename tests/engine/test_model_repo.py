"""Complete model repositories on a real server: text goes in and comes out, and client-test agrees."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ftbuild.client import golden, server_container
from ftbuild.client.acceptance import runner
from ftbuild.client.acceptance.options import AcceptanceOptions
from ftbuild.client.acceptance.report import AcceptanceReport
from ftbuild.client.connection import Client, Refused
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.engine import container
from ftbuild.engine.container import ContainerError
from ftbuild.errors import ConfigError, FtbuildError, SmokeError
from ftbuild.models import config_pbtxt, ensemble, repository
from ftbuild.models.repository import RepositoryOptions
from ftbuild.plan import Plan
from ftbuild.sources import fetch
from testing import ROOT, bytelevel, needs
from testing.sample import SAMPLE
from testing.serving import probed

if TYPE_CHECKING:
    import docker

GPUS = 2
FAMILIES = loader.load(SAMPLE).models.families
CONVERTERS = {
    "gpt": ("gpt.utils.huggingface_gpt_convert", ("-i", "-o", "-i_g"), ()),
    "gptj": (
        "gptj.utils.huggingface_gptj_ckpt_convert",
        ("--ckpt-dir", "--output-dir", "--n-inference-gpus"),
        ("--n-layers", "2"),
    ),
    "gptneox": ("gptneox.utils.huggingface_gptneox_convert", ("-i", "-o", "-i_g"), ("-m_n", "gptneox")),
}
# Where Debian's Python looks for packages.
PACKAGES = "/usr/local/lib/python3.11/dist-packages"


@pytest.fixture(scope="module")
def checkpoint(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Family -> a folder with a checkpoint, its tokenizer and its weights for GPUS GPUs."""
    folders = {}
    for family, (module, options, more) in CONVERTERS.items():
        folder = tmp_path_factory.mktemp(family)
        reference.write(reference.make(), family, folder)
        bytelevel.write(folder)
        values = (str(folder), str(folder / "weights"), str(GPUS))
        arguments = [text for pair in zip(options, values, strict=True) for text in pair]
        command = [sys.executable, "-B", "-m", f"examples.pytorch.{module}", *arguments, *more]
        subprocess.run(command, cwd=ROOT / "sample/upstream/FasterTransformer/base", check=True)
        folders[family] = folder
    return folders


@pytest.fixture(scope="module")
def image(client: docker.DockerClient, built: Plan) -> Iterator[str]:
    """The runtime image; where it lacks `tokenizers`, with this machine's copy of the package."""
    runtime = built.tag("runtime")
    try:
        container.run(client, runtime, "python3 -c 'import tokenizers'")
    except ContainerError:
        pass
    else:
        yield runtime
        return
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the runtime image lacks tokenizers, and this machine's is for another Python")
    needs.package("tokenizers")
    package = importlib.metadata.distribution("tokenizers").locate_file("tokenizers")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(str(package), arcname="tokenizers")
    name = f"ftbuild-test:{uuid.uuid4().hex}"
    made = client.containers.create(runtime, command=["true"])
    made.put_archive(PACKAGES, buffer.getvalue())
    made.commit(*name.split(":"))
    made.remove()
    yield name
    client.images.remove(name, force=True)


def options(checkpoint: Mapping[str, Path], family: str, out: Path, **more: Any) -> RepositoryOptions:
    folder = checkpoint[family]
    return RepositoryOptions(
        family=family,
        weights=folder / "weights",
        out=out,
        dtype="fp32",
        **{"tokenizer": folder, **more},
    )


def checked(running: Server, family: str, tokenizer: Path | None) -> AcceptanceReport:
    addresses: Any = {"http": running.http, "grpc": running.grpc}
    return runner.run(AcceptanceOptions(FAMILIES[family].tensors, addresses, requests=3, tokenizer=tokenizer))


def text(*lines: str) -> np.ndarray[Any, Any]:
    return np.array([[line.encode()] for line in lines], object)


def test_a_family_without_an_ensemble_is_served_bare(
    client: docker.DockerClient, built: Plan, checkpoint: Mapping[str, Path], image: str, tmp_path: Path
) -> None:
    found = repository.templates(client, built.tag("sdk"), "gpt")
    made = repository.make(found, options(checkpoint, "gpt", tmp_path / "models", bare=True))
    assert made.gpus == GPUS
    with server_container.serve(image, made.folder) as running:
        report = checked(running, "gpt", None)
    report.require()
    assert report.notes == ["no ensemble is served: text was not tested"]


def test_text_goes_through_the_ensemble_of_the_sample_stack(
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Mapping[str, Path],
    image: str,
    reference: ModuleType,
    tmp_path: Path,
) -> None:
    found = repository.templates(client, built.tag("sdk"), "gptneox")
    made = repository.make(found, options(checkpoint, "gptneox", tmp_path / "models"))
    with server_container.serve(image, made.folder) as running:
        report = checked(running, "gptneox", checkpoint["gptneox"])
        report.require()
        assert probed(running) == [ensemble.ENSEMBLE]
        assert {result.subject for result in report.results} == {"identity", "end to end"}

        asking = Client(running.http, "http")
        asked = {"INPUT_0": text("Hi", "Hello there"), "INPUT_1": np.array([[6], [6]], np.uint32)}
        answers = asking.infer(ensemble.ENSEMBLE, asked)["OUTPUT_0"].tolist()
        weights = reference.make()
        for prompt, answer in zip(asked["INPUT_0"].reshape(-1).tolist(), answers, strict=True):
            tokens = reference.greedy(weights, prompt[-1], 6).tokens
            wanted = prompt + bytes(token for token in tokens if token < reference.START_ID)
            assert answer.decode() == wanted.decode(errors="replace")

        with pytest.raises(Refused, match="row 2 has no tokens"):
            asking.infer(ensemble.ENSEMBLE, {**asked, "INPUT_0": text("Hi", "")})
        asking.close()


def test_an_ensemble_streams_its_text(
    client: docker.DockerClient, built: Plan, checkpoint: Mapping[str, Path], image: str, tmp_path: Path
) -> None:
    found = repository.templates(client, built.tag("sdk"), "gptneox")
    made = repository.make(found, options(checkpoint, "gptneox", tmp_path / "models", streamed=True))
    with server_container.serve(image, made.folder) as running:
        asking = Client(running.grpc, "grpc")
        assert probed(running) == [ensemble.ENSEMBLE]
        asked = {"INPUT_0": text("Hi"), "INPUT_1": np.array([[4]], np.uint32)}
        responses = [outputs["OUTPUT_0"][0] for outputs in asking.stream(ensemble.ENSEMBLE, asked)]
        asking.close()
    assert len(responses) == 4
    assert all(text.startswith(b"Hi") for text in responses)
    assert [len(text.decode()) for text in responses] == sorted(len(text.decode()) for text in responses)


def test_weights_of_another_model_answer_wrong_and_are_found_out(
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Mapping[str, Path],
    image: str,
    reference: ModuleType,
    tmp_path: Path,
) -> None:
    answers = tmp_path / "answers.json"
    other = reference.make(seed=reference.SEED + 1)
    answers.write_text(json.dumps(reference.answers(other, "gpt", json.loads(golden.questions())["cases"])))
    found = repository.templates(client, built.tag("sdk"), "gpt")
    made = repository.make(found, options(checkpoint, "gpt", tmp_path / "models", bare=True))
    with server_container.serve(image, made.folder) as running:
        asked = AcceptanceOptions(FAMILIES["gpt"].tensors, {"http": running.http}, requests=1, expect=answers)
        report = runner.run(asked)
    with pytest.raises(SmokeError, match="reference's answers to 'eight' over http: prompt 1: token"):
        report.require()


def test_an_image_without_templates_is_named(client: docker.DockerClient, built: Plan) -> None:
    with pytest.raises(ConfigError, match="has no templates for gpt"):
        repository.templates(client, built.tag("runtime"), "gpt")
    with pytest.raises(ConfigError, match="has no templates for bloom"):
        repository.templates(client, built.tag("sdk"), "bloom")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory, users_cache: Path) -> Path:
    """all_models of the real release 22.12, from this machine's cache of sources."""
    folder = tmp_path_factory.mktemp("upstream") / "backend"
    real = loader.load(ROOT / "buildcfg")
    try:
        fetch.export(real, "22.12", "backend", users_cache, folder, report=print)
    except FtbuildError as missing:
        pytest.skip(f"the real sources are not on this machine: {missing.what}")
    return folder / "all_models"


@pytest.mark.parametrize("family", CONVERTERS)
def test_upstreams_ensembles_with_our_models_on_the_sample_backend(
    family: str,
    upstream: Path,
    checkpoint: Mapping[str, Path],
    image: str,
    reference: ModuleType,
    tmp_path: Path,
) -> None:
    found = {
        name: (upstream / family / name / config_pbtxt.CONFIG).read_text()
        for name in (config_pbtxt.MODEL, *ensemble.MODELS)
    }
    made = repository.make(found, options(checkpoint, family, tmp_path / "models"))
    prompt, tokens = printable(reference)
    asked = {
        "INPUT_0": text(prompt, prompt),
        "INPUT_1": np.array([[len(tokens)]] * 2, np.uint32),
        # The second answer ends with its second token.
        "INPUT_3": text("", chr(tokens[1])),
        "is_return_log_probs": np.array([[True]] * 2),
    }
    with server_container.serve(image, made.folder) as running:
        checked(running, family, checkpoint[family]).require()
        assert probed(running) == [ensemble.ENSEMBLE]
        asking = Client(running.http, "http")
        answers = asking.infer(ensemble.ENSEMBLE, asked)["OUTPUT_0"].tolist()
        asking.close()
    assert answers == [prompt.encode() + bytes(tokens), prompt.encode() + bytes(tokens[:2])]


def printable(reference: ModuleType) -> tuple[str, list[int]]:
    """A letter, and the three tokens of ASCII that follow it; the second one is a letter or digit."""
    weights = reference.make()
    for letter in range(ord("A"), ord("z")):
        first, second, third = reference.greedy(weights, letter, 3).tokens
        if max(first, second, third) < 128 and chr(second).isalnum() and second not in (first, third):
            return chr(letter), [first, second, third]
    raise AssertionError("no letter is followed by three tokens of ASCII; another prompt is needed")
