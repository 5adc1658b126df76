"""What the README shows of a build, against the words of the program that says it."""

from __future__ import annotations

import re
from pathlib import Path

from ftbuild import matrix, pipeline
from ftbuild.build import bake
from ftbuild.cli import demo
from ftbuild.config.schema import Config
from ftbuild.models.config_pbtxt import MODEL
from ftbuild.plan import Revision
from ftbuild.planning import make_plan
from testing import ROOT

README = (ROOT / "README.md").read_text()
KEY = re.compile(r"\b[0-9a-f]{12}\b")
REVISION = Revision("a" * 40, "2026-01-01T00:00:00+00:00")


def shown(command: str) -> list[str]:
    """The lines of code below a command, without their indentation, keys masked."""
    after = README[README.index(f"\n    {command}\n\n") :].split("\n\n")[1]
    return [KEY.sub("<key>", line.removeprefix("    ")) for line in after.splitlines()]


def test_the_end_of_a_build_is_as_it_is_said_today(config: Config, tmp_path: Path) -> None:
    (cell,) = matrix.select(config, cells=["22.12-sm90"])
    plan = make_plan(config, cell, REVISION)
    folder = tmp_path / ".ftbuild" / cell.id / plan.key
    folder.mkdir(parents=True)
    for name in (bake.LOG, bake.SCRIPT):
        (folder / name).touch()
    sizes = {"runtime": 1_540_000_000, "sdk": 6_080_000_000}
    outcome = pipeline.Outcome(plan, "built", 39 * 60 + 56, images=sizes, folder=folder)
    said = pipeline.summary([outcome]).replace(f"{tmp_path}/", "").splitlines()
    lines = shown("invoke build --sm 90 --triton 22.12")
    begin = next(number for number, line in enumerate(lines) if line.startswith("22.12-sm90  "))
    assert lines[begin:-1] == [KEY.sub("<key>", line) for line in said]
    assert lines[-1] == "next: invoke smoke --triton 22.12 --sm 90, on a machine with such a GPU"
    assert lines[begin - 1] == (
        "[22.12-sm90] built triton_with_ft:22.12-sm90-<key> and triton_with_ft:22.12-sm90-<key>-sdk"
    )


def test_an_image_says_what_the_readme_shows(config: Config) -> None:
    (cell,) = matrix.select(config, cells=["22.12-sm90"])
    script = (ROOT / "dockerfiles" / "steps" / "ftbuild-image").read_text()
    words = [line for line in shown("docker run --rm triton_with_ft:22.12-sm90") if line != "..."]
    assert " ".join(words).startswith(make_plan(config, cell, REVISION).about())
    assert "Serve it:" in words
    assert "Serve it:" in script
    assert "--shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864" in " ".join(words)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 170


def test_the_demo_answers_as_the_readme_shows() -> None:
    lines = shown("./bootstrap demo")
    asked, answered = list(demo.PROMPT), [*demo.PROMPT, *demo.ANSWER]
    assert f"server ready, model {MODEL}: {asked} -> {answered}" in lines
    assert re.fullmatch(r"demo finished in \d+ s: triton_with_ft_sample:22.12-sm80-<key>", lines[-1])
