"""The checks of verify on described images; tests/engine has them on real ones."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.client import server_container
from ftbuild.config.schema import Config
from ftbuild.engine.container import ContainerError
from ftbuild.errors import SmokeError
from ftbuild.gates.verify import filesystem, sources
from ftbuild.gates.verify.checks import files, libraries, programs, recipe
from ftbuild.gates.verify.elf import Library
from ftbuild.gates.verify.filesystem import Contents, File
from ftbuild.gates.verify.images import BACKEND
from ftbuild.gates.verify.sources import TREES, Comparison, Place
from ftbuild.gates.verify.verdict import Verdict
from ftbuild.matrix import select
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.sm import Sm
from ftbuild.sources import taking
from ftbuild.sources.inputs import Backport, PlannedPatch
from ftbuild.text.results import State

RUNTIME, BASE = "sha256:runtime", "sha256:base"
USERS = {"root": 0, "triton": 1000}
LIBRARIES = tuple(f"{BACKEND}/{name}" for name in libraries.REQUIRED)


def contents(*paths: str | File, secrets: tuple[str, ...] = ()) -> Contents:
    entries = [entry if isinstance(entry, File) else File(entry, "f", 0o644, 0, 0) for entry in paths]
    return Contents({entry.path: entry for entry in entries}, USERS, {"root": 0}, secrets)


@dataclass
class Described:
    """Images as verify sees them, by a description of each."""

    plan: Plan
    image: Contents = field(default_factory=contents)
    below: Contents = field(default_factory=contents)
    config: dict[str, Any] = field(default_factory=dict)
    history: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    layers: Mapping[str, list[str]] = field(default_factory=dict)
    listed: Sequence[Library] = ()
    output: str | Exception = ""
    asked: list[str] = field(default_factory=list)
    ids: Mapping[str, str] = field(default_factory=lambda: {"runtime": RUNTIME, "sdk": RUNTIME})
    base: str = BASE

    def contents(self, image: str) -> Contents:
        return {RUNTIME: self.image, BASE: self.below}[image]

    def attributes(self, image: str) -> dict[str, Any]:
        return {"Config": self.config, "RootFS": {"Layers": self.layers.get(image, [])}}

    def labels(self, product: str) -> dict[str, str]:
        labels: dict[str, str] = self.config.get("Labels") or {}
        return labels

    def libraries(self, product: str) -> Sequence[Library]:
        return self.listed

    def inspect_in_place(self, product: str, path: str) -> Library:
        self.asked.append(path)
        (library,) = self.listed
        return library

    def listing(self, path: str) -> str:
        return f"list {path}"

    def run(self, product: str, script: str) -> str:
        self.asked.append(script)
        if isinstance(self.output, Exception):
            raise self.output
        return self.output

    @property
    def client(self) -> Any:
        return SimpleNamespace(images=self)

    def get(self, image: str) -> Any:
        return SimpleNamespace(history=lambda: self.history.get(image, []))


def planned(config: Config, base: str) -> Plan:
    (cell,) = select(config, triton=["22.12"], sms=["80"], bases=[base])
    return make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00", "https://example.invalid"))


@pytest.fixture
def images(config: Config) -> Described:
    return Described(planned(config, "ngc"))


@pytest.fixture
def own(config: Config) -> Described:
    return Described(planned(config, "open"))


def only(check: Callable[[Any, str], Iterator[Verdict]], images: Any) -> Verdict:
    (verdict,) = check(images, "runtime")
    return verdict


def failure(check: Callable[[Any, str], Iterator[Verdict]], images: Any) -> str:
    verdict = only(check, images)
    assert verdict.state is State.FAIL
    assert verdict.hint
    return verdict.detail


# Files


def test_left_overs_in_files_and_passwords_in_the_configuration_are_found(images: Described) -> None:
    images.image = contents("/usr/bin/gcc", "/opt/x", secrets=("/opt/key.pem",))
    images.config = {"Env": ["A=https://me:secret@host"], "Labels": {"a": "http://you:secret@host"}}
    images.history = {RUNTIME: [{"CreatedBy": "RUN curl ftp://he:secret@host"}]}
    assert failure(files.leftovers, images).splitlines() == [
        "compiler or build tool: /usr/bin/gcc",
        "key or password: /opt/key.pem",
        "password in a URL: environment",
        "password in a URL: labels",
        "password in a URL: history",
    ]


def test_an_image_without_left_overs_passes_and_names_what_the_base_brings(images: Described) -> None:
    images.image = images.below = contents("/usr/bin/gcc", "/usr/sbin/sshd")
    images.config = {"Env": ["A=https://host/me:secret@x", "B=http://me@host"], "Labels": None}
    images.history = {RUNTIME: [{"CreatedBy": "RUN true"}]}
    assert only(files.leftovers, images) == Verdict(
        State.OK, "nothing added (of the base itself: compiler or build tool, ssh server)"
    )
    images.image = images.below = contents("/opt/x")
    images.config = {}
    assert only(files.leftovers, images).detail == "nothing"


def test_a_base_of_our_own_excuses_nothing(own: Described) -> None:
    faults = (
        File("/usr/bin/gcc", "f", 0o755, 0, 0),
        File("/opt/a", "f", 0o4755, 0, 0),
        File("/opt/b", "d", 0o777, 0, 0),
        File("/opt/c", "f", 0o644, 4242, 0),
    )
    own.image = own.below = contents(*faults)
    assert failure(files.leftovers, own) == "compiler or build tool: /usr/bin/gcc"
    assert failure(files.rights, own).splitlines() == [
        "setuid or setgid: /opt/a (mode 4755)",
        "world-writable: /opt/b (mode 777)",
    ]
    assert failure(files.owners, own) == "/opt/c (owner 4242:0)"


def test_a_base_of_a_registry_excuses_what_it_brings_itself(images: Described) -> None:
    faults = (File("/opt/a", "f", 0o4755, 0, 0), File("/opt/b", "d", 0o777, 4242, 0))
    images.image = images.below = contents(*faults)
    assert only(files.rights, images) == Verdict(State.OK, "nothing added")
    assert only(files.owners, images) == Verdict(State.OK, "all have a name")
    images.below = contents()
    assert failure(files.rights, images).count("\n") == 1
    assert failure(files.owners, images) == "/opt/b (owner 4242:0)"


def test_debians_own_setuid_programs_are_known_with_their_modes_on_our_own_base_only(
    own: Described, images: Described
) -> None:
    debian = [File(path, "f", mode, 0, 0) for path, mode in filesystem.DEBIAN_SETUID.items()]
    names = "chage chfn chsh expiry gpasswd mount newgrp passwd ssh-agent su umount unix_chkpwd"
    assert sorted(Path(path).name for path in filesystem.DEBIAN_SETUID) == names.split()
    assert {str(Path(path).parent) for path in filesystem.DEBIAN_SETUID} == {"/usr/bin", "/usr/sbin"}
    own.image = images.image = contents(*debian)
    assert only(files.rights, own).state is State.OK
    assert failure(files.rights, images).count("setuid or setgid") == 8  # and 4 more
    own.image = contents(*(replace(file, mode=0o6755) for file in debian))
    assert failure(files.rights, own).endswith("and 4 more")


# Libraries


def test_backend_server_and_python_backend_are_asked_what_they_do_not_find(images: Described) -> None:
    server = "/opt/tritonserver"
    seen = [
        *sorted(LIBRARIES),
        f"{server}/bin/tritonserver",
        f"{server}/lib/libtritonserver.so",
        f"{server}/backends/python/libtriton_python.so",
        f"{server}/backends/python/triton_python_backend_stub",
    ]
    images.image = contents(*seen, f"{BACKEND}/config", f"{BACKEND}-other/libx.so", "/usr/lib/liby.so")
    images.output = "".join(f"== {path}\n\tstatically linked\n" for path in seen)
    assert only(libraries.resolve, images) == Verdict(
        State.OK, ("7 libraries and programs find all that they are linked with")
    )
    (script,) = images.asked
    assert [line.split("ldd -r ")[1].split(" ")[0] for line in script.splitlines()] == seen
    images.output = f"== {seen[0]}\n\tlibx.so => not found\n"
    assert failure(libraries.resolve, images) == f"{Path(seen[0]).name}: libx.so => not found"


def test_only_files_that_an_image_has_are_asked(images: Described) -> None:
    """A server without the Python backend lacks nothing."""
    seen = [*sorted(LIBRARIES), "/opt/tritonserver/lib/libtritonserver.so"]
    images.image = contents(*seen)
    images.output = "".join(f"== {path}\n\tstatically linked\n" for path in seen)
    assert only(libraries.resolve, images).state is State.OK
    (script,) = images.asked
    assert [line.split("ldd -r ")[1].split(" ")[0] for line in script.splitlines()] == seen


@pytest.mark.parametrize("lacking", LIBRARIES)
def test_a_backend_without_one_of_its_libraries_fails(images: Described, lacking: str) -> None:
    images.image = contents(*(path for path in LIBRARIES if path != lacking))
    assert failure(libraries.resolve, images) == f"{Path(lacking).name} is not in {BACKEND}"


NCCL = "/usr/local/lib/libnccl.so.2.21.5"


def test_nccl_is_found_as_a_file_and_must_run_on_every_sm(images: Described) -> None:
    link = File("/usr/local/lib/libnccl.so.2", "l", 0o777, 0, 0)
    images.image = contents("/opt/readme", link, NCCL, "/usr/lib/libnccl.so.2-doc")
    images.listed = (Library(NCCL, {"sm_80": 3, "sm_90a": 1}, {}, (), ()),)
    images.plan = replace(images.plan, cell=replace(images.plan.cell, sms=(Sm(86), Sm(90))))
    verdict = only(libraries.collectives, images)
    assert (verdict.state, verdict.detail) == (State.OK, "SASS sm_80 (3), sm_90a (1)")
    assert verdict.facts == {"sass": {"sm_80": 3, "sm_90a": 1}}
    assert images.asked == [NCCL]
    images.plan = replace(images.plan, cell=replace(images.plan.cell, sms=(Sm(75), Sm(80))))
    assert failure(libraries.collectives, images) == (
        f"{NCCL} has no machine code for sm_75, only for sm_80, sm_90"
    )


def test_an_image_without_nccl_fails(images: Described) -> None:
    images.image = contents("/opt/readme", File("/usr/lib/libnccl.so.2", "l", 0o777, 0, 0))
    assert failure(libraries.collectives, images) == "there is no libnccl.so.2"


def test_the_scripts_of_an_image_are_known_before_its_checks(own: Described, images: Described) -> None:
    """So that they share a container; a check that asks for another one starts its own."""
    link = File("/usr/local/lib/libnccl.so.2", "l", 0o777, 0, 0)
    for described in (own, images):
        described.image = contents(*LIBRARIES, link, NCCL)
        described.output = "/lib/libx.so:\n"
        *scripts, nccl = libraries.scripts(described, "runtime")  # type: ignore[arg-type]
        assert nccl == f"list {NCCL}"
        for check in (libraries.resolve, libraries.complete):
            only(check, described)
        assert described.asked == scripts
        described.image = contents(*LIBRARIES)
        assert [*libraries.scripts(described, "runtime")] == scripts  # type: ignore[arg-type]


# Programs


def serving(version: str | None) -> Callable[..., Any]:
    @contextmanager
    def serve(image: str, models: Path) -> Iterator[Any]:
        assert image == RUNTIME
        assert not list(models.iterdir())
        if version is None:
            raise SmokeError("the server ended before it was ready")
        yield SimpleNamespace(url="http://localhost:1")

    return serve


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    def answer(version: str | None) -> None:
        import requests

        def get(url: str, timeout: float) -> Any:
            assert url == "http://localhost:1/v2"
            return SimpleNamespace(json=lambda: {"version": version})

        monkeypatch.setattr(server_container, "serve", serving(version))
        monkeypatch.setattr(requests, "get", get)

    return answer


def test_the_server_must_be_of_the_version_in_its_label(
    images: Described, server: Callable[[str | None], None]
) -> None:
    server("2.29.0")
    images.config = {"Labels": {"io.ftbuild.server": "2.29.0"}}
    assert only(programs.starts, images) == Verdict(State.OK, "version 2.29.0", "", {"version": "2.29.0"})
    images.config = {"Labels": {"io.ftbuild.server": "2.51.0"}}
    assert failure(programs.starts, images) == "the server is 2.29.0, its label 2.51.0"
    images.config = {}
    assert failure(programs.starts, images) == "the server is 2.29.0, its label is missing"
    server(None)
    assert failure(programs.starts, images) == "the server ended before it was ready"


def test_every_library_for_python_is_loaded(images: Described) -> None:
    images.output = "/opt/ftbuild/lib/liba.so\n/opt/ftbuild/lib/libb.so\n"
    (verdict,) = programs.importable(images, "sdk")  # type: ignore[arg-type]
    assert verdict == Verdict(State.OK, "/opt/ftbuild/lib/liba.so, /opt/ftbuild/lib/libb.so")
    assert 'glob.glob("/opt/ftbuild/lib/*.so")' in images.asked[0]
    images.output = ""
    (verdict,) = programs.importable(images, "sdk")  # type: ignore[arg-type]
    assert (verdict.state, verdict.detail) == (State.FAIL, "there is no library in /opt/ftbuild/lib")


def test_the_packages_for_tokenization_are_imported(images: Described) -> None:
    images.output = "0.20.3\n"
    assert only(programs.tokenization, images) == Verdict(State.OK, "tokenizers 0.20.3")
    assert "import numpy, tokenizers" in images.asked[0]
    images.output = ContainerError("a script ended with code 1")
    with pytest.raises(ContainerError):
        only(programs.tokenization, images)


# Recipe


def test_every_label_of_the_plan_but_those_of_the_checkout_is_compared(images: Described) -> None:
    wanted = images.plan.labels("runtime")
    checkout = {f"org.opencontainers.image.{name}" for name in
                ("created", "revision", "source", "url", "documentation")}  # fmt: skip
    checkout |= {"io.ftbuild.holes", "io.ftbuild.holes-known", "io.ftbuild.support-end"}
    images.config = {"Labels": {**wanted, **dict.fromkeys(checkout, "of another checkout"), "more": "x"}}
    assert only(recipe.labels, images) == Verdict(State.OK, f"{len(wanted) - 8} labels")
    for name in wanted.keys() - checkout:
        images.config = {"Labels": {**wanted, name: "wrong"}}
        assert failure(recipe.labels, images) == f"{name} is 'wrong', in the plan {wanted[name]!r}"
        images.config = {"Labels": {n: v for n, v in wanted.items() if n != name}}
        assert failure(recipe.labels, images) == f"{name} is None, in the plan {wanted[name]!r}"


@pytest.mark.parametrize(
    ("configured", "passes"),
    [
        (None, False),
        ([], False),
        (["PATH=/bin"], False),
        (["NCCL_LAUNCH_MODE=PARALLEL"], False),
        (["PATH=/bin", "NCCL_LAUNCH_MODE=GROUP"], True),
    ],
)
def test_an_image_without_the_launch_mode_of_nccl_fails(
    images: Described, configured: list[str] | None, passes: bool
) -> None:
    images.config = {"Env": configured}
    if passes:
        assert only(recipe.environment, images) == Verdict(State.OK, "NCCL_LAUNCH_MODE=GROUP")
    else:
        assert failure(recipe.environment, images) == "NCCL_LAUNCH_MODE=GROUP is not set"


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ("1000:1000", None),
        ("1000", None),
        ("triton", None),
        (None, "the image runs as root"),
        ("", "the image runs as root"),
        ("root", "the image runs as root"),
        ("0:0", "the image runs as root"),
        ("4242:0", "the image runs as 4242, which is not in /etc/passwd"),
        ("ghost", "the image runs as ghost, which is not in /etc/passwd"),
    ],
)
def test_the_user_must_exist_and_not_be_root(
    images: Described, user: str | None, problem: str | None
) -> None:
    images.config = {"User": user}
    if problem:
        assert failure(recipe.user, images) == problem
    else:
        assert only(recipe.user, images) == Verdict(State.OK, str(user))


def test_the_added_layers_are_listed_and_stand_on_the_base(images: Described) -> None:
    old = [{"Size": 7_000_000, "CreatedBy": "base"}, {"Size": 0, "CreatedBy": "ENV"}]
    long = f"RUN |2 A=1 B=2 /bin/sh -c {'x' * 100} # buildkit"
    new = [
        {"Size": 3_000_000, "CreatedBy": long},
        {"Size": 0, "CreatedBy": "USER 1000"},
        {"Size": 2_000_000, "CreatedBy": "/bin/sh -c #(nop) COPY\n  a b # buildkit"},
        {"Size": 1_000_000, "CreatedBy": ""},
    ]
    images.history = {RUNTIME: [*new, *old], BASE: old}
    images.layers = {RUNTIME: ["a", "b", "c"], BASE: ["a", "b"]}
    verdict = only(recipe.layers, images)
    assert verdict.state is State.OK
    assert [fact["by"] for fact in verdict.facts["layers"]] == ["x" * 80, "COPY a b", "imported"]
    assert [fact["bytes"] for fact in verdict.facts["layers"]] == [3_000_000, 2_000_000, 1_000_000]
    total, *lines = verdict.detail.splitlines()
    assert total.endswith(" added")
    assert [line.split("  ")[1] for line in lines] == ["x" * 80, "COPY a b", "imported"]
    images.layers = {RUNTIME: ["a", "c", "b"], BASE: ["a", "b"]}
    assert failure(recipe.layers, images) == f"the image is not built on {images.plan.base.serving}"


def test_patches_that_are_not_in_an_image_are_skipped_by_name(
    images: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def archive(client: Any, image: str, folder: str) -> Iterator[list[bytes]]:
        yield [tar({"x": b""})]

    compared = Comparison(right=["ft/1.patch"], elsewhere=["ft/2.patch"], files=3)
    monkeypatch.setattr(recipe.container, "archive", archive)  # type: ignore[attr-defined]
    given: list[object] = []

    def compare(pinned: object, found: Mapping[Place, str], plan: object, *, staged: object) -> Comparison:
        given[:] = [pinned, set(found), plan, staged]
        return compared

    monkeypatch.setattr(sources, "compare", compare)
    monkeypatch.setattr(sources, "expected", lambda subject: f"of {subject}")
    subject: Any = images
    subject.subject, subject.staged, subject.expected = "the cell", "its sources", None
    seen, skipped = recipe.patched(subject, "sdk")
    assert seen == Verdict(
        State.OK, "1 patches seen, 3 files as pinned and patched", "", {"patches": ["ft/1.patch"]}
    )
    found = {("ft", "x"), ("backend", "x")}
    assert given == ["of the cell", found, images.plan, "its sources"]
    subject.expected = "prepared"
    assert list(recipe.patched(subject, "sdk")) == [seen, skipped]
    assert given[0] == "prepared"
    assert (skipped.state, skipped.facts) == (State.SKIP, {"patches": ["ft/2.patch"]})
    assert skipped.detail.startswith("1 patches change compiled files only")
    compared.wrong, compared.elsewhere = {"ft/1.patch": ["ft/a differs", "ft/b is missing"]}, []
    (wrong,) = recipe.patched(subject, "sdk")
    assert (wrong.state, wrong.detail) == (State.FAIL, "ft/1.patch: ft/a differs, ft/b is missing")


# Sources


def tar(content: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        folder = tarfile.TarInfo("tree")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in content.items():
            entry = tarfile.TarInfo(f"tree/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(f"tree/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()


FT, TOOLS = TREES


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Pinned and patched trees of both components; four patches, two of which change shipped files."""
    folders = {tree.component: tmp_path / tree.component for tree in TREES}
    for path, text in {
        "ft/examples/a.py": "patched",
        "ft/examples/deep/b.py": "as pinned",
        "ft/src/kernel.cu": "patched kernel",
        "backend/tools/t.py": "patched tool",
        "backend/all_models/m.txt": "model",
        "backend/src/x.cc": "not shipped",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (folders["ft"] / "examples/link.py").symlink_to("a.py")
    touched = {
        "ft/1-example.patch": {("ft", "examples/a.py"), ("ft", "src/kernel.cu")},
        "ft/2-kernel.patch": {("ft", "src/kernel.cu")},
        "backend/3-tool.patch": {("backend", "tools/t.py")},
    }

    @contextmanager
    def patched(subject: Any, patches: Any) -> Iterator[dict[str, Path]]:
        yield folders

    monkeypatch.setattr(sources, "_patched", patched)
    monkeypatch.setattr(sources, "_changes", lambda subject: [])
    monkeypatch.setattr(sources, "_touched", lambda patches: touched)
    return folders


def shipped(**changed: bytes | None) -> dict[Place, str]:
    """What is in the image, with files changed or, for None, removed."""
    ft: dict[str, bytes | None] = {"examples/a.py": b"patched", "examples/deep/b.py": b"as pinned"}
    tool: dict[str, bytes | None] = {"tools/t.py": b"patched tool", "all_models/m.txt": b"model"}
    for name, data in changed.items():
        path = name.replace("__", "/").replace("_py", ".py")
        (ft if path.startswith("examples") else tool)[path] = data
    kept = {
        tree: {path: data for path, data in made.items() if data is not None}
        for tree, made in ((FT, ft), (TOOLS, tool))
    }
    return {
        **sources.in_tar(FT, [tar(kept[FT], {"examples/link.py": "a.py"})]),
        **sources.in_tar(TOOLS, [tar(kept[TOOLS])]),
    }


def compare(config: Config, found: Mapping[Place, str], staged: Path | None = None) -> Comparison:
    subject: Any = SimpleNamespace(plan=planned(config, "ngc"))
    return sources.compare(sources.expected(subject), found, subject.plan, staged=staged)


def test_the_files_of_each_patch_are_those_of_its_diff(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n"

    def diff(patch: PlannedPatch, cache: Path, *, report: object) -> bytes:
        return other if isinstance(patch.change, Backport) else patch.change

    monkeypatch.setattr(taking, "diff", diff)
    plan = planned(config, "ngc")
    subject: Any = SimpleNamespace(plan=plan, cache=None, report=None)
    changes = sources._changes(subject)
    assert all(isinstance(patch.change, bytes) for patch in changes)  # else they are read again when applied
    touched = sources._touched(changes)
    assert list(touched) == [f"{patch.component}/{patch.file}" for patch in plan.patches]
    assert touched["ft/0040-sm-89.patch"] == {("ft", "CMakeLists.txt")}
    assert ("backend", "tools/identity_test.py") in touched["backend/0030-np-bool.patch"]
    assert {("ft", "a.py")} in touched.values()


def test_an_image_with_the_pinned_and_patched_sources_shows_its_patches(
    config: Config, trees: dict[str, Path]
) -> None:
    found = compare(config, shipped())
    assert found.wrong == {}
    assert found.right == ["ft/1-example.patch", "backend/3-tool.patch"]
    assert found.elsewhere == ["ft/2-kernel.patch"]
    assert found.files == 5


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"examples__a_py": b"as pinned"}, {"ft/1-example.patch": ["ft/examples/a.py differs"]}),
        ({"examples__a_py": None}, {"ft/1-example.patch": ["ft/examples/a.py is missing"]}),
        ({"tools__t_py": b"other"}, {"backend/3-tool.patch": ["backend/tools/t.py differs"]}),
        ({"examples__deep__b_py": b"other"}, {sources.UNPATCHED: ["ft/examples/deep/b.py differs"]}),
        ({"examples__new_py": b"x"}, {sources.UNPATCHED: ["ft/examples/new.py does not belong there"]}),
    ],
)
def test_each_difference_is_put_down_to_its_patch_or_to_none(
    config: Config, trees: dict[str, Path], changed: dict[str, bytes | None], wrong: dict[str, list[str]]
) -> None:
    assert compare(config, shipped(**changed)).wrong == wrong


def test_patches_of_compiled_files_are_looked_for_in_the_staged_sources(
    config: Config, trees: dict[str, Path], tmp_path: Path
) -> None:
    staged = tmp_path / "staged"
    kernel = staged / planned(config, "ngc").source("ft").path / "src/kernel.cu"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("patched kernel")
    assert compare(config, shipped(), staged).right == [
        "ft/1-example.patch",
        "ft/2-kernel.patch",
        "backend/3-tool.patch",
    ]
    kernel.write_text("as pinned")
    assert compare(config, shipped(), staged).wrong == {"ft/2-kernel.patch": ["ft/src/kernel.cu differs"]}
    kernel.unlink()
    assert compare(config, shipped(), staged).wrong == {"ft/2-kernel.patch": ["ft/src/kernel.cu is missing"]}
    assert compare(config, shipped(), tmp_path / "gone").elsewhere == ["ft/2-kernel.patch"]
