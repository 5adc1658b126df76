"""Complete model repositories on a real server: text goes in and comes out, and client-test agrees."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ftbuild.client import bleu, golden, server_container
from ftbuild.client.acceptance import runner, translation
from ftbuild.client.acceptance.options import AcceptanceOptions, BleuOptions
from ftbuild.client.acceptance.report import AcceptanceReport
from ftbuild.client.connection import Client, Refused
from ftbuild.client.server_container import Server
from ftbuild.client.tensors import TensorSchema
from ftbuild.config import loader
from ftbuild.config.families import Tensors
from ftbuild.engine import container
from ftbuild.engine.container import ContainerError
from ftbuild.errors import ConfigError, FtbuildError, SmokeError
from ftbuild.models import (
    adoption,
    config_ini,
    config_pbtxt,
    conversion,
    conversion_run,
    ensemble,
    repository,
)
from ftbuild.models.config_pbtxt import Limits
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftbuild.plan import Plan
from ftbuild.sources import fetch
from testing import ROOT, bytelevel, foreign_weights, needs
from testing.sample import SAMPLE
from testing.serving import probed

if TYPE_CHECKING:
    import docker

GPUS = 2
SAMPLE_MODELS = loader.load(SAMPLE).models
FAMILIES = SAMPLE_MODELS.families
CONVERTERS = {
    "gpt": ("gpt.utils.huggingface_gpt_convert", ("-i", "-o", "-i_g"), ()),
    "gptj": (
        "gptj.utils.huggingface_gptj_ckpt_convert",
        ("--ckpt-dir", "--output-dir", "--n-inference-gpus"),
        ("--n-layers", "2"),
    ),
    "gptneox": ("gptneox.utils.huggingface_gptneox_convert", ("-i", "-o", "-i_g"), ("-m_n", "gptneox")),
    "t5": ("t5.utils.huggingface_t5_ckpt_convert", ("-in_file", "-saved_dir", "-i_g"), ()),
}
# Those that upstream has an ensemble for, and whose answers go on from their prompts.
DECODERS = [family for family in CONVERTERS if family != "t5"]


def tensors_of(family: str) -> Tensors:
    found = FAMILIES[family].tensors
    assert found
    return found


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
        families=SAMPLE_MODELS,
        **{"tokenizer": folder, **more},
    )


def checked(running: Server, family: str, tokenizer: Path | None) -> AcceptanceReport:
    addresses: Any = {"http": running.http, "grpc": running.grpc}
    return runner.run(AcceptanceOptions(tensors_of(family), addresses, requests=3, tokenizer=tokenizer))


def text(*lines: str) -> np.ndarray[Any, Any]:
    return np.array([[line.encode()] for line in lines], object)


def test_a_family_without_templates_is_converted_and_served_as_another(
    client: docker.DockerClient, built: Plan, reference: ModuleType, image: str, tmp_path: Path
) -> None:
    config, sdk = loader.load(SAMPLE), built.tag("sdk")
    reference.write(reference.make(), "mpt", tmp_path / "mpt")
    order = ConversionRequest("mpt", tmp_path / "mpt", tmp_path / "out", gpus=GPUS)
    planned = conversion.plan_conversion(config, "22.12", order)
    weights = conversion_run.convert(client, planned, sdk, print)
    family = repository.served_family(config, "mpt")
    out = RepositoryOptions(
        family=family,
        weights=weights,
        out=tmp_path / "models",
        dtype="fp32",
        bare=True,
        families=config.models,
    )
    made = repository.make(repository.templates(client, sdk, family), out)
    with server_container.serve(image, made.folder) as running:
        checked(running, "mpt", None).require()


def test_fauxpilots_folder_is_adopted_and_served(
    client: docker.DockerClient, built: Plan, checkpoint: Mapping[str, Path], image: str, tmp_path: Path
) -> None:
    """The sample's GPT-J under a section [gpt], with the path of another container: its answers are right."""
    folder = tmp_path / "codegen-2gpu"
    place = folder / "fastertransformer" / "1" / f"{GPUS}-gpu"
    shutil.copytree(checkpoint["gptj"] / "weights" / f"{GPUS}-gpu", place)
    values = config_ini.read(place).values
    keys = {
        "heads": "head_num", "inner": "inter_size", "layers": "num_layer", "vocabulary": "vocab_size",
        "rotary": "rotary_embedding", "start": "start_id", "end": "end_id",
    }  # fmt: skip
    facts = {fact: int(values[key]) for fact, key in keys.items()}
    facts |= {"hidden": facts["heads"] * int(values["size_per_head"]), "positions": 2048}
    foreign_weights.as_fauxpilot(place, facts, "fp32")
    adopted = adoption.adopt(folder, SAMPLE_MODELS)
    assert (adopted.family, adopted.gpus) == ("gptj", GPUS)
    found = repository.templates(client, built.tag("sdk"), "gptj")
    made = repository.adopt(found, options(checkpoint, "gptj", tmp_path / "models", bare=True), adopted)
    with server_container.serve(image, made.folder) as running:
        checked(running, "gptj", None).require()


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
        asked = AcceptanceOptions(tensors_of("gpt"), {"http": running.http}, requests=1, expect=answers)
        report = runner.run(asked)
    with pytest.raises(SmokeError, match="reference's answers to 'eight' over http: prompt 1: token"):
        report.require()


def test_the_score_of_served_translations_is_that_of_the_references_answers(
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Mapping[str, Path],
    image: str,
    reference: ModuleType,
    tmp_path: Path,
) -> None:
    sacrebleu = needs.package("sacrebleu")
    weights = reference.make()

    def translated(sentence: str) -> str:
        """What a T5 that looks at its prompt's last byte alone makes of a sentence."""
        tokens = reference.greedy(weights, ord(sentence[-1]), translation.LENGTH).tokens
        return bytes(token for token in tokens if token < reference.START_ID).decode(errors="replace")

    sentences = ["An egg and a leg", "A wish", "How is a taxi?", "It is a job", "An aria"]
    answers = [translated(sentence) for sentence in sentences]
    # Translations that are nearly right: every sentence has its neighbour's, but for the first.
    targets = [answers[0], *answers[2:], answers[1]]
    files = tmp_path / "source", tmp_path / "target"
    for file, lines in zip(files, (sentences, targets), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert bleu.pairs(*files) == (sentences, targets)

    found = repository.templates(client, built.tag("sdk"), "t5")
    made = repository.make(found, options(checkpoint, "t5", tmp_path / "models", bare=True))
    wanted = sacrebleu.corpus_bleu(answers, [targets]).score
    assert 1 < wanted < 99
    with server_container.serve(image, made.folder) as running:
        for protocol, address in {"http": running.http, "grpc": running.grpc}.items():
            addresses: Any = {protocol: address}
            score = BleuOptions(*files, threshold=round(wanted, 2))
            asked = AcceptanceOptions(
                tensors_of("t5"), addresses, 2, 1, tokenizer=checkpoint["t5"], bleu=score
            )
            report = runner.run(asked)
            report.require()
            assert report.bleu == round(wanted, 2), protocol


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


@pytest.mark.parametrize("family", DECODERS)
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
    }
    with_log_probs = {**asked, "is_return_log_probs": np.array([[True]] * 2)}
    with server_container.serve(image, made.folder) as running:
        checked(running, family, checkpoint[family]).require()
        assert probed(running) == [ensemble.ENSEMBLE]
        asking = Client(running.http, "http")
        without, answered = (asking.infer(ensemble.ENSEMBLE, inputs) for inputs in (asked, with_log_probs))
        asking.close()
    wanted = [prompt.encode() + bytes(tokens), prompt.encode() + bytes(tokens[:2])]
    assert without["OUTPUT_0"].tolist() == answered["OUTPUT_0"].tolist() == wanted
    # Log-probabilities that were not asked for have no values; an ensemble needs all outputs of its steps.
    assert (without["cum_log_probs"].shape, answered["cum_log_probs"].shape) == ((2, 0), (2, 1))
    assert (without["output_log_probs"].shape, answered["output_log_probs"].shape) == (
        (2, 0, 0),
        (2, 1, len(tokens)),
    )


def test_a_stream_of_upstreams_ensemble_needs_no_log_probabilities(
    upstream: Path, checkpoint: Mapping[str, Path], image: str, tmp_path: Path
) -> None:
    found = {
        name: (upstream / "gptneox" / name / config_pbtxt.CONFIG).read_text()
        for name in (config_pbtxt.MODEL, *ensemble.MODELS)
    }
    made = repository.make(found, options(checkpoint, "gptneox", tmp_path / "models", streamed=True))
    with server_container.serve(image, made.folder) as running:
        asking = Client(running.grpc, "grpc", seconds=20)
        asked = {"INPUT_0": text("Hi"), "INPUT_1": np.array([[4]], np.uint32)}
        responses = list(asking.stream(ensemble.ENSEMBLE, asked))
        asking.close()
    assert len(responses) == 4


@pytest.mark.parametrize("family", DECODERS)
def test_the_server_puts_prompts_of_different_length_into_one_batch(
    family: str,
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Mapping[str, Path],
    image: str,
    tmp_path: Path,
) -> None:
    prompts = [[5], [6, 7], [8, 9, 10], [11, 12, 13, 14]]
    delay = 3.0
    found = repository.templates(client, built.tag("sdk"), family)
    limits = Limits(queue_ms=int(delay * 1000), batch=len(prompts))
    made = repository.make(found, options(checkpoint, family, tmp_path / "models", bare=True, limits=limits))
    schema = TensorSchema(tensors_of(family), config_pbtxt.inputs(found[config_pbtxt.MODEL]))

    def ask(prompt: list[int]) -> tuple[list[int], float]:
        asking = Client(running.grpc, "grpc")
        start = time.monotonic()
        outputs = asking.infer(config_pbtxt.MODEL, schema.request([prompt], 4, runtime_top_k=1))
        asking.close()
        return outputs["output_ids"].tolist(), time.monotonic() - start

    with server_container.serve(image, made.folder) as running:
        alone = [ask(prompt) for prompt in prompts]
        with ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(ask, prompts))
    assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
    # A batch that is not full waits for others; this one is full, though no two of its prompts are alike.
    assert min(seconds for _, seconds in alone) >= delay
    assert max(seconds for _, seconds in together) < delay


def printable(reference: ModuleType) -> tuple[str, list[int]]:
    """A letter, and the three tokens of ASCII that follow it; the second one is a letter or digit."""
    weights = reference.make()
    for letter in range(ord("A"), ord("z")):
        first, second, third = reference.greedy(weights, letter, 3).tokens
        if max(first, second, third) < 128 and chr(second).isalnum() and second not in (first, third):
            return chr(letter), [first, second, third]
    raise AssertionError("no letter is followed by three tokens of ASCII; another prompt is needed")
