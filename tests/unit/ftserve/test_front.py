"""What a front is told of the weights, and what is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.cli import demo
from ftbuild.config.holes import HolesConfig
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError
from ftserve import front_options, image_choice, requirements, resolve
from ftserve.deployment import Deployment, Options, Ports, decide
from ftserve.front_options import FrontOptions
from ftserve.image_choice import Image
from ftserve.targets import docker

OPTIONS = FrontOptions("triton_with_ft:openai")
INI = "[gpt]\nmax_pos_seq_len = 1024\nend_id = 50256\nstart_id = 50256\nvocab_size = 50257\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = demo.model_repository(tmp_path / "models, $1")
    (folder / front_options.TOKENIZER).mkdir(parents=True)
    weights = folder / "fastertransformer" / "1" / "1-gpu"
    weights.mkdir()
    (weights / "config.ini").write_text(INI)
    return folder


def found(models: Path, options: FrontOptions = OPTIONS) -> front_options.Front:
    return front_options.find(options, "triton-ft", models, requirements.read(models))


def test_the_weights_say_where_answers_and_contexts_end(models: Path) -> None:
    assert found(models) == front_options.Front("triton_with_ft:openai", "triton-ft", 50256, 1024)


def test_a_model_without_learned_positions_has_no_context(models: Path) -> None:
    file = models / "fastertransformer" / "1" / "1-gpu" / "config.ini"
    file.write_text(INI.replace("max_pos_seq_len = 1024\n", ""))
    assert found(models).context is None
    assert not [word for word in found(models).command("a") if word.startswith("--context")]


@pytest.mark.parametrize("key", ["max_pos_seq_len", "n_positions", "max_position_embeddings"])
def test_every_family_says_its_context(models: Path, key: str) -> None:
    file = models / "fastertransformer" / "1" / "1-gpu" / "config.ini"
    file.write_text(INI.replace("max_pos_seq_len = 1024", f"{key} = 2048"))
    assert "--context=2048" in found(models).command("a")


def test_a_context_can_be_chosen_and_no_larger_one_than_a_table_of_positions(models: Path) -> None:
    file = models / "fastertransformer" / "1" / "1-gpu" / "config.ini"
    assert found(models, replace(OPTIONS, context=512)).context == 512
    with pytest.raises(ConfigError, match="--openai-context 1025 is more than the 1024"):
        found(models, replace(OPTIONS, context=1025))
    file.write_text(INI.replace("max_pos_seq_len", "max_position_embeddings"))
    # Rotary positions are computed, as many as are asked for.
    assert found(models, replace(OPTIONS, context=4096)).context == 4096
    assert front_options.find(replace(OPTIONS, context=7), "gpt", None, requirements.Needs()).context == 7


@pytest.mark.parametrize(("model", "name"), [("m", "m"), ("m" * 200, "m" * 200), ("", "triton-ft")])
def test_a_model_has_any_name_that_clients_can_type(models: Path, model: str, name: str) -> None:
    assert found(models, replace(OPTIONS, model=model)).model == name


def test_a_repository_elsewhere_says_nothing() -> None:
    assert front_options.find(OPTIONS, "gpt", None, requirements.Needs()) == front_options.Front(
        OPTIONS.image, "gpt"
    )


PATCH = "server/0150-who-holds-a-state.patch"


@pytest.mark.parametrize(
    ("patches", "told"),
    [
        (frozenset({PATCH, "ft/1.patch"}), ["--cancel-calls=yes"]),
        # A server 2.70 from before the patch, and the servers that it is not for.
        (frozenset({"ft/1.patch"}), ["--cancel-calls=no"]),
        (frozenset(), ["--cancel-calls=no"]),
        (None, []),
    ],
)
def test_calls_are_cancelled_where_the_server_was_compiled_with_the_patch(
    config: Config, patches: frozenset[str] | None, told: list[str]
) -> None:
    image = Image("x", "26.06", server="2.70.0", patches=patches)
    cancels = front_options.survives_cancelling(image, config.holes)
    command = front_options.Front(OPTIONS.image, "gpt", cancels=cancels).command("a")
    assert [word for word in command if word.startswith("--cancel")] == told


def test_a_deployment_tells_its_front_what_the_servers_image_says(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image("x", "26.06", server="2.70.0", patches=frozenset({PATCH}))
    monkeypatch.setattr(daemon, "connect", lambda: object())
    monkeypatch.setattr(image_choice, "find", lambda *args, **options: (image, None))
    decided = resolve.to_write(config, image_choice.ImageChoice(), Options(None, (0,), front=OPTIONS))
    assert decided.front
    assert "--cancel-calls=yes" in decided.front.command("a")


def test_a_hole_that_is_not_known_decides_nothing() -> None:
    assert front_options.survives_cancelling(Image("x", patches=frozenset({PATCH})), HolesConfig()) is None


def test_without_a_tokenizer_there_is_no_front(models: Path) -> None:
    (models / front_options.TOKENIZER).rmdir()
    with pytest.raises(ConfigError, match="needs a tokenizer") as refused:
        found(models)
    assert "invoke model-repo --tokenizer" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (replace(OPTIONS, model="a\nb"), "is not a name"),
        (replace(OPTIONS, model="x" * 201), "is not a name"),
        (replace(OPTIONS, keys=Path("/nowhere/keys")), "API keys does not exist"),
        (replace(OPTIONS, image="Not An Image"), "image"),
    ],
)
def test_a_wrong_option_is_refused(models: Path, options: FrontOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        found(models, options)


def test_the_docker_lines_start_the_server_and_then_its_front(models: Path, tmp_path: Path) -> None:
    ports = Ports(openai=9003)
    needs = requirements.read(models)
    wanted: Deployment = decide(Options(models, ports=ports), needs, Image("triton_with_ft:22.12"), "cpu")
    server, beside = docker.command_line(replace(wanted, front=found(models))).splitlines()
    assert "--publish=127.0.0.1:9003:8003" in server
    assert "--network=container:triton-ft" in beside
    assert "--cap-drop=ALL" in beside
    assert f'"source={models}/preprocessing/1/tokenizer"' in beside


def test_the_front_needs_a_port_of_its_own() -> None:
    with pytest.raises(ConfigError, match="different ports"):
        Ports(openai=8000)


@pytest.mark.parametrize("first", ["embedding", "checking"])
@pytest.mark.parametrize(("said", "known"), [({"longest": "512"}, 512), ({}, None), ({"longest": "x"}, None)])
def test_a_repository_of_vectors_is_asked_through_its_ensemble(
    models: Path, first: str, said: dict[str, str], known: int | None
) -> None:
    (models / front_options.TOKENIZER).rename(models / "tokenizer")
    (models / first / "1" / "tokenizer").mkdir(parents=True)
    parameters = [
        f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}' for key, value in said.items()
    ]
    (models / first / "config.pbtxt").write_text("\n".join(['backend: "python"', *parameters]))
    made = found(models)
    assert (made.embeds, made.end_id, made.context) == (True, None, known)
    assert made.tokenizer == f"{first}/1/tokenizer"
    assert "--triton-model=ensemble" in made.command("127.0.0.1")


def test_pages_that_may_ask_are_named_by_their_origins(models: Path) -> None:
    wanted = replace(OPTIONS, origins=("https://chat.example.com/", "http://a:8080"))
    command = found(models, wanted).command("a")
    assert command[-2:] == ["--origin=https://chat.example.com", "--origin=http://a:8080"]
    assert not [word for word in found(models).command("a") if word.startswith("--origin")]
    with pytest.raises(ConfigError, match="--openai-origin 'chat' is not an origin"):
        found(models, replace(OPTIONS, origins=("chat",)))
