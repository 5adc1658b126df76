"""Tables of the README and of the requirements, against the configuration that they describe."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from ftbuild import matrix, triton
from ftbuild.config import holes
from ftbuild.config.schema import Config
from ftbuild.gates.verify.gate import CHECKS
from ftbuild.plan import Revision
from ftbuild.planning import make_plan
from testing import ROOT, forked, sources

README = (ROOT / "README.md").read_text()
REQUIREMENTS = (ROOT / "docs" / "requirements.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()
REVISION = Revision("a" * 40, "2026-01-01T00:00:00+00:00")


def configuration(name: str) -> Any:
    return yaml.safe_load((ROOT / "buildcfg" / f"{name}.yaml").read_text())


def table(text: str, header: str) -> list[dict[str, str]]:
    """The table whose header begins so: one dictionary for each row."""
    lines = text[text.index(f"\n{header}") :].strip().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if "---" not in line]
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1 : end - 1]]


BASES = list(configuration("bases")["bases"])


@pytest.mark.parametrize("base", BASES)
def test_the_grid_has_the_cells_of_invoke_matrix(base: str) -> None:
    done = forked.invoke("matrix", "--base", base, "--format", "json")
    assert done.returncode == 0, done.stderr
    built: dict[str, list[int]] = {}
    for cell in json.loads(done.stdout)["cells"]:
        built.setdefault(cell["triton"], []).extend(cell["sms"])
    written = {
        row["Triton"]: [int(sm) for sm, known in row.items() if sm.isdigit() and known]
        for row in table(README, "| Triton | FasterTransformer |")
        if row["base"] == base
    }
    assert written == built


# The end of the LTS of Debian's releases (wiki.debian.org/LTS), from which the packages of a base come.
LTS_ENDS = {"bookworm": "2028-06-30", "trixie": "2030-06-30"}


def test_no_release_promises_fixes_that_debian_has_not_promised(config: Config) -> None:
    for name, release in config.matrix.releases.items():
        base = config.bases.bases[release.base]
        assert base.local
        assert release.support_end
        assert release.support_end <= LTS_ENDS[base.local.debian.suite], name


def test_the_support_period_is_told_as_the_matrix_has_it(config: Config) -> None:
    rows = table((ROOT / "SECURITY.md").read_text(), "| images of | fixes until |")
    written = {release: row["fixes until"] for row in rows for release in row["images of"].split(", ")}
    assert written == {name: release.support_end for name, release in config.matrix.releases.items()}


def patches_of(config: Config, release: str) -> tuple[str, ...]:
    """The patches of a release's images on its first base that compiles the server; none for the others."""
    bases = [
        name
        for name, base in config.bases.bases.items()
        if base.local and base.local.compiles_server and release in base.releases
    ]
    cells = matrix.select(config, triton=[release], sms=["90"], bases=bases[:1]) if bases else []
    return tuple(name for cell in cells for name in make_plan(config, cell, REVISION).patch_names())


def test_the_known_holes_of_each_server(config: Config) -> None:
    rows = table(SECURITY, "| server | Triton | base |")
    for row in rows:
        versions = config.holes.components["server"].versions
        assert versions[row["Triton"]] == row["server"]
        contents, patches = {triton.PURL: f"v{row['server']}"}, patches_of(config, row["Triton"])
        found = holes.known(config.holes, contents, local=row["base"] == "local", patches=patches).open()
        critical = [hole.id for hole in found if hole.critical]
        assert (row["critical (9.0 and above)"].split() or ["none"]) == (critical or ["none"])
        high = sum(7 <= hole.score < holes.CRITICAL for hole in found)
        assert (row["high (7.0)"], row["lower"]) == (str(high), str(len(found) - len(critical) - high))
    releases, bases = config.matrix.releases.values(), config.bases.bases.values()
    servers = {release.server for release in releases} | {base.server for base in bases if base.server}
    assert servers <= {row["server"] for row in rows}
    announced = {name: hole for name, hole in config.holes.holes.items() if name.startswith("CVE-")}
    bulletins = {hole.bulletin for hole in announced.values()}
    assert f"{len(announced)}, from {len(bulletins)} bulletins" in SECURITY


def test_every_hole_without_a_cve_is_explained(config: Config) -> None:
    rows = {row["hole"]: row for row in table(SECURITY, "| hole | what |")}
    ours = {name: hole for name, hole in config.holes.holes.items() if not name.startswith("CVE-")}
    assert set(rows) == set(ours)
    for name, hole in ours.items():
        assert rows[name]["closed by"].replace("`", "").split() == list(hole.cured_by)
        assert rows[name]["in"].split()[0] == (hole.introduced or "all")


def test_what_is_known_of_each_release(config: Config) -> None:
    written = table(REQUIREMENTS, "| Triton | base | server |")
    expected = []
    for name, base in config.bases.bases.items():
        for release in base.releases:
            described = config.matrix.releases[release]
            server = base.server or described.server
            found = holes.known(config.holes, {triton.PURL: f"v{server}"}, local=base.local is not None)
            ran = base.tried.get(release, {})
            expected.append(
                {
                    "Triton": release,
                    "base": name,
                    "server": server,
                    "its critical vulnerabilities": str(sum(hole.critical for hole in found.open())),
                    "CUDA": base.cuda or described.cuda,
                    "Python": base.python,
                    "SMs built and verified": " ".join(map(str, base.built.get(release, ()))) or "none",
                    "SMs run": "; ".join(f"{sm}: {gpu}" for sm, gpu in ran.items()) or "none",
                }
            )
    assert sorted(written, key=str) == sorted(expected, key=str)


def test_the_drivers_in_the_requirements() -> None:
    releases = configuration("matrix")["releases"]
    written = {
        (row["base"], release): (row["CUDA"].partition(";")[0], row["oldest driver"])
        for row in table(REQUIREMENTS, "| base | Triton | CUDA |")
        for release in row["Triton"].split(", ")
    }
    bases = configuration("bases")["bases"]
    assert written == {
        (name, release): tuple(base.get(key) or releases[release][key] for key in ("cuda", "driver"))
        for name, base in bases.items()
        for release in base["releases"]
    }


def test_every_sm_has_its_gpus() -> None:
    sms = {str(sm) for sm in configuration("matrix")["sms"]}
    assert {sm for row in table(README, "| SM | GPUs |") for sm in row["SM"].split(", ")} == sms
    assert {row["SM"] for row in table(REQUIREMENTS, "| SM | generation |")} == sms


def test_the_models_that_convert_takes(config: Config) -> None:
    ids = " ".join(config.models.families)
    assert f"`--model` takes {ids.replace(' ', ', ')}." in " ".join(REQUIREMENTS.split())


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
    read = {name for file in sources() for name in re.findall(r"\bFTBUILD_[A-Z_]+\b", file.read_text())}
    assert read
    assert read <= {row["variable"] for row in rows}
