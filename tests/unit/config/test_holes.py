"""Known holes: which of them a version on a base has, and what cannot be said in holes.yaml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild import matrix, triton
from ftbuild.config import holes, loader
from ftbuild.config.holes import HolesConfig, Statement
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.plan import Revision
from ftbuild.planning import make_plan

ADVICE = "lock the door"
ABSENT = {"bases": "local", "justification": "component_not_present", "reason": "no such plugin"}


def described(*holes_: dict[str, Any], purl: str = triton.PURL, **versions: str) -> HolesConfig:
    """Holes of one component, CVE-2000-0001 and so on."""
    component = {"name": "Server", "purl": purl, "versions": versions, "source": "a test", "advice": ADVICE}
    bulletin = {"name": "Bulletin 1", "date": "2026-01-31", "url": "https://example.invalid/1"}
    facts = {"component": "server", "bulletin": "one", "score": 5.0, "what": "it breaks"}
    return HolesConfig.model_validate(
        {
            "known": "2026-02-01",
            "bulletins": {"one": bulletin},
            "components": {"server": component},
            "holes": {f"CVE-2000-000{number}": {**facts, **hole} for number, hole in enumerate(holes_, 1)},
        }
    )


def stated(config: HolesConfig, version: str, *, local: bool = True, purl: str = triton.PURL) -> Statement:
    (found,) = holes.known(config, {purl: version}, local=local).statements
    return found


def patched(config: HolesConfig, version: str, *patches: str) -> Statement:
    (found,) = holes.known(config, {triton.PURL: version}, local=True, patches=patches).statements
    return found


def test_a_patch_closes_a_hole_of_the_images_that_take_it() -> None:
    config = described({"introduced": "2.1", "cured_by": ["server/0100-one.patch", "server/0200-two.patch"]})
    assert patched(config, "v2.2").status == "affected"
    assert patched(config, "v2.2", "server/0101-other.patch").status == "affected"
    found = patched(config, "v2.2", "ft/0010-x.patch", "server/0200-two.patch")
    assert (found.status, found.text) == ("fixed", "compiled with server/0200-two.patch")
    assert patched(config, "v2.0", "server/0200-two.patch").status == "not_affected"


@pytest.mark.parametrize(
    ("version", "status"),
    [("v2.0", "not_affected"), ("v2.1", "affected"), ("v2.2.9", "affected"), ("v2.3", "fixed")],
)
def test_a_hole_is_there_from_its_first_version_up_to_the_fixed_one(version: str, status: str) -> None:
    written = {"24.01": "2.1", "24.03": "2.3"}
    found = stated(described({"introduced": "24.01", "fixed": "24.03"}, **written), version)
    assert found.status == status
    assert found.justification == ("vulnerable_code_not_present" if status == "not_affected" else None)


def test_what_to_do_names_the_advice_and_the_version_with_the_fix() -> None:
    found = stated(described({"fixed": "24.03"}, **{"24.03": "2.3"}), "v2.2")
    assert found.text == "lock the door; Server 24.03 (2.3) has the fix"
    assert stated(described({}), "v2.2").text == "lock the door; no version has a fix"
    own = described({"advice": "run"})
    assert stated(own, "v2.2").text.startswith("run; ")


def test_a_statement_says_what_was_read_and_whether_the_code_was_looked_at() -> None:
    assert stated(described({}), "v1").notes == "Bulletin 1 of 2026-01-31; not looked for in the code"
    assert stated(described({"checked": "line 7"}), "v1").notes.endswith("; line 7")


@pytest.mark.parametrize("bases", ["local", "registry", "any"])
def test_a_hole_can_be_absent_from_some_bases(bases: str) -> None:
    config = described({"not_affected": [{**ABSENT, "bases": bases}]})
    for local in (True, False):
        exempt = bases in ("any", "local" if local else "registry")
        found = stated(config, "v1", local=local)
        assert found.status == ("not_affected" if exempt else "affected")
        assert (found.justification, found.text) == (
            ("component_not_present", "no such plugin")
            if exempt
            else (None, "lock the door; no version has a fix")
        )


def test_a_version_that_cannot_be_compared_is_affected() -> None:
    config = described({"introduced": "2.1", "fixed": "2.3"})
    assert stated(config, "main").status == "affected"


def test_what_an_image_lacks_has_no_holes() -> None:
    assert holes.known(described({}), {"pkg:pypi/other": "1"}, local=True).statements == ()


def test_the_worst_hole_comes_first() -> None:
    config = described({"score": 5.0}, {"score": 9.0}, {"score": 8.9}, {"score": 5.0})
    found = holes.known(config, {triton.PURL: "v1"}, local=True)
    assert [hole.id[-1] for hole in found.statements] == ["2", "3", "1", "4"]
    assert [hole.critical for hole in found.statements] == [True, False, False, False]


def test_the_servers_of_our_images_have_the_holes_of_their_versions(config: Config) -> None:
    def found(version: str, *, local: bool) -> dict[str, Statement]:
        contents = {triton.PURL: f"v{version}"}
        return {each.id: each for each in holes.known(config.holes, contents, local=local).statements}

    old, newer = found("2.29.0", local=False), found("2.51.0", local=True)
    assert {old[name].status for name in ("CVE-2024-0087", "CVE-2025-23310")} == {"affected"}
    assert newer["CVE-2024-0087"].status == "fixed"
    assert newer["CVE-2025-23310"].status == "affected"
    assert (old["CVE-2025-23268"].status, newer["CVE-2025-23268"].status) == ("affected", "not_affected")
    without = {name for name, each in found("2.70.0", local=True).items() if each.status == "affected"}
    assert without == {name for name, hole in config.holes.holes.items() if hole.cured_by}


def test_a_server_compiled_here_has_no_known_hole_with_its_patches_and_some_without(config: Config) -> None:
    (cell,) = matrix.select(config, triton=["26.06"], sms=["90"], bases=["open-trixie"])
    plan = make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))
    assert plan.holes.open() == ()
    assert {each.status for each in plan.holes.statements} == {"fixed"}
    contents = {triton.PURL: f"v{plan.server}"}
    unpatched = holes.known(config.holes, contents, local=True).open()
    assert {"FTBUILD-2026-1", "FTBUILD-2026-2"} <= {each.id for each in unpatched}


def test_a_hole_without_a_cve_says_what_it_was_rated_by(config: Config) -> None:
    ours = {name: hole for name, hole in config.holes.holes.items() if not name.startswith("CVE-")}
    assert ours
    for hole in ours.values():
        assert re.match(r"AV:[NLP]/AC:[LH]/PR:N/UI:N/S:U/C:[NLH]/I:[NLH]/A:[NLH]; ", hole.checked or "")


def refused(folder: Path, **changes: dict[str, Any]) -> str:
    """Change the first hole of the real file, or what is named by another key, and return the complaint."""
    file = folder / holes.FILE
    data = yaml.safe_load(file.read_text())
    first = next(iter(data["holes"]))
    data["holes"][first].update(changes.pop("hole", {}))
    data["components"]["server"].update(changes.pop("component", {}))
    assert not changes
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(ConfigError) as error:
        loader.load(folder)
    assert holes.FILE in str(error.value)
    return str(error.value)


def test_a_contradiction_in_the_file_is_refused_with_its_place(config_folder: Path) -> None:
    assert "names the bulletin 'none'" in refused(config_folder, hole={"bulletin": "none"})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hole": {"component": "client"}}, "'client', which is not described"),
        ({"hole": {"fixed": "99.01"}}, "version 99.01 of server, which `versions` lacks"),
        ({"hole": {"score": 10.1}}, "score"),
        (
            {"hole": {"cured_by": ["server/0999-none.patch"]}},
            "0999-none.patch, which patches.yaml does not list",
        ),
        ({"hole": {"cured_by": ["../0100-x.patch"]}}, "cured_by"),
        ({"hole": {"not_affected": [{**ABSENT, "justification": "because"}]}}, "justification"),
        ({"component": {"purl": "pkg:pypi/torch@1"}}, "package URL without a version"),
        ({"component": {"purl": "torch"}}, "a package URL such as"),
        ({"component": {"purl": "pkg:deb/debian/openssl"}}, "leave out fixed"),
    ],
)
def test_what_cannot_be_said_is_refused(config_folder: Path, change: Any, complaint: str) -> None:
    assert complaint in refused(config_folder, **change)


def test_a_folder_without_the_file_knows_of_no_holes(config_folder: Path) -> None:
    (config_folder / holes.FILE).unlink()
    assert loader.load(config_folder).holes == HolesConfig()


def test_without_a_day_nothing_is_known_since_long_ago() -> None:
    assert HolesConfig().known == holes.Known().day == "1970-01-01"


def test_a_score_is_one_of_cvss() -> None:
    for score in (0, 10):
        assert described({"score": score}).holes["CVE-2000-0001"].score == score
    for wrong in (-0.1, 10.1):
        with pytest.raises(ValueError, match="score"):
            described({"score": wrong})
