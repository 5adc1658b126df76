"""What cannot work is refused when it is read: with its place, quickly, and in few words."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.errors import ConfigError
from ftbuild.host.shell import run
from testing import ROOT

from .test_config import line_of, spoil


@pytest.fixture(autouse=True)
def within_two_seconds() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 2


def refused(folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        loader.load(folder)
    assert len(str(error.value)) < 6000
    return str(error.value)


def with_repository(folder: Path, **facts: str) -> int:
    """Change facts of the repository `common`; return the line of the last one."""
    old = "    url: https://github.com/triton-inference-server/common.git\n    path: common\n"
    known = {"url": "https://github.com/triton-inference-server/common.git", "path": "common", **facts}
    new = "".join(f"    {name}: {value}\n" for name, value in known.items())
    spoil(folder, "sources.yaml", old, new)
    return line_of(folder, "sources.yaml", f"    {list(facts)[-1]}: {list(facts.values())[-1]}")


@pytest.mark.parametrize(
    "path",
    [
        "/ft",
        "../../escaped",
        "a/../../b",
        "ft/..",
        '""',
        ".",
        '"a\\0b"',
        "-x",
        "a//b",
        "a/",
        "./a",
        ".git/hooks",
    ],
)
def test_the_tree_of_a_repository_cannot_leave_the_source_tree(config_folder: Path, path: str) -> None:
    line = with_repository(config_folder, path=path)
    message = refused(config_folder)
    assert f"sources.yaml:{line}: repositories.common.path: must " in message


def test_two_repositories_of_a_release_cannot_have_the_same_path(config_folder: Path) -> None:
    with_repository(config_folder, path="backend")
    assert re.search(
        r"sources\.yaml:\d+: release 22\.03 has backend and common at the same path", refused(config_folder)
    )


@pytest.mark.parametrize("name", ["../../../tmp/x", "a/b", "A", "-x", '""', "a b", '"a\\0"'])
def test_a_repository_has_a_plain_name(config_folder: Path, name: str) -> None:
    spoil(config_folder, "sources.yaml", "  common:\n", f"  {name}:\n")
    assert re.search(r"sources\.yaml:\d+: repositories\..*must ", refused(config_folder))


@pytest.mark.parametrize("key", ["url", "mirrors"])
@pytest.mark.parametrize(
    "url", ["--upload-pack=:;touch /tmp/x;", "-u", "ext::sh -c true", "http://[::1", "http://h:abc/x"]
)
def test_a_url_that_git_takes_for_something_else_is_refused(config_folder: Path, key: str, url: str) -> None:
    line = with_repository(config_folder, **{key: f'"{url}"' if key == "url" else f'["{url}"]'})
    assert f"sources.yaml:{line}: repositories.common.{key}" in refused(config_folder)


def test_a_password_in_a_url_is_not_printed(config_folder: Path) -> None:
    with_repository(config_folder, url='"https://user:secret@host:abc/x"')
    assert "secret" not in refused(config_folder)


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:a/b.git",
        "../up stream",
        "ssh://git@h:22/x",
        "file:///srv/x",
        "C:\\x",
        "https://u:p@h/x",
    ],
)
def test_what_git_understands_is_a_url(config_folder: Path, url: str) -> None:
    with_repository(config_folder, url=f"'{url}'")
    assert loader.load(config_folder).sources.repositories["common"].url == url


@pytest.mark.parametrize(
    "ref", ["v1", "HEAD", "-x", "refs/heads/a..b", "refs/heads/a:b", "refs/heads/*", "0123abc", '""']
)
def test_a_ref_is_full(config_folder: Path, ref: str) -> None:
    spoil(config_folder, "sources.yaml", "ref: refs/heads/r22.03", f"ref: {ref}")
    assert re.search(r"sources\.yaml:\d+: releases\.22\.03\.core\.ref: must ", refused(config_folder))


IMAGE = "nvcr.io/nvidia/tritonserver:{release}-py3"


@pytest.mark.parametrize(
    "image",
    ["nvcr.io/x:{rel}-py3", "nvcr.io/x:{release-py3", "nvcr.io/x:release}", "nvcr.io/x:{}",
     "x:{release.__class__}",
     "x:{release!r}", "x:{release:>9999999999}", "x:{0}", "x:{release[0]}", "X/y", "a b", "https://h/x",
     "x:", "--privileged"],
)  # fmt: skip
def test_the_image_of_a_base_has_no_other_field_than_the_release(config_folder: Path, image: str) -> None:
    spoil(config_folder, "bases.yaml", IMAGE, f'"{image}"')
    line = line_of(config_folder, "bases.yaml", "    image: ")
    assert f"bases.yaml:{line}: bases.ngc.image: " in refused(config_folder)


@pytest.mark.parametrize(
    "image",
    ["localhost:5000/a/b:{release}", "[::1]:5000/a:{release}-x", "debian", "a.b/c@sha256:" + "0" * 64],
)
def test_an_image_may_be_of_any_registry(config_folder: Path, image: str) -> None:
    spoil(config_folder, "bases.yaml", IMAGE, f'"{image}"')
    assert loader.load(config_folder).bases.bases["ngc"].image == image


@pytest.mark.parametrize("field", ["{checkpoints}", "{checkpoint!r}", "{checkpoint", "{0}", "{}"])
def test_an_argument_of_a_converter_has_no_unknown_field(config_folder: Path, field: str) -> None:
    spoil(config_folder, "models.yaml", '"{checkpoint}"', f'"{field}"')
    assert re.search(
        r"models\.yaml:\d+: families\.gpt\.converters\.0\.arguments\.1: .*allowed is", refused(config_folder)
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            '- "model.layers.{layers}.attention.dense.weight',
            '- "model.layer.weight',
            "which no converter writes",
        ),
        (
            "attention's output: layers * hidden",
            "x: layers * hid",
            "uses the fact 'hid', which nothing defines",
        ),
        ("{hidden: 64, inner: 64}", "{heads: 64}", "families.gpt.int8.multiples"),
        ("{hidden: 64, inner: 64}", "{hidden: 0}", "families.gpt.int8.multiples.hidden"),
    ],
)
def test_int8_weights_are_files_and_facts_of_the_family(
    config_folder: Path, old: str, new: str, says: str
) -> None:
    spoil(config_folder, "models.yaml", old, new)
    assert says in refused(config_folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("words: model.embeddings.word_", "words: model.", "bert looks up"),
        (
            "unread: [shared.weight.bin]",
            "unread: [shared.bin]",
            "t5-encoder does not load 'shared.bin', which no",
        ),
        ("      longest: 4096\n", "", "exactly one of embedding and longest is needed"),
        (
            "hidden: hidden_size\n      emb",
            "hidden: hidden_size\n      longest: 1\n      emb",
            "exactly one of",
        ),
        ("      longest: 4096\n", "      longest: 0\n", "families.t5-encoder.vectors.longest"),
    ],
)
def test_what_makes_vectors_is_written_by_a_converter_and_limits_texts_once(
    config_folder: Path, old: str, new: str, says: str
) -> None:
    spoil(config_folder, "models.yaml", old, new)
    assert says in refused(config_folder)


def test_a_converter_is_told_what_to_read_and_where_to_write(config_folder: Path) -> None:
    spoil(config_folder, "models.yaml", '-o, "{out}", ', "")
    assert "the arguments lack {out}" in refused(config_folder)


@pytest.mark.parametrize(
    "name", ["model.{layerz}.bin", "../model.bin", "a/b.bin", "{layers!r}.bin", "{}.bin", '"a\\0"']
)
def test_a_weight_file_has_a_plain_name(config_folder: Path, name: str) -> None:
    spoil(
        config_folder,
        "models.yaml",
        "          model.wpe.bin:",
        f"          {name if name[0] == chr(34) else repr(name)}:",
    )
    assert re.search(
        r"models\.yaml:\d+: .*(must be a plain file name|uses the fact 'layerz')", refused(config_folder)
    )


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("bases.yaml", "  ngc:", "  OPEN:"),
        ("bases.yaml", "  ngc:", "  git@github.com:x/y.git:"),
        ("bases.yaml", "[gcc, g++]", '["", g++]'),
        ("bases.yaml", "[gcc, g++]", "['a\") set(X y', g++]"),
        ("bases.yaml", "[ccache,", '["a\\nb",'),
        ("bases.yaml", "[ccache,", "[-o, "),
        ("bases.yaml", "suite: bookworm", 'suite: "a b"'),
        ("bases.yaml", "dockerfile: ../dockerfiles/triton-ft.Dockerfile", 'dockerfile: "a\\0b"'),
        ("bases.yaml", "manylinux: ", 'manylinux: "2.36.0" #'),
        ("bases.yaml", "manylinux: ", 'manylinux: "9" #'),
        ("debian.lock.yaml", "snapshot: ", 'snapshot: "99999999T999999Z" #'),
        ("matrix.yaml", 'server: "2.20.0"', 'server: "2.20.0\\n"'),
        ("matrix.yaml", 'server: "2.20.0"', 'server: " 2.20.0"'),
        ("matrix.yaml", '  "22.03":', '  "\uff12\uff12.03":'),
        ("matrix.yaml", "image: triton_with_ft", "image: Triton"),
        ("patches.yaml", '"==5.3"', '"===x"'),
        ("patches.yaml", '"==5.3"', '""'),
        ("patches.yaml", '"0040-sm-89.patch"', '"../0040-sm-89.patch"'),
    ],
)  # fmt: skip
def test_a_text_that_cannot_work_where_it_is_used_is_refused(
    config_folder: Path, file: str, old: str, new: str
) -> None:
    spoil(config_folder, file, old, new)
    assert re.search(rf"{re.escape(file)}:\d+: ", refused(config_folder))


@pytest.mark.parametrize("patch", ["ft/9999-nope.patch", "tf/0040-sm-89.patch"])
def test_a_patch_that_makes_an_sm_possible_is_an_entry(config_folder: Path, patch: str) -> None:
    spoil(config_folder, "matrix.yaml", "patch: ft/0040-sm-89.patch", f"patch: {patch}")
    line = line_of(config_folder, "matrix.yaml", patch)
    assert (
        f"matrix.yaml:{line}: SM 89 of release 22.12 needs {patch}, which patches.yaml does not list"
        in refused(config_folder)
    )


def test_a_patch_that_makes_an_sm_possible_applies_to_its_release(config_folder: Path) -> None:
    spoil(
        config_folder,
        "patches.yaml",
        '"0040-sm-89.patch": {versions: "==5.3"}',
        '"0040-sm-89.patch": {versions: "==5.30"}',
    )
    message = refused(config_folder)
    assert (
        "SM 89 of release 22.12 needs ft/0040-sm-89.patch, which patches.yaml gives to ft ==5.30 only"
        in message
    )
    assert re.search(r"matrix\.yaml:\d+: ", message)


@pytest.mark.parametrize("key", ['"80"', "80.0", "1:20", "0x50", "8_0", "!!int 80", "0o120", "1e2"])
def test_an_sm_has_one_spelling(config_folder: Path, key: str) -> None:
    facts = '{cuda: "99.0", name: x, source: x}'
    spoil(config_folder, "matrix.yaml", "sms:\n", f"sms:\n  {key}: {facts}\n")
    assert "matrix.yaml:" in refused(config_folder)


@pytest.mark.parametrize(
    "yaml",
    ["image: 2001-99-99", "? [a]\n: 1", "a: !!int x", "a: !!bool x", 'a: !!float ""', "a: !!timestamp x",
     "a: !!binary x",
     "a: !!python/object/apply:os.system [true]", f"a: {'9' * 5000}", "a: &b [*b]", "a: &b {<<: *b}",
     "a: *nothing", "a: 1:20",
     "--- 1\n--- 2", "%YAML 9.9\n---\na: 1", "\ta: 1", "a: [", "", "# nothing", "[]", "text", "a: =",
     "a: \ud83d", "{}: 1"],
)  # fmt: skip
def test_yaml_with_surprises_is_refused(config_folder: Path, yaml: str) -> None:
    (config_folder / "matrix.yaml").write_bytes(yaml.encode("utf-8", "surrogatepass"))
    assert "matrix.yaml" in refused(config_folder)


def bomb(levels: int, width: int = 9) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join([*lines, f"image: *a{levels - 1}"])


@pytest.mark.parametrize("levels", [3, 8, 30])
def test_aliases_of_aliases_are_refused(config_folder: Path, levels: int) -> None:
    (config_folder / "matrix.yaml").write_text(bomb(levels))
    assert "matrix.yaml" in refused(config_folder)


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")])
@pytest.mark.parametrize("depth", [45, 3000, 40_000])
def test_depth_is_refused_without_a_crash(config_folder: Path, open_: str, close: str, depth: int) -> None:
    (config_folder / "matrix.yaml").write_text(
        f"image: {open_ * depth}1{close * depth}\n" if close else open_ * depth + "1"
    )
    assert "matrix.yaml:" in refused(config_folder)


def test_a_huge_list_mapping_text_or_file_is_refused(config_folder: Path) -> None:
    file = config_folder / "matrix.yaml"
    for content in (
        f"image: [{', '.join(['1'] * 300_000)}]",
        "\n".join(f"key{n}: 1" for n in range(20_000)),
        "\n".join(f"key{n}: 1" for n in range(4_900)),
        f"image: {'x' * 900_000}",
        f"? {'x' * 900_000}\n: 1",
        "image: x\n" * 1_000_000,
    ):
        file.write_text(content)
        assert "matrix.yaml" in refused(config_folder)


def test_a_pipe_is_not_waited_for(config_folder: Path) -> None:
    (config_folder / "matrix.yaml").unlink()
    os.mkfifo(config_folder / "matrix.yaml")
    assert "it is not a file" in refused(config_folder)


@pytest.mark.parametrize("value", ["true", "yes", "off"])
def test_a_word_that_yaml_takes_for_a_boolean_is_explained(config_folder: Path, value: str) -> None:
    spoil(config_folder, "matrix.yaml", "name: Volta", f"name: {value}")
    assert "must be text in quotes, not " in refused(config_folder)
    assert "not the number" not in refused(config_folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("models.yaml", "layers: 28", "layers: -28",
         r"families\.gptj\.converters\.1\.fixed\.layers: .* or must be greater than or equal to 0\n"),
        ("models.yaml", "fixed: {inner: 4 * hidden}", "fixed: {inner: true}",
         r"\.1\.fixed\.inner: must be text in quotes, not true .* or must be a whole number, not true .*\n"),
        ("matrix.yaml", "default_sms: [80]", "default_sms: 80", r"\.default_sms: must be a list, not 80\n"),
        ("bases.yaml", "[gcc, g++]", "[gcc]", r"ngc\.host_compiler\.1: required, but missing\n"),
        ("bases.yaml", "requirements:", "requirement:", r"bases\.ngc\.requirement: unknown key\n"),
        ("matrix.yaml", "default_sms: [80]", "default_sms: [0x50]", "0x50 is no plain decimal number"),
    ],
)  # fmt: skip
def test_a_message_is_about_what_was_written(
    config_folder: Path, file: str, old: str, new: str, message: str
) -> None:
    spoil(config_folder, file, old, new)
    assert re.search(rf"{file}:\d+(: .*|\n)?{message}", refused(config_folder)) or message in refused(
        config_folder
    )


def test_every_complaint_is_listed_up_to_ten(config_folder: Path) -> None:
    with (config_folder / "matrix.yaml").open("a") as file:
        file.writelines(f"key{number}: 1\n" for number in range(30))
    lines = refused(config_folder).splitlines()
    assert len([line for line in lines if "unknown key" in line]) == 10
    assert "and more" in lines


def test_an_encoding_other_than_utf_8_is_named_with_its_line(config_folder: Path) -> None:
    file = config_folder / "matrix.yaml"
    lines = len(file.read_text().splitlines())
    with file.open("ab") as stream:
        stream.write(b"# caf\xe9\n")
    assert f"matrix.yaml:{lines + 1}" in refused(config_folder)


def test_memory_stays_small(config_folder: Path) -> None:
    (config_folder / "matrix.yaml").write_text(bomb(20))
    program = (
        "import re, sys, pathlib; from ftbuild.config import loader; from ftbuild.errors import *\n"
        "try: loader.load(pathlib.Path(sys.argv[1]))\n"
        # getrusage would count what pytest's process had before this program was started in its place.
        "except ConfigError:\n"
        "    status = pathlib.Path('/proc/self/status').read_text()\n"
        "    print(int(re.search(r'VmHWM:\\s*(\\d+) kB', status)[1]) // 1024)"
    )
    done = run([sys.executable, "-c", program, str(config_folder)], cwd=ROOT)
    assert int(done.stdout) < 500
