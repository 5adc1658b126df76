from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import PatchError
from ftbuild.sources.inputs import Backport, PlannedPatch
from ftbuild.sources.patches import dep3, hunks, series
from ftbuild.sources.patches.series import Entry, Status

HEADER = "Description: test\nAuthor: ftbuild\nForwarded: no\nLast-Update: 2026-01-01\n\n"
COMMIT = "c" * 40
BACKPORT = f"Description: test\nOrigin: backport, https://example.invalid/o/r/commit/{COMMIT}\n"


def diff(old: Sequence[str], new: str, file: str = "a.cc", start: int = 2) -> str:
    return (
        f"--- a/{file}\n+++ b/{file}\n@@ -{start},3 +{start},3 @@\n {old[0]}\n-{old[1]}\n+{new}\n {old[2]}\n"
    )


class Series:
    """The series of `ft` in a configuration folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.patches = folder.parent / "patches" / "ft"
        self.patches.mkdir(parents=True)
        matrix = yaml.safe_load((folder / "matrix.yaml").read_text())
        for release in matrix["releases"].values():
            release["sms"].pop("patched", None)  # it names entries of the real series
            release["default_sms"] = [80]
        (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))

    def write(self, series: str, files: dict[str, str], ranges: dict[str, str] | None = None) -> None:
        (self.patches / "series").write_text(series)
        for name, text in files.items():
            (self.patches / name).write_text(text)
        ranges = dict.fromkeys(files, ">=5") if ranges is None else ranges
        lines = [f'    "{name}": {{versions: "{versions}"}}' for name, versions in ranges.items()]
        text = (
            "\n".join(["directory: ../patches", "ranges:", "  ft:" if lines else "  ft: {}", *lines]) + "\n"
        )
        (self.folder / "patches.yaml").write_text(text)

    @property
    def config(self) -> Config:
        return loader.load(self.folder)

    def entries(self) -> tuple[Entry, ...]:
        return series.read_series(self.config)["ft"]


@pytest.fixture
def ft_series(config_folder: Path) -> Series:
    return Series(config_folder)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a.cc").write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    return folder


def test_a_series_is_read_in_order_with_comments_and_blank_lines(ft_series: Series) -> None:
    ft_series.write(
        "# comment\n\n0001-one.patch  # why\n0002-two.backport\n",
        {"0001-one.patch": HEADER + diff("234", "x"), "0002-two.backport": BACKPORT},
        {"0001-one.patch": ">=5.0,<=5.2", "0002-two.backport": "==5.3"},
    )
    one, two = ft_series.entries()
    assert (one.name, one.commit, one.origin) == ("ft/0001-one.patch", None, "by ftbuild")
    assert two.commit == COMMIT
    assert two.origin == f"backport, https://example.invalid/o/r/commit/{COMMIT}"
    assert series.applicable((one, two), "5.2") == (one,)
    assert series.applicable((one, two), "5.3") == (two,)
    assert series.applicable((one, two), "") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0001-gone.patch\n", r"0001-gone\.patch does not exist"),
        ("one.patch\n", "is not an entry"),
        ("0001-one.patch -p0\n", "is not an entry"),
        ("0001-one.patch\n0001-one.patch\n", "out of order"),
        ("", "not in the series"),
    ],
)
def test_a_wrong_series_is_refused(ft_series: Series, text: str, message: str) -> None:
    ft_series.write(text, {"0001-one.patch": HEADER + diff("234", "x")})
    with pytest.raises(PatchError, match=message):
        ft_series.entries()


def test_series_and_ranges_must_agree(ft_series: Series) -> None:
    files = {"0001-one.patch": HEADER + diff("234", "x")}
    ft_series.write("0001-one.patch\n", files, {})
    with pytest.raises(PatchError, match="has no range of versions") as refused:
        ft_series.entries()
    assert "series:1" in str(refused.value)
    ft_series.write("0001-one.patch\n", files, {"0001-one.patch": ">=5", "0002-two.patch": ">=5"})
    with pytest.raises(PatchError, match=r"0002-two\.patch has a range, but is not in the series"):
        ft_series.entries()


def test_a_component_without_ranges_or_without_a_version_is_refused(ft_series: Series) -> None:
    ft_series.write("0001-one.patch\n", {"0001-one.patch": HEADER + diff("234", "x")})
    ranges = ft_series.folder / "patches.yaml"
    text = ranges.read_text()
    ranges.write_text("directory: ../patches\nranges: {}\n")
    with pytest.raises(PatchError, match="ft has a series, but no ranges"):
        series.read_series(ft_series.config)
    ranges.write_text(text.replace("  ft:", "  core:"))
    with pytest.raises(PatchError, match=r"core of release 22\.03 has patches, but no version"):
        series.read_series(ft_series.config)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("0001-a.patch", "Author: x\n\n" + diff("234", "x"), "no Description"),
        ("0001-a.patch", "Description: x\n\n" + diff("234", "x"), "neither Origin nor Author"),
        ("0001-a.patch", HEADER.replace("Forwarded", "Forwarded-to") + diff("234", "x"), "a.patch:3"),
        (
            "0001-a.patch",
            "Description: x\nAuthor: y\nAuthor: z\n\n" + diff("234", "x"),
            "'Author' is repeated",
        ),
        ("0001-a.patch", HEADER.replace("2026-01-01", "today") + diff("234", "x"), "not a date"),
        ("0001-a.patch", HEADER, "has no diff"),
        (
            "0001-a.patch",
            HEADER.replace("\n\n", "\nX-Ftbuild-Paths: a\n\n") + diff("234", "x"),
            "for backports",
        ),
        ("0001-a.patch", HEADER.replace("test", "t\x1b[2J") + diff("234", "x"), r"a\.patch:1"),
        ("0001-a.patch", HEADER.replace("test", "t\x00") + diff("234", "x"), r"a\.patch:1"),
        ("0001-a.patch", HEADER + diff("234", "x").removesuffix(" 4\n"), r"not as many(.|\n)*a\.patch:8"),
        ("0001-a.patch", HEADER + diff("234", "x") + "+more\n", r"more lines than it says(.|\n)*a\.patch:13"),
        ("0001-a.patch", "Description: x\n" + " a\n" * 300_000, r"more than 20000 bytes(.|\n)*a\.patch:\d+"),
        ("0001-a.patch", HEADER + "--- a/f\n+++ b/f\n@@ -x +1 @@\n+a\n", r"has no diff"),
        (
            "0001-a.backport",
            BACKPORT + "\n" + diff("234", "x"),
            "must not have a diff: its commit is the diff",
        ),
        ("0001-a.backport", BACKPORT.replace(COMMIT, "c" * 12), "full 40-digit id"),
        ("0001-a.backport", HEADER, "full 40-digit id"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_file(
    ft_series: Series, name: str, content: str, message: str
) -> None:
    ft_series.write(f"{name}\n", {name: content})
    with pytest.raises(PatchError, match=message) as refused:
        ft_series.entries()
    assert str(ft_series.patches / name) in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n",
        "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
        "diff --git a/a b/a\nnew file mode 100644\nindex 0000000..e69de29\n",
    ],
)
def test_a_change_without_a_hunk_is_a_diff(ft_series: Series, change: str) -> None:
    ft_series.write("0001-a.patch\n", {"0001-a.patch": HEADER + change})
    assert len(ft_series.entries()) == 1


def test_a_header_or_series_that_is_not_utf_8_is_refused_with_its_line(ft_series: Series) -> None:
    ft_series.write("0001-a.patch\n", {"0001-a.patch": HEADER + diff("234", "x")})
    entry = ft_series.patches / "0001-a.patch"
    entry.write_bytes(entry.read_bytes().replace(b"Author: ", b"Author: J\xf6rg "))
    with pytest.raises(PatchError, match=r"not UTF-8 text(.|\n)*0001-a\.patch:2"):
        ft_series.entries()
    (ft_series.patches / "series").write_bytes(b"0001-a.patch\n# caf\xe9\n")
    with pytest.raises(PatchError, match=r"not UTF-8 text(.|\n)*series:2"):
        ft_series.entries()


def test_pipes_and_huge_files_in_a_series_are_refused_at_once(ft_series: Series) -> None:
    ft_series.write("0001-a.patch\n", {"0001-a.patch": HEADER + diff("234", "x")})
    for name in ("series", "0001-a.patch"):
        file = ft_series.patches / name
        content = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(PatchError, match=name):
            ft_series.entries()
        file.unlink()
        with file.open("wb") as sparse:
            sparse.truncate(10**12)
        with pytest.raises(PatchError, match="more than"):
            ft_series.entries()
        file.write_bytes(content)


def test_a_wrong_folder_of_the_series_names_patches_yaml(ft_series: Series) -> None:
    ft_series.write("0001-a.patch\n", {"0001-a.patch": HEADER + diff("234", "x")})
    ranges = ft_series.folder / "patches.yaml"
    ranges.write_text(ranges.read_text().replace("../patches", "../petches"))
    with pytest.raises(PatchError, match=r"/petches\n(.|\n)*patches\.yaml:1"):
        ft_series.entries()


def test_an_entry_that_no_release_takes_is_found(ft_series: Series) -> None:
    text = HEADER + diff("234", "x")
    files = {"0001-a.patch": text, "0002-b.patch": text, "0003-c.patch": text}
    ranges = {"0001-a.patch": "==22.12", "0002-b.patch": "==5.0", "0003-c.patch": ">=5.0,<5.0"}
    ft_series.write("\n".join(files) + "\n", files, ranges)
    assert [entry.file for entry in series.idle(ft_series.config)] == ["0001-a.patch", "0003-c.patch"]


def test_a_header_keeps_its_continued_lines_and_the_diff_its_bytes() -> None:
    content = b"Description: one\n two\nAuthor: x\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\xe9\r\n+\xe8\r\n"
    header, body = dep3.split(content, "f")
    assert header.fields["Description"] == "one\ntwo"
    assert header.lines == {"Description": 1, "Author": 3}
    assert body.strip().startswith(b"--- a/f")
    assert body.endswith(b"-\xe9\r\n+\xe8\r\n")


def test_the_fingerprint_is_that_of_the_change_and_not_of_its_header(ft_series: Series) -> None:
    def fingerprint(name: str, content: str) -> str:
        for old in ft_series.patches.iterdir():
            old.unlink()
        ft_series.write(f"{name}\n", {name: content})
        (entry,) = ft_series.entries()
        change = entry.diff if entry.commit is None else Backport(entry.commit, entry.paths, "", "")
        return PlannedPatch(entry.component, entry.file, entry.origin, change).fingerprint

    one = fingerprint("0001-a.patch", HEADER + diff("234", "x"))
    assert one == fingerprint("0002-b.patch", HEADER.replace("test", "other") + diff("234", "x"))
    assert one != fingerprint("0001-a.patch", HEADER + diff("234", "y"))
    whole = fingerprint("0001-a.backport", BACKPORT)
    assert whole != fingerprint("0001-a.backport", BACKPORT + "X-Ftbuild-Paths: src/*\n")
    assert whole != fingerprint("0001-a.backport", BACKPORT.replace(COMMIT, "d" * 40))


def entry(text: str, versions: str = ">=5", name: str = "0001-a.patch") -> Entry:
    header, body = dep3.split((HEADER + text).encode(), name)
    return Entry("ft", name, header, SpecifierSet(versions), body)


def apply(tree: Path, text: str) -> None:
    made = entry(text)
    series.apply(tree, made, made.diff, version="5.3")


def test_a_patch_changes_the_tree(tree: Path) -> None:
    apply(tree, diff("234", "x"))
    assert (tree / "a.cc").read_text() == "1\n2\nx\n4\n5\n6\n7\n8\n9\n"


def test_a_conflict_names_patch_version_file_and_hunk_and_changes_nothing(tree: Path) -> None:
    good = diff("234", "x").removesuffix("\n")
    bad = "@@ -6,3 +6,3 @@ in a function\n 6\n-seven\n+y\n 8"
    before = (tree / "a.cc").read_bytes()
    with pytest.raises(PatchError) as refused:
        apply(tree, f"{good}\n{bad}\n")
    assert refused.value.exit_code == 6
    assert "ft/0001-a.patch does not apply to ft 5.3" in str(refused.value)
    assert "a.cc: hunk 2, @@ -6,3 +6,3 @@ in a function does not match" in str(refused.value)
    assert (tree / "a.cc").read_bytes() == before


def test_a_conflict_names_a_file_that_does_not_exist(tree: Path) -> None:
    with pytest.raises(PatchError, match=r"gone\.cc: No such file or directory"):
        apply(tree, diff("234", "x", file="gone.cc"))


@pytest.mark.parametrize("context", ["2 ", " 2", "two"])
def test_context_that_differs_is_no_match_even_by_space_only(
    tree: Path, context: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lenient = tmp_path / "gitconfig"
    lenient.write_text("[apply]\n ignoreWhitespace = change\n whitespace = fix\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(lenient))
    with pytest.raises(PatchError, match="hunk 1"):
        apply(tree, f"--- a/a.cc\n+++ b/a.cc\n@@ -2,3 +2,3 @@\n {context}\n-3\n+x\n 4\n")


def test_a_tree_inside_another_repository_is_patched_all_the_same(tree: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tree.parent)], check=True)
    text = "diff --git a/a.cc b/a.cc\n" + diff("234", "x")
    (tree / "patch").write_text(text)
    subprocess.run(["git", "apply", "patch"], cwd=tree, check=True)
    assert "x" not in (tree / "a.cc").read_text(), "the premise: git applies nothing here, and says nothing"
    apply(tree, text)
    assert "x" in (tree / "a.cc").read_text()


def test_the_repository_of_a_git_hook_is_not_used(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tree.parent / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tree.parent / "index"))
    apply(tree, diff("234", "x"))
    assert "x" in (tree / "a.cc").read_text()


def test_a_change_that_is_there_already_asks_for_a_narrower_range(tree: Path) -> None:
    apply(tree, diff("234", "x"))
    with pytest.raises(PatchError, match=r"already in ft 5\.3") as refused:
        apply(tree, diff("234", "x"))
    assert refused.value.hint == "narrow its range in patches.yaml"


def test_the_status_table_knows_all_four_outcomes(tree: Path) -> None:
    entries = [
        entry(diff("234", "x"), name="0001-applies.patch"),
        entry(diff(["x", "4", "5"], "y", start=3), name="0002-on-top.patch"),
        entry(diff("678", "z", start=6), "<5", name="0003-out-of-range.patch"),
        entry(diff(["6", "seven", "8"], "7", start=6), "<5", name="0004-upstream.patch"),
        entry(diff("456", "q", start=4), name="0005-conflict.patch"),
        entry(diff(["6", "seven", "8"], "7", start=6), name="0006-in-range.patch"),
    ]
    rows = list(series.status(entries, tree, release="22.12", version="5.3", diff_of=lambda e: e.diff))
    assert [row.status for row in rows] == [
        Status.APPLIES,
        Status.APPLIES,
        Status.OUT_OF_RANGE,
        Status.UPSTREAM,
        Status.CONFLICT,
        Status.UPSTREAM,
    ]
    assert [row.stops for row in rows] == [False] * 4 + [True, True]
    assert series.exit_code(rows) == 6
    assert series.exit_code(rows[:4]) == 0
    table = series.table(rows)
    assert "0005-conflict.patch on 22.12: conflict: a.cc: hunk 1, @@ -4,3 +4,3 @@ does not match" in table
    assert json.loads(series.as_json(rows))[3]["status"] == "already upstream"


def test_what_an_earlier_entry_brings_is_not_called_upstreams(tree: Path) -> None:
    entries = [entry(diff("234", "x")), entry(diff("234", "x"), "<5", name="0002-old.patch")]
    rows = list(series.status(entries, tree, release="22.12", version="5.3", diff_of=lambda e: e.diff))
    assert rows[1].status is Status.OUT_OF_RANGE


def test_hunks_are_counted_by_file_and_lines_that_look_like_headers_are_content() -> None:
    text = (
        "--- a/one\n+++ b/one\n@@ -1,2 +1,2 @@\n--- gone\n+++ come\n same\n@@ -9 +9 @@ f()\n-a\n+b\n"
        "\\ No newline at end of file\n--- /dev/null\n+++ b/two\n@@ -0,0 +1 @@\n+new\n"
    )
    assert [(h.file, h.number, h.start) for h in hunks.parse_hunks(text)] == [
        ("one", 1, 1),
        ("one", 2, 9),
        ("two", 1, 0),
    ]
