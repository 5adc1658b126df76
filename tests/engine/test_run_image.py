"""What an image says of itself, and docs/run-an-image.md followed by its own words on the sample's images."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path
from types import ModuleType

import pytest

from ftbuild.plan import Plan
from testing import ROOT
from testing.serving import free_ports

PAGE = (ROOT / "docs" / "run-an-image.md").read_text()
PROMPT = (72, 11, 31)
# What the page asks with tokens that the miniature's vocabulary lacks.
PAGES_PROMPT = "15496, 11, 314"


def blocks() -> dict[str, list[str]]:
    """The indented commands of each section, by its title."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("    "):
            found.setdefault(section, []).append(line[4:])
    return found


def run(*arguments: str) -> str:
    return subprocess.run(
        ["docker", "run", "--rm", *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("product", ["runtime", "sdk"])
def test_an_image_without_a_command_says_what_it_is(built: Plan, product: str) -> None:
    said = run(built.tag(product))
    assert said.startswith(f"{built.about()}\n")
    assert "none is" in said
    assert ("This is the SDK image" in said) == (product == "sdk")


def test_an_image_lists_the_models_that_it_was_given(
    built: Plan, sample_models: Path, tmp_path: Path
) -> None:
    assert "    fastertransformer\n" in run(f"--volume={sample_models}:/models:ro", built.tag("runtime"))
    (tmp_path / "empty").mkdir(mode=0o755)
    said = run(f"--volume={tmp_path / 'empty'}:/models:ro", built.tag("runtime"))
    assert "no folder with a config.pbtxt" in said


def test_the_page_leads_from_pull_to_an_answer(built: Plan, reference: ModuleType, tmp_path: Path) -> None:
    """With other ports and names, a prompt that the miniature knows, no GPU and none of its limits.

    An engine in a container may not raise them.
    """
    weights = reference.make()
    reference.write(weights, "gpt", tmp_path / "gpt2")
    section = blocks()
    name, ports = f"ftbuild-test-{uuid.uuid4().hex[:8]}", free_ports()
    image = built.tag("runtime")
    lines = [
        f"IMAGE={image}",
        'docker run --rm "$IMAGE"',
        *(line for line in section["Pull and inspect"] if "inspect" in line),
        *section["A model repository"],
        *section["Serve it"],
        *(line for line in section["Ask it"] if not line.startswith("docker stop")),
    ]
    script = "\n".join(lines).replace('GPUS="--gpus all"', "GPUS=")
    script = re.sub(r"--ulimit \S+ ", "", script)
    script = script.replace(PAGES_PROMPT, ", ".join(map(str, PROMPT)))
    script = script.replace("--name ft ", f"--name {name} ").replace("inspect ft ", f"inspect {name} ")
    script = script.replace("docker logs ft", f"docker logs {name}")
    for inside, outside in ((8000, ports.http), (8001, ports.grpc), (8002, ports.metrics)):
        script = script.replace(f"127.0.0.1:{inside}", f"127.0.0.1:{outside}")
    (tmp_path / "models").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    try:
        done = subprocess.run(
            ["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        answer = json.loads(done.stdout[done.stdout.rindex('{"model_name"') :])
        (ids,) = (found["data"] for found in answer["outputs"] if found["name"] == "output_ids")
        assert ids == [*PROMPT, *reference.greedy(weights, PROMPT[-1], 8).tokens]
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=True, capture_output=True)
