"""Requirements by hash: real pip, with package indexes of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, PinError
from ftbuild.sources import downloads, requirements, wheels
from ftbuild.sources.requirements import Requirement
from testing import ROOT
from testing import web as server
from testing.packages import wheel
from testing.web import Web

GOOD = wheel("demo", "1.0")
EVIL = wheel("demo", "1.0", note="not what was pinned")
[(WHEEL, BYTES)] = GOOD.items()
SHA256 = hashlib.sha256(BYTES).hexdigest()
PINNED = Requirement("demo", "1.0", WHEEL, SHA256)


def quiet(_: str) -> None:
    pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Start a server, and let pip know no other index than those that a test names."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with server.serving() as started:
        yield started


@pytest.fixture
def options(config: Config) -> tuple[str, ...]:
    return requirements.pip_options(config.bases.bases["open"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_indexes_with_the_same_version_the_one_with_the_pinned_bytes_counts(
    web: Web,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    order: tuple[int, int],
) -> None:
    urls = [web.add_index("good", GOOD), web.add_index("evil", EVIL)]
    monkeypatch.setenv("PIP_INDEX_URL", urls[order[0]])
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", urls[order[1]])
    wheels.fetch([PINNED], options, tmp_path, report=quiet)
    assert downloads.place(SHA256, tmp_path).read_bytes() == BYTES
    seen = len(web.seen)
    wheels.fetch([PINNED], options, tmp_path, report=quiet)
    assert len(web.seen) == seen


@pytest.mark.parametrize("hashed", [True, False])
def test_other_bytes_of_the_pinned_version_are_refused(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], hashed: bool
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", web.add_index("evil", EVIL, hashed=hashed))
    with pytest.raises(PinError) as refused:
        wheels.fetch([PINNED], options, tmp_path, report=quiet)
    assert "demo==1.0" in str(refused.value)
    assert SHA256 in str(refused.value)
    assert "PIP_INDEX_URL" in str(refused.value)
    assert not downloads.held(SHA256, tmp_path)


def test_an_index_may_ask_for_a_login(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    index, web.login = web.add_index("good", GOOD), "user:secret"
    monkeypatch.setenv("PIP_INDEX_URL", index)
    with pytest.raises(PinError):
        wheels.fetch([PINNED], options, tmp_path, report=quiet)
    monkeypatch.setenv("PIP_INDEX_URL", index.replace("http://", "http://user:secret@"))
    wheels.fetch([PINNED], options, tmp_path, report=quiet)
    assert downloads.held(SHA256, tmp_path)


@pytest.fixture
def small(web: Web, config_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let two bases install one package for their Python; return the folder of the requirements files."""
    folder = config_folder / "requirements"
    folder.mkdir()
    (folder / "none.txt").write_text("")
    for name in ("ngc", "open"):
        (folder / f"{name}.txt").write_text(
            "# Why this file.\n# Two lines.\nBinary==2\n# needed by us\ndemo==1.0\n"
        )
    bases = yaml.safe_load((config_folder / "bases.yaml").read_text().replace("../docker", f"{ROOT}/docker"))
    bases["bases"] = {name: bases["bases"][name] for name in ("ngc", "open")}
    del bases["not_built"]  # it names a base that is left out
    for name, base in bases["bases"].items():
        none = str(folder / "none.txt")
        base["requirements"] = {
            **dict.fromkeys(base["requirements"], none),
            "sdk": str(folder / f"{name}.txt"),
        }
        base.pop("openai", None)
        if "local" in base:
            base["local"]["requirements"] = none
    (config_folder / "bases.yaml").write_text(yaml.safe_dump(bases))
    matrix = yaml.safe_load((config_folder / "matrix.yaml").read_text())
    releases = matrix["releases"].items()
    matrix["releases"] = {name: facts for name, facts in releases if facts["base"] in bases["bases"]}
    (config_folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    patches = config_folder / "patches.yaml"
    patches.write_text(patches.read_text().replace("../patches", f"{ROOT}/patches"))
    tags = (
        "cp38-cp38-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_34_x86_64",
        "py3-none-any",
    )
    offered = {name: content for tag in tags for name, content in wheel("binary", "2", tag).items()}
    monkeypatch.setenv("PIP_INDEX_URL", web.add_index("index", {**GOOD, **offered, **wheel("demo", "1.1")}))
    return folder


def test_locking_finds_the_wheel_of_each_python_and_keeps_versions_and_comments(
    small: Path, config_folder: Path
) -> None:
    config = loader.load(config_folder)
    changed = wheels.lock(config, report=quiet)
    assert [file.name for file in changed] == ["ngc.txt", "open.txt"]
    text = (small / "open.txt").read_text()
    assert text.startswith(
        "# Why this file.\n# Two lines.\n# binary-2-cp311-cp311-manylinux_2_34_x86_64.whl\nBinary==2 \\\n"
    )
    assert text.endswith(f"# needed by us\n# {WHEEL}\ndemo==1.0 \\\n    --hash=sha256:{SHA256}\n")
    assert "# binary-2-cp38-cp38-manylinux" in (small / "ngc.txt").read_text()
    assert wheels.lock(config, report=quiet) == []
    wheels.check(config, report=quiet)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {}


@pytest.fixture
def locked(small: Path, config_folder: Path, texts: dict[str, str]) -> Path:
    """As `small`, with locked files: pip, which takes seconds, is asked for the first test alone."""
    if not texts:
        changed = wheels.lock(loader.load(config_folder), report=quiet)
        texts.update({file.name: file.read_text() for file in changed})
    for name, text in texts.items():
        (small / name).write_text(text)
    return small


def test_moving_forward_finds_every_wheel_anew_and_names_newer_versions(
    locked: Path, config_folder: Path, web: Web
) -> None:
    config = loader.load(config_folder)
    rebuilt = wheel("binary", "2", "cp311-cp311-manylinux_2_35_x86_64")
    [name] = rebuilt
    old = wheel("binary", "2", "cp38-cp38-manylinux_2_17_x86_64.manylinux2014_x86_64")
    web.add_index("index", {**GOOD, **rebuilt, **old, **wheel("demo", "1.1")})
    assert wheels.lock(config, report=quiet) == []
    said: list[str] = []
    assert [file.name for file in wheels.lock(config, upgrade=True, report=said.append)] == ["open.txt"]
    assert "open.txt: binary-2-cp311-cp311-manylinux_2_34_x86_64.whl -> " + name in said
    assert name in (locked / "open.txt").read_text()
    # A version is a decision, and stands in a file that people write.
    assert f"# {WHEEL}\ndemo==1.0" in (locked / "open.txt").read_text()
    assert [line for line in said if "1.1" in line] == [
        f"{base}.txt: versions stay as they are written there; the index has demo 1.1"
        for base in ("ngc", "open")
    ]
    said.clear()
    assert wheels.lock(config, upgrade=True, report=said.append) == []
    assert not [line for line in said if "->" in line]


@pytest.mark.parametrize("turned", [False, True])
def test_a_newer_version_is_one_that_every_base_of_a_file_can_have(
    small: Path, config_folder: Path, web: Web, turned: bool
) -> None:
    """Whichever base is asked first."""
    file = small / "ngc.txt"
    file.write_text("demo==1.0\n")
    listed = config_folder / "bases.yaml"
    read = yaml.safe_load(listed.read_text().replace(str(small / "open.txt"), str(file)))
    read["bases"] = dict(sorted(read["bases"].items(), reverse=turned))
    listed.write_text(yaml.safe_dump(read, sort_keys=False))
    newer = wheel("demo", "3", "cp311-cp311-manylinux_2_17_x86_64")
    for_all = {**wheel("demo", "2"), **GOOD}
    web.add_index("index", {**for_all, **newer})
    said: list[str] = []
    wheels.lock(loader.load(config_folder), upgrade=True, report=said.append)
    (line,) = (line for line in said if "versions stay" in line)
    assert line.endswith("the index has demo 2")


def test_a_base_with_another_python_gets_its_wheels_by_moving_forward(
    locked: Path, config_folder: Path
) -> None:
    before = (locked / "ngc.txt").read_text()
    file = config_folder / "bases.yaml"
    bases = yaml.safe_load(file.read_text())
    bases["bases"]["ngc"] |= {"python": "3.11", "manylinux": "2.36"}
    file.write_text(yaml.safe_dump(bases))
    wheels.lock(loader.load(config_folder), upgrade=True, report=quiet)
    assert (locked / "ngc.txt").read_text() == (locked / "open.txt").read_text() != before


def test_a_plan_needs_the_hash_of_every_requirement(small: Path, config_folder: Path) -> None:
    selection = Selection(config_folder, ["22.12"], ["80"])
    with pytest.raises(PinError, match="Binary==2 is not locked") as refused:
        plans(loader.load(config_folder), selection)
    assert "open.txt" in str(refused.value)
    assert "invoke lock" in str(refused.value)
    wheels.lock(loader.load(config_folder), report=quiet)
    (plan,) = plans(loader.load(config_folder), selection)
    assert [(w.role, w.name, w.file) for w in plan.wheels][1] == ("sdk", "demo", WHEEL)
    file = small / "open.txt"
    file.write_text(file.read_text().replace(SHA256, "0" * 64))
    (other,) = plans(loader.load(config_folder), selection)
    assert other.key != plan.key


def test_a_wheel_that_changed_on_the_index_is_found(locked: Path, config_folder: Path, web: Web) -> None:
    config = loader.load(config_folder)
    web.add_index("index", EVIL)
    with pytest.raises(PinError, match="demo"):
        wheels.check(config, report=quiet)


def test_bases_that_share_a_file_need_the_same_wheels(small: Path, config_folder: Path) -> None:
    file = config_folder / "bases.yaml"
    file.write_text(file.read_text().replace(str(small / "ngc.txt"), str(small / "open.txt")))
    with pytest.raises(ConfigError, match=r"cp311.*cp38"):
        wheels.lock(loader.load(config_folder), report=quiet)


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("demo>=1", ConfigError, "NAME==VERSION"),
        ("-r other.txt", ConfigError, "NAME==VERSION"),
        ("demo==1 ; python_version < '3'", ConfigError, "NAME==VERSION"),
        (f"demo==1 --hash=sha256:{SHA256} --hash=sha256:{'0' * 64}", ConfigError, "one wheel"),
        ("demo==1 --hash=md5:0", ConfigError, "one wheel"),
        ("demo==1\nDemo==2", ConfigError, "twice"),
        (f"demo==1 --hash=sha256:{SHA256}", PinError, "without a name"),
        (f"# demo-1.0-py3-none-any.whl\ndemo==2 --hash=sha256:{SHA256}", PinError, "remove the hash"),
    ],
)
def test_what_is_no_pinned_wheel_is_refused_with_its_line(
    tmp_path: Path, line: str, error: type[Exception], words: str
) -> None:
    file = tmp_path / "some.txt"
    file.write_text(f"# Comment\n{line}\n")
    with pytest.raises(error, match=words) as refused:
        requirements.read(file)
    assert str(file) in str(refused.value)


def test_every_requirement_of_the_project_names_one_wheel(config: Config) -> None:
    files = wheels.files(config)
    assert {file.name for file in (ROOT / "dockerfiles/requirements").iterdir()} == {
        file.name for file in files
    }
    for file in files:
        read = requirements.read(file)
        assert read.locked()
        assert read.render(read.requirements) == file.read_text()
