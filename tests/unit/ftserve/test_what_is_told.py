"""What a deployment and its front are told where a repository lacks something, and what a user is told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError
from ftserve import front_options, resolve, tokenizers
from ftserve.deployment import Options
from ftserve.front_options import Front
from ftserve.image_choice import ImageChoice
from ftserve.requirements import Needs
from ftserve.targets import compose
from ftserve.targets.kubernetes import Cluster
from tests.unit.ftserve.test_deployment import decide
from tests.unit.ftserve.test_front import OPTIONS, found, models  # noqa: F401  models is a fixture


def test_a_front_beside_a_model_without_weights_knows_what_it_was_told(models: Path, tmp_path: Path) -> None:  # noqa: F811
    shutil.rmtree(models / "fastertransformer/1/1-gpu")
    keys = tmp_path / "keys"
    keys.touch()
    wanted = replace(OPTIONS, context=77, keys=keys, model="mine")
    assert found(models, wanted) == Front(OPTIONS.image, "mine", context=77, keys=keys)


def test_a_front_of_a_repository_elsewhere_has_the_keys_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").touch()
    monkeypatch.chdir(tmp_path)
    front = front_options.find(replace(OPTIONS, keys=Path("keys")), "gpt", None, Needs())
    assert front == Front(OPTIONS.image, "gpt", keys=tmp_path / "keys")


def with_tokenizer(repository: Path, *, end: int) -> None:
    """Put a tokenizer of three tokens into a repository, which ends answers with the token `end`."""
    folder = repository / tokenizers.TEXTS
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2}, "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))


def test_who_starts_a_server_is_warned_of_a_tokenizer_that_says_otherwise(
    config: Config,
    models: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent() -> None:
        raise HostError("the Docker Engine does not answer")

    monkeypatch.setattr(daemon, "connect", silent)
    monkeypatch.setattr("ftbuild.models.proof.contradictions", lambda *args, **options: ())
    with_tokenizer(models, end=2)
    decided = resolve.to_write(config, ImageChoice(image="registry/x:1"), Options(models))
    assert [one for one in decided.warnings if "50257 tokens, the tokenizer 3" in one]
    file = models / "fastertransformer/config.pbtxt"
    other = models / "another"
    other.mkdir()
    shutil.move(file, other / "config.pbtxt")
    assert tokenizers.warnings(models, Needs()) == ()


def test_a_server_without_a_repository_cannot_be_composed() -> None:
    with pytest.raises(ConfigError, match="Compose mounts a folder") as caught:
        compose.render(decide(options=Options(None, (0,))))
    assert (caught.value.hint or "").startswith("--model-repo DIR")


@pytest.mark.parametrize(
    ("option", "what"),
    [("--pvc", "a claim"), ("--openai-secret", "a Secret"), ("--monitoring", "a namespace")],
)
def test_the_option_of_a_wrong_name_is_named(option: str, what: str) -> None:
    fields = {"--pvc": "claim", "--openai-secret": "secret", "--monitoring": "monitoring"}
    with pytest.raises(ConfigError) as caught:
        Cluster(**{fields[option]: "-a"})  # type: ignore[arg-type]
    assert caught.value.what == f"{option} '-a' is not the name of {what}"
