"""Tables of the README and of the requirements, against the configuration that they describe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from ftbuild.gates.verify.gate import CHECKS
from testing import ROOT

README = (ROOT / "README.md").read_text()
REQUIREMENTS = (ROOT / "docs" / "requirements.md").read_text()
# Families by the names that the README has for them.
FAMILIES = {"GPT-2": "gpt", "GPT-J": "gptj", "GPT-NeoX": "gptneox", "T5": "t5", "CodeGen": "codegen"}
JAX = "original JAX checkpoint only"


def configuration(name: str) -> Any:
    return yaml.safe_load((ROOT / "buildcfg" / f"{name}.yaml").read_text())


def table(text: str, header: str) -> list[dict[str, str]]:
    """The table whose header begins so: one dictionary for each row."""
    lines = text[text.index(f"\n{header}") :].strip().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if "---" not in line]
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1 : end - 1]]


@pytest.fixture(scope="module", params=["open", "ngc"])
def base(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_sms_of_each_release_are_those_of_invoke_matrix(base: str) -> None:
    argv = [sys.executable, "-m", "invoke", "matrix", "--base", base, "--format", "json"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    built: dict[str, list[int]] = {}
    for cell in json.loads(done.stdout)["cells"]:
        built.setdefault(cell["triton"], []).extend(cell["sms"])
    written = {
        row["Triton"]: [int(sm) for sm in row[f"SMs on `{base}"].split()]
        for row in table(README, "| Triton | FasterTransformer |")
    }
    assert written == built


def test_versions_and_drivers_of_each_release() -> None:
    releases, sources = configuration("matrix")["releases"], configuration("sources")["releases"]
    written = {
        row["Triton"]: (row["FasterTransformer"], row["driver on `ngc"])
        for row in table(README, "| Triton | FasterTransformer |")
    }
    assert written == {name: (sources[name]["ft"]["version"], releases[name]["driver"]) for name in releases}


def test_the_drivers_in_the_requirements() -> None:
    releases, bases = configuration("matrix")["releases"], configuration("bases")["bases"]
    written = {
        (row["base"], row["Triton"]): (row["CUDA"], row["oldest driver"])
        for row in table(REQUIREMENTS, "| base | Triton | CUDA |")
    }
    opened = bases["open"]
    ours = {
        ("ngc", name): (release["cuda"], release["driver"])
        for name, release in releases.items()
        if name in bases["ngc"]["releases"]
    }
    ours["open", ", ".join(opened["releases"])] = (
        f"{opened['cuda']}; the server brings 12.1",
        opened["driver"],
    )
    assert written == ours
    assert f"driver {opened['driver']} or later" in README
    assert f"server {opened['server']} on CUDA {opened['cuda']}" in README


def test_every_sm_has_its_gpus() -> None:
    sms = {str(sm) for sm in configuration("matrix")["sms"]}
    assert {row["SM"] for row in table(README, "| SM | GPUs |")} == sms
    assert {row["SM"] for row in table(REQUIREMENTS, "| SM | generation |")} == sms


def test_the_models_of_each_release_are_those_with_a_converter() -> None:
    sources, families = configuration("sources")["releases"], configuration("models")["families"]
    written = table(README, "| Triton | GPT-2 |")
    assert [row["Triton"] for row in written] == list(sources)
    for row in written:
        version = sources[row["Triton"]]["ft"]["version"]
        for name, family in FAMILIES.items():
            formats = {
                converter.get("format", "huggingface")
                for converter in families[family]["converters"]
                if version in SpecifierSet(converter["ft"])
            }
            expected = "yes" if "huggingface" in formats else JAX if formats else "no"
            assert row[name] == expected, (row["Triton"], name)
    assert set(FAMILIES.values()) == set(families)


def test_the_checks_of_verify() -> None:
    rows = table((ROOT / "docs" / "verify.md").read_text(), "| check | passes if |")
    images = {("runtime", "sdk"): "both", ("runtime",): "runtime", ("sdk",): "SDK"}
    assert [(row["check"], row["image"]) for row in rows] == [
        (name, images[tuple(products)]) for name, products, _ in CHECKS
    ]


def test_the_tests_of_smoke() -> None:
    rows = table((ROOT / "docs" / "smoke.md").read_text(), "| test | passes if |")
    suite = (ROOT / "ftbuild" / "gates" / "smoke" / "suite").glob("test_*.py")
    names = {name for file in suite for name in re.findall(r"^def test_(\w+)", file.read_text(), re.M)}
    assert {row["test"].replace(" ", "_") for row in rows} == names


def test_every_variable_is_in_the_configuration() -> None:
    rows = table((ROOT / "docs" / "configuration.md").read_text(), "| variable | meaning |")
    read = {
        name
        for file in (ROOT / "ftbuild").rglob("*.py")
        for name in re.findall(r"\bFTBUILD_[A-Z_]+\b", file.read_text())
    }
    assert read
    assert read <= {row["variable"] for row in rows}
