"""Mutated checkpoints, weights, model repositories and serving options, and what ftbuild makes of them.

    FTBUILD_FUZZ=10 python -m pytest -s tests/unit/models/test_mutations.py

tries mutations of random seeds for ten minutes; `python -m testing.model_files SEED...` repeats some.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ftbuild.client import bleu, connection
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.models import config_ini, conversion, converters, fit, repository, untrusted, weights
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftserve import image_choice, requirements
from ftserve.deployment import Deployment, Options, Ports, decide, gpu_indices, size
from ftserve.targets import apptainer, compose, docker, kubernetes
from testing import ROOT, bytelevel, mutations
from testing.outcomes import Outcome, repeat, run_in_process, timed

IDS = {"vocab_size": 300, "bos_token_id": 256, "eos_token_id": 257}
GPT2 = {"n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 16, **IDS}
CHECKPOINTS: dict[str, dict[str, Any]] = {
    "gpt": {**GPT2, "model_type": "gpt2", "n_inner": None, "activation_function": "gelu_new"},
    "opt": {
        "model_type": "opt", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 128,
        "ffn_dim": 64, "max_position_embeddings": 16, "do_layer_norm_before": False,
        "activation_function": "relu", **IDS,
    },
    "bloom": {
        "model_type": "bloom", "n_layer": 2, "num_attention_heads": 4, "n_embed": 128, "seq_length": 2048,
        **IDS,
    },
    "mpt": {
        "model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 128, "max_seq_len": 65536,
        "expansion_ratio": 4, "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None}, **IDS,
    },
    "gptj": {**GPT2, "model_type": "gptj", "rotary_dim": 4, "tie_word_embeddings": False},
    "codegen": {**GPT2, "model_type": "codegen", "rotary_dim": 4},
    "gptneox": {
        "model_type": "gpt_neox", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 128,
        "intermediate_size": 64, "use_parallel_residual": True, "rope_scaling": None, **IDS,
    },
    "t5": {
        "model_type": "t5", "d_model": 32, "d_kv": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0, "feed_forward_proj": "relu", **IDS,
    },
}  # fmt: skip
HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "F16", "shape": [4], "data_offsets": [16, 24]},
}
INDEX = {"metadata": {"total_size": 48}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
CONFIG_INI = """\
[gptj]
model_name = gptj
head_num = 16
size_per_head = 256
inter_size = 16384
num_layer = 28
rotary_embedding = 64
vocab_size = 50400
start_id = 50256
end_id = 50256
tensor_para_size = 2
weight_data_type = fp32
"""
# The keys of fastertransformer_backend, all_models/gptj/fastertransformer/config.pbtxt, other values.
CONFIG_PBTXT = """\
name: "fastertransformer"
backend: "fastertransformer"
default_model_filename: "gptj"
max_batch_size: 1024
model_transaction_policy { decoupled: False }
input [ { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] } ]
output [ { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "tensor_para_size" value: { string_value: "1" } }
parameters { key: "pipeline_para_size" value: { string_value: "1" } }
parameters { key: "data_type" value: { string_value: "fp16" } }
parameters { key: "model_type" value: { string_value: "GPT-J" } }
parameters { key: "model_checkpoint_path" value: { string_value: "/models/fastertransformer/1/1-gpu" } }
parameters { key: "int8_mode" value: { string_value: "0" } }
"""
# As release 1.1 has it, which gets the numbers of config.ini.
OLD_PBTXT = CONFIG_PBTXT + "".join(
    f'parameters {{ key: "{key}" value: {{ string_value: "1" }} }}\n'
    for key in ("head_num", "size_per_head", "inter_size", "vocab_size", "start_id", "end_id", "max_seq_len")
)
WORDS = (
    "x", "triton_with_ft:22.12-sm80", "registry.example:5000/a/b:c", "sha256:" + "0" * 64, "--privileged",
    "0,1", "2", "1g", "512m", "0.0.0.0", "127.0.0.1", "::1", "fe80::1%eth0", "localhost:8000",
    "http://localhost:8000", "[::1]:8001", "8000", "gptj", "a,b", "\x1b[2J", "x\n%post\n touch y\n",
    "x:1\nUSER root", "claim-1", "models.example.com",
)  # fmt: skip
COMMANDS = (
    ("serve", "--dry-run"), ("serve.compose",), ("serve.k8s",), ("serve.sif",), ("convert", "--dry-run"),
    ("client-test",),
)  # fmt: skip
OPTIONS = (
    "--image", "--name", "--pvc", "--listen", "--gpus", "--gpu-count", "--replicas", "--shm", "--http-port",
    "--grpc-port", "--out", "--sm", "--triton", "--base", "--model-repo", "--checkpoint", "--dtype",
    "--jobs", "--model", "--timeout", "--threshold", "--tokenizer",
)  # fmt: skip


class Scene:
    """A folder in which one case at a time is laid out, and the real configuration."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.config = loader.load(ROOT / "buildcfg")

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Path]:
        """Yield an empty folder."""
        folder = self.root / "case"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Yield a scene in a scratch folder, in memory if possible: each case makes and removes files."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ftbuild-mutations-", dir=place) as scratch:
        yield Scene(Path(scratch))


def examine(seed: int, found: Scene) -> Outcome:
    """Make the change of a seed and use the result; any other exception than FtbuildError passes through."""
    rng = random.Random(seed)
    kind = rng.choices(tuple(KINDS), [weight for weight, _ in KINDS.values()])[0]
    with found.fresh() as folder:
        return KINDS[kind][1](seed, rng, folder, found.config)


def changed_json(rng: random.Random, content: Any) -> bytes:
    """Return JSON with some places changed, or what is no JSON any more."""
    if rng.random() < 0.7:
        return json.dumps(mutations.data(rng, content)).encode()
    return changed_text(rng, json.dumps(content, indent=1))


def changed_text(rng: random.Random, text: str) -> bytes:
    """Return text with some lines changed, or what is no text any more."""
    if rng.random() < 0.7:
        return mutations.lines(rng, text).encode("utf-8", "surrogatepass")
    return mutations.raw(rng, text)


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return bytes with a part cut, doubled or spoilt."""
    return mutations.raw(rng, content.decode("latin-1")) if rng.random() < 0.9 else rng.randbytes(64)


def safetensors(header: bytes, length: int | None = None, size: int = 24) -> bytes:
    """Return a file of that header."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + bytes(size)


def _checkpoint(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Change config.json, the index, a header or a pickle of a checkpoint, or its files altogether."""
    family = rng.choice(tuple(CHECKPOINTS))
    what = rng.choices(("config.json", "index", "header", "pickle", "files"), (4, 2, 2, 1, 1))[0]
    files = {"config.json": json.dumps(CHECKPOINTS[family]).encode()}
    whole = safetensors(json.dumps(HEADER).encode())
    if what == "index":
        files |= {"1.safetensors": whole, "2.safetensors": whole}
        files["model.safetensors.index.json"] = changed_json(rng, INDEX)
    elif what == "pickle":
        files["pytorch_model.bin"] = changed_bytes(rng, _zip(rng))
    else:
        files["model.safetensors"] = whole
    if what == "config.json":
        files["config.json"] = changed_json(rng, CHECKPOINTS[family])
    elif what == "header":
        length = rng.choice((None, None, 0, 1, 7, 2**24, 2**40, 2**63, 2**64 - 1))
        files["model.safetensors"] = safetensors(changed_json(rng, HEADER), length)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    for name, content in files.items():
        (checkpoint / name).write_bytes(content)
    if what == "files":
        _disturb(rng, checkpoint)
    gpus = rng.choice((1, 2, 4, 3))
    release = rng.choice(converters.converting_releases(config, family))
    request = ConversionRequest(family, checkpoint, folder / "out", gpus)
    return timed(
        seed,
        f"checkpoint, {what}",
        f"{family} {release}: {_short(files)}",
        lambda: conversion.plan_conversion(config, release, request).render(),
    )


def _zip(rng: random.Random) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("archive/data.pkl", "archive/data/0", *rng.choice(((), ("archive/constants.pkl",)))):
            archive.writestr(name, b"x" * 100)
    return content.getvalue()


def _disturb(rng: random.Random, folder: Path) -> None:
    """Put something else into the place of a file, or beside it."""
    victim = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    place = victim if rng.random() < 0.7 else victim.with_name("notes")
    place.unlink(missing_ok=True)
    action = rng.randrange(7)
    if action == 0:
        os.mkfifo(place)
    elif action == 1:
        place.mkdir()
    elif action == 2:
        place.touch(mode=0o6644)
    else:
        targets = ("/etc/passwd", "/dev/zero", "..", place.name, "nothing", "config.json", "/proc/self/mem")
        place.symlink_to(rng.choice(targets))


def _tokenizer(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Change a tokenizer, and use it in a repository and in the client."""
    bytelevel.write(folder)
    if rng.random() < 0.5:
        name, content = "tokenizer.json", json.loads((folder / "tokenizer.json").read_text())
    else:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
        (folder / "merges.txt").write_text("#version: 0.2\na b\n")
        (folder / "added_tokens.json").write_text('{"<x>": 3}')
        name, content = rng.choice(
            (("vocab.json", {"a": 0}), ("added_tokens.json", {"<x>": 3}), ("merges.txt", ""))
        )
    text = changed_text(rng, "#version: 0.2\na b\n") if name == "merges.txt" else changed_json(rng, content)
    (folder / name).write_bytes(text)
    if rng.random() < 0.1:
        _disturb(rng, folder)

    def use() -> None:
        fit.check(folder, fit.Model("gpt", 300, None, None, "config.ini"))
        bleu.tokenizer(folder)

    return timed(seed, "tokenizer", f"{name}: {_short({name: text})}", use)


def _weights(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Change config.ini, or what lies beside it, and make a repository of the weights."""
    place = folder / rng.choice(("2-gpu",) * 9 + ("0-gpu", "99999-gpu", "x"))
    place.mkdir()
    text = changed_text(rng, CONFIG_INI)
    (place / "config.ini").write_bytes(text)
    (place / "model.wte.bin").write_bytes(bytes(16))
    if rng.random() < 0.1:
        _disturb(rng, place)
    options = RepositoryOptions("gptj", place, folder / "models", pipeline=rng.choice((1, 2, 0, -1, 7)))
    converter = config.models.families["gptj"].converters[0]
    facts = dict.fromkeys(("layers", "heads", "hidden", "inner", "rotary", "vocabulary", "start", "end"), 2)

    def use() -> None:
        list(weights.complaints(place, converter, facts, 2, "fp32"))
        config_ini.find(folder)
        repository.make({"fastertransformer": OLD_PBTXT}, options)
        untrusted.require_plain(folder / "models", "")

    return timed(seed, "config.ini", _short({place.name: text}), use)


def _repository(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Change config.pbtxt, or the repository's files, and write it down for every platform."""
    models = folder / "models"
    (models / "fastertransformer/1/1-gpu").mkdir(parents=True)
    text = changed_text(rng, CONFIG_PBTXT)
    (models / "fastertransformer/config.pbtxt").write_bytes(text)
    if rng.random() < 0.1:
        _disturb(rng, models)

    def use() -> None:
        requirements.unreadable(models, 1000, 1000)
        found = requirements.read(models)
        image = image_choice.Image("triton_with_ft:22.12-sm80")
        render(decide(Options(models), found, image, "gpu"))

    return timed(seed, "config.pbtxt", _short({"config.pbtxt": text}), use)


def render(deployment: Deployment, claim: str | None = None) -> None:
    """Write a deployment down for every platform; fail unless each says just what was asked."""
    service = yaml.safe_load(compose.render(deployment))["services"]["triton"]
    assert service["image"].replace("$$", "$") == deployment.image
    assert service["volumes"][0]["source"].replace("$$", "$") == str(deployment.models)
    words = shlex.split(docker.command_line(deployment))
    (mount,) = (word.removeprefix("--mount=") for word in words if word.startswith("--mount="))
    assert next(csv.reader([mount]))[1] == f"source={deployment.models}"
    assert words[-len(deployment.command) - 1] == deployment.image
    first, *_ = yaml.safe_load_all(kubernetes.render(deployment, kubernetes.Cluster(claim=claim)))
    pod = first["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == deployment.image
    texts = apptainer.render(deployment)
    assert texts["triton.def"].count("\n") == 5
    assert f"--job-name={deployment.name}\n" in texts["triton.sbatch"]


def _options(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Change the options of a deployment."""
    given: dict[str, Any] = {
        "name": "triton-ft", "image": "triton_with_ft:22.12-sm80", "pvc": "claim", "listen": "127.0.0.1",
        "gpus": "0", "shm": "1g", "http": "localhost:8000", "folder": "models",
    }  # fmt: skip
    for option in rng.sample(tuple(given), rng.choice((1, 1, 2))):
        word = rng.choice(WORDS) if rng.random() < 0.5 else rng.choice(mutations.TEXTS)
        given[option] = mutations.typo(rng, word) if rng.random() < 0.3 else word
    ports = [
        rng.choice((8000, 8001, 8002, 0, -1, 65536, 1)) if rng.random() < 0.2 else n
        for n in (8000, 8001, 8002)
    ]
    models = folder / given["folder"].replace("\0", "").strip("/")[:200]
    with contextlib.suppress(OSError):
        models.mkdir(parents=True)

    def use() -> None:
        connection.checked(given["http"], "http")
        options = Options(
            models,
            gpu_indices(given["gpus"]),
            Ports(ports[0], ports[1], ports[2], given["listen"]),
            size(given["shm"]),
            given["name"],
        )
        render(decide(options, requirements.Needs(), image_choice.Image(given["image"]), "gpu"), given["pvc"])

    return timed(seed, "serving options", str(given)[:500], use)


def _command_line(seed: int, rng: random.Random, folder: Path, config: Config) -> Outcome:
    """Type a command with odd options."""
    models = folder / "models"
    (models / "fastertransformer/1/1-gpu").mkdir(parents=True)
    (models / "fastertransformer/config.pbtxt").write_text(CONFIG_PBTXT)
    words = ["invoke", *rng.choice(COMMANDS)]
    options = {"--model-repo": str(models), "--image": "x:1", "--out": str(folder / "out")}
    for option in rng.sample(OPTIONS, rng.choice((1, 2, 3))):
        options[option] = rng.choice(WORDS) if rng.random() < 0.5 else rng.choice(mutations.TEXTS)
    options["--out"] = str(folder / "out")
    if words[1] == "client-test":
        options = {"--model": "gpt", "--http": "127.0.0.1:9", **options}
    elif words[1] == "convert":
        options = {"--model": "gpt", "--checkpoint": str(folder), **options}
        del options["--image"], options["--model-repo"]
    words += [f"{option}={value}".replace("\0", "") for option, value in options.items()]
    output = io.StringIO()
    settings = {"DOCKER_HOST": "unix:///nowhere", "PATH": os.devnull}
    typed = shlex.join(words[1:])[:500]
    codes: list[int] = []
    outcome = timed(
        seed, "command line", typed, lambda: codes.append(run_in_process(words, settings, output))
    )
    return Outcome(
        seed, outcome.kind, typed, codes[0], output.getvalue() if codes[0] else "", outcome.seconds
    )


Examination = Callable[[int, random.Random, Path, Config], Outcome]
KINDS: dict[str, tuple[int, Examination]] = {
    "checkpoint": (40, _checkpoint),
    "tokenizer": (12, _tokenizer),
    "config.ini": (14, _weights),
    "config.pbtxt": (14, _repository),
    "serving options": (17, _options),
    "command line": (3, _command_line),
}


def _short(files: dict[str, bytes]) -> str:
    return "; ".join(f"{name}: {content[:160]!r}" for name, content in files.items())


def main(seeds: list[str]) -> None:
    """Print what becomes of the changes of some seeds."""
    with scene() as found:
        repeat(seeds, lambda seed: examine(seed, found))


if __name__ == "__main__":
    main(sys.argv[1:])
