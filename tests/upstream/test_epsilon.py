"""The epsilon of the norms: FasterTransformer reads it of every family from config.ini."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.client import golden
from ftbuild.config.schema import Config

from .conversions import TorchWorker

# Section and key of config.ini, by the family whose code serves it (models.yaml, served_as).
KEYS = {
    "gpt": [("gpt", "layernorm_eps")],
    "gptj": [("gptj", "layernorm_eps")],
    "gptneox": [("gptneox", "layernorm_eps")],
    "t5": [("encoder", "layer_norm_epsilon"), ("decoder", "layer_norm_epsilon")],
    "t5-encoder": [("encoder", "layer_norm_epsilon")],
    "bert": [("bert", "layer_norm_eps")],
}
# The folders of that code, below src/fastertransformer.
CODE = {
    "gpt": ("multi_gpu_gpt", "multi_gpu_gpt"),
    "gptj": ("gptj", "gptj"),
    "gptneox": ("gptneox", "gptneox"),
    "t5": ("t5", "t5"),
    "t5-encoder": ("t5-encoder", "t5"),
    "bert": ("bert", "bert"),
}
RELEASES = ("22.03", "22.07", "22.12")


def code(folder: Path) -> str:
    """All host code of a folder."""
    return "\n".join(file.read_text() for file in sorted(folder.glob("*.cc")) + sorted(folder.glob("*.h")))


@pytest.mark.parametrize("release", RELEASES)
def test_every_served_family_reads_its_epsilon(
    config: Config, tree: Callable[[str], Path], release: str
) -> None:
    source = tree(release) / "src/fastertransformer"
    served = config.models.served(config.version(release, "ft"))
    assert served
    for family in served:
        code_of = config.models.template(family)
        loaded, computed = CODE[code_of]
        text = code(source / "triton_backend" / loaded)
        for section, key in KEYS[code_of]:
            assert f'GetFloat("{section}", "{key}", 1e-' in text, (family, section, key)
        constant = re.search(
            r"const(expr)?\b[^;\n]* layer_?norm_eps_ *= *1e", code(source / "models" / computed)
        )
        assert constant is None, (family, constant)


@pytest.mark.parametrize("release", RELEASES)
def test_no_norm_of_a_served_family_takes_the_default(
    config: Config, tree: Callable[[str], Path], release: str
) -> None:
    """In 5.0 the launchers of norms have a default, for the models that Triton does not serve."""
    source = tree(release) / "src/fastertransformer/models"
    served = config.models.served(config.version(release, "ft"))
    for folder in {CODE[config.models.template(family)][1] for family in served}:
        for file in sorted((source / folder).glob("*.cc")):
            for call in re.finditer(r"invoke\w*Layer[Nn]orm\w*\(([^;]*)\);", file.read_text()):
                assert re.search(r"layernorm_eps", call[1]), f"{file}: {call[0]}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "gpt-initialised",
        "gptj-initialised",
        "codegen-initialised",
        "gptneox-initialised",
        "t5-initialised",
        "bert-small-norms",
    ],
)
def test_the_smoke_test_has_a_model_that_the_wrong_epsilon_changes(
    config: Config, worker: TorchWorker, tmp_path: Path, name: str
) -> None:
    """The reference takes a checkpoint only if transformers answers otherwise with FasterTransformer's."""
    assert name in config.models.extra
    (tmp_path / "cases.json").write_text(golden.questions())
    python = os.environ.get("FTBUILD_TORCH_PYTHON", sys.executable)
    script = config.path(config.models.reference)
    subprocess.run(
        [python, script, name, tmp_path / "checkpoint", tmp_path / "cases.json", tmp_path / "answers.json"],
        check=True,
    )
    assert json.loads((tmp_path / "answers.json").read_text())["cases"]["eight"]
