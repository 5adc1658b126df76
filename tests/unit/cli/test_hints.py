"""What messages tell to do next: commands and options that there are, and no way back to the same message."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftbuild.cli.command import Command
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.matrix import select
from ftbuild.models import (
    adoption,
    checkpoint,
    converters,
    repository,
)
from ftbuild.models.repository import RepositoryOptions
from ftbuild.sm import Sm, stand_ins
from ftserve import requirements
from ftserve.deployment import Options, decide
from ftserve.image_choice import Image
from tasks import namespace
from testing import foreign_weights, sources
from tests.unit.models.test_adoption import MODELS, template

ROOT = Path(__file__).parents[3]
IMAGE = Image("triton_with_ft:22.12-sm80", "22.12", (Sm(80),), "open")
# Of other programs, which hints name, too.
FOREIGN = {
    "docker", "nvidia-smi", "git", "gh", "python", "cosign", "systemctl", "apt-get", "df", "pipx", "kubectl",
}  # fmt: skip


def _walk(collection: object, prefix: str = "") -> Iterator[tuple[str, Command]]:
    for task in collection.tasks.values():  # type: ignore[attr-defined]
        yield f"{prefix}{task.name}", task
        if task.is_default and prefix:
            yield prefix.removesuffix("."), task
    for name, inner in collection.collections.items():  # type: ignore[attr-defined]
        yield from _walk(inner, f"{prefix}{name}.")


KNOWN = dict(_walk(namespace))
OPTIONS = {
    name: {
        flag
        for option in task.signature.options
        for flag in (option.flag, *([f"--no-{option.flag[2:]}"] if option.default is True else []))
    }
    for name, task in KNOWN.items()
}
ANY = {"--help"}.union(*OPTIONS.values())


def hints() -> Iterator[tuple[str, str]]:
    """File and line, and text, of every hint in the sources; X stands for what is filled in."""
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                if keyword.arg == "hint":
                    for text in _texts(keyword.value):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}", text


def _texts(node: ast.AST) -> Iterator[str]:
    """Every text that a value can be, as far as it stands in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from (a + b for a in _texts(node.left) for b in _texts(node.right))


def unknown(text: str) -> Iterator[str]:
    """Commands of ours in a text that there are not, and options that their command has not."""
    for command, rest in re.findall(r"\binvoke ([a-z][a-z0-9.-]*[a-z0-9])((?: (?!invoke)[^;,]*)?)", text):
        if command not in KNOWN:
            yield f"invoke {command}"
            continue
        # Up to the next word that is neither an option nor its value, options are this command's.
        for option in re.match(r"(?:\s+(--[a-z][a-z0-9-]*)(?:[ =](?!-)\S+)?)*", rest).group(0).split():  # type: ignore[union-attr]
            if option.startswith("--") and option not in OPTIONS[command]:
                yield f"invoke {command} {option}"
    if not set(re.findall(r"[a-z-]+", text)) & FOREIGN:
        yield from (one for one in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text) if one not in ANY)


def test_every_command_and_option_that_a_hint_names_is_there() -> None:
    found = list(hints())
    assert len(found) > 250
    assert [f"{place}: {wrong}" for place, text in found for wrong in unknown(text)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("invoke convrt", ["invoke convrt"]),
        ("invoke convert --gpu 2, then invoke serve", ["invoke convert --gpu", "--gpu"]),
        ("--gpus, or --gpuz", ["--gpuz"]),
        ("invoke model-repo --adopt X --out FOLDER makes one", []),
        ("invoke serve.k8s --image X", []),
    ],
)
def test_a_hint_that_names_what_is_not_there_is_found(text: str, wrong: list[str]) -> None:
    assert list(unknown(text)) == wrong


def adopting(hint: str | None) -> Path:
    """The folder of the adopting command in a hint, in the words of the command line."""
    words = shlex.split((hint or "").partition("invoke model-repo ")[2])
    assert words[0] == "--adopt", hint
    return Path(words[1])


def refused_by_serve(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        decide(Options(models=folder), requirements.read(folder, MODELS), IMAGE, "gpu")
    return refused.value


def served(place: Path, out: Path, **options: str) -> None:
    found = adoption.adopt(place, MODELS, options=options)
    made = repository.adopt(
        template(found.family), RepositoryOptions(found.family, found.folder, out, bare=True), found
    )
    needs = requirements.read(made.folder, MODELS)
    decide(Options(models=made.folder), needs, IMAGE, "gpu")


def other_path(folder: Path) -> None:
    """As FauxPilot writes it; nothing to do."""


def other_name(folder: Path) -> None:
    parameters = {"tensor_para_size": 1, "model_type": "GPT-J"}
    foreign_weights.config_pbtxt(folder / "fastertransformer", parameters, "codegen")


def right_place(folder: Path) -> None:
    foreign_weights.config_pbtxt(folder / "fastertransformer", {"tensor_para_size": 1, "model_type": "GPT-J"})


def called_gpt(folder: Path) -> None:
    foreign_weights.config_pbtxt(folder / "fastertransformer", {"tensor_para_size": 1, "model_type": "GPT"})


@pytest.mark.parametrize("change", [other_path, other_name, right_place, called_gpt])
def test_serve_leads_fauxpilots_users_to_a_repository_that_it_serves(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "with spaces")
    change(folder)
    served(adopting(refused_by_serve(folder).hint), tmp_path / "models")


@pytest.mark.parametrize("family", ["gpt", "gptj", "gptneox"])
def test_model_repo_leads_them_there_whatever_model_they_name(family: str, tmp_path: Path) -> None:
    weights = foreign_weights.fauxpilot(tmp_path / "m") / "fastertransformer/1"
    with pytest.raises(ConfigError) as refused:
        repository.make(template(family), RepositoryOptions(family, weights, tmp_path / "models", bare=True))
    assert "--model" not in (refused.value.hint or "")
    served(adopting(refused.value.hint), tmp_path / "models")


def test_each_cause_of_missing_weights_has_a_sentence_of_its_own(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m", gpus=2)
    model = folder / "fastertransformer"
    foreign_weights.config_pbtxt(model, {"tensor_para_size": 2, "model_type": "GPT-J"}, "codegen")
    said = refused_by_serve(folder).what
    assert said == (
        "fastertransformer: config.pbtxt has default_model_filename codegen, and there is no such folder, "
        "only 2-gpu"
    )
    inside = {
        "tensor_para_size": 2,
        "model_type": "GPT-J",
        "model_checkpoint_path": "/models/fastertransformer/2",
    }
    foreign_weights.config_pbtxt(model, inside)
    assert (
        "config.pbtxt has model_checkpoint_path /models/fastertransformer/2, and"
        in refused_by_serve(folder).what
    )
    foreign_weights.config_pbtxt(model, {"tensor_para_size": 4, "model_type": "GPT-J"})
    assert "has tensor_para_size 4, the weights are split for 2" in refused_by_serve(folder).what
    for file in (model / "1" / "2-gpu").iterdir():
        file.unlink()
    (model / "1" / "2-gpu").rmdir()
    assert "the weights are missing" in refused_by_serve(folder).what


@pytest.mark.parametrize(
    ("release", "able", "hint"),
    [
        ("22.03", ["22.07", "22.12", "26.06"], "--triton 22.12"),
        ("22.12", ["22.03", "26.06"], "--triton 22.03"),
        ("22.12", ["26.06"], "--triton 26.06 --base open-trixie"),
        ("26.06", ["22.12"], "--triton 22.12 --base open"),
        ("22.12", [], None),
    ],
)
def test_another_release_is_named_with_a_base_that_has_it(
    config: Config, release: str, able: list[str], hint: str | None
) -> None:
    assert converters.other_release(config, release, able) == hint
    if hint:
        words = dict(zip(hint.split()[::2], hint.split()[1::2], strict=True))
        # On a base that carries both releases, the hint needs no base.
        for base in [words["--base"]] if "--base" in words else ["ngc", "open"]:
            assert select(config, triton=[words["--triton"]], sms=["80"], bases=[base])


@pytest.mark.parametrize(("gpu", "fit"), [("87", ["86", "80"]), ("121", ["120"]), ("8.8", ["86", "80"])])
def test_an_sm_that_no_image_is_for_is_told_which_code_runs_on_it(
    config: Config, gpu: str, fit: list[str]
) -> None:
    with pytest.raises(ConfigError, match="is not in the matrix") as refused:
        select(config, sms=[gpu])
    assert re.findall(r"--sm (\d+)", refused.value.hint or "") == fit
    assert "same major version" in (refused.value.hint or "")
    for sm in fit:
        assert select(config, sms=[sm], triton=["26.06"], bases=["open-trixie"])


def test_an_sm_on_which_no_code_runs_is_told_which_there_are(config: Config) -> None:
    with pytest.raises(ConfigError) as refused:
        select(config, sms=["50"])
    assert (refused.value.hint or "").startswith("SMs: 60, 61, ")
    assert "Jetson" in (stand_ins(Sm(87), config.matrix.sms) or "")
    assert "Jetson" not in (stand_ins(Sm(121), config.matrix.sms) or "")


def test_converted_weights_that_are_taken_for_a_checkpoint_are_adopted(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m")
    for place in (folder, folder / "fastertransformer/1", folder / "fastertransformer/1/1-gpu"):
        with pytest.raises(ConfigError) as refused:
            checkpoint.format_of(place)
        served(adopting(refused.value.hint), tmp_path / f"models-{len(place.parts)}")
