"""The gate without a GPU: what must be true of a built pair of images before anybody smoke-tests it.

Every check looks at the images themselves, by id, never at what the build says that it did. The checks are
a table; each is a function that yields verdicts, and a failing one says what to do next. docs/verify.md
describes them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache as memoised
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild import __version__
from ftbuild.build import context
from ftbuild.client import server_container
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon
from ftbuild.errors import FtbuildError, SmokeError, VerifyError
from ftbuild.gates import report as verdict
from ftbuild.gates.report import VERIFY, Finding, Report, State, Verdict
from ftbuild.gates.verify import elf, filesystem, sources
from ftbuild.plan import LABELS, PRODUCTS, Plan
from ftbuild.sm import Sm, sm_codes
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import size

if TYPE_CHECKING:
    import docker

SERVER_FOLDER = "/opt/tritonserver"
BACKEND = f"{SERVER_FOLDER}/backends/fastertransformer"
LIBRARIES = {"runtime": BACKEND, "sdk": "/opt/ftbuild/lib"}
# Without them a backend folder is no backend (BE v1.4 CMakeLists.txt, targets).
REQUIRED = ("libtriton_fastertransformer.so", "libtransformer-shared.so")
# With BUILD_MULTI_GPU the libraries need both (FT v5.3 CMakeLists.txt:61).
MULTI_GPU = ("libmpi.so", "libnccl.so")
# FT v5.3 CMakeLists.txt:295 adds it wherever it builds; nobody but root can put anything there.
UPSTREAM_SEARCH = ("/usr/local/mpi/lib",)
# They depend on the checkout, not on what is built (plan.Revision).
CHECKOUT_LABELS = tuple(
    f"org.opencontainers.image.{name}" for name in ("created", "revision", "source", "url", "documentation")
)
SHOWN = 8
REBUILD = "invoke build --rebuild with the options of this cell"
REPORT_BUG = f"{REBUILD}; if it stays, the recipe is wrong: dockerfiles/triton-ft.Dockerfile"
_NCCL = re.compile(r".*/libnccl\.so\.[\d.]+")
_PASSWORD = re.compile(r"://[^/@\s:]+:[^/@\s]+@")
_STEP = re.compile(r"^(?:RUN (?:\|\d+ .*? )?/bin/sh -c |/bin/sh -c (?:#\(nop\) )?)", re.S)
# A process for each library: those of FT v5.2, one a model, register the same names with torch, which then
# ends the process. torch's libraries are found once torch is loaded, which the converters do first as well.
_IMPORT = """\
import glob, subprocess, sys
LOAD = '''
import ctypes, importlib.util, sys
if importlib.util.find_spec("torch"):
    import torch
ctypes.CDLL(sys.argv[1])
'''
for library in sorted(glob.glob("/opt/ftbuild/lib/*.so")):
    done = subprocess.run([sys.executable, "-c", LOAD, library], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{library}: code {done.returncode}: {done.stderr.strip()[-300:]}")
    print(library)
"""


class Subject:
    """The images under test and, read at most once, what is in them."""

    def __init__(
        self,
        client: docker.DockerClient,
        config: Config,
        plan: Plan,
        images: Mapping[str, str],
        cache: Path,
        staged: Path | None,
        report: Reporter,
    ) -> None:
        """`images`: product -> image id."""
        self.client = client
        self.config = config
        self.plan = plan
        self.images = images
        self.cache = cache
        self.staged = staged
        self.progress = report
        hint = f"invoke base --base {plan.base.name}" if plan.base.local else "docker load it, or docker pull"
        self.base = container.available(client, plan.base.serving, "comparing with the base", hint)
        self.devel = container.available(client, plan.base.devel, "listing machine code", hint)
        self.contents = memoised(self._contents)
        self.libraries = memoised(self._libraries)

    def attributes(self, image: str) -> dict[str, Any]:
        """What the engine knows of an image (docker image inspect)."""
        attributes: dict[str, Any] = self.client.images.get(image).attrs
        return attributes

    def labels(self, product: str) -> dict[str, str]:
        """The labels of a product's image."""
        return self.attributes(self.images[product])["Config"].get("Labels") or {}

    def _contents(self, image: str) -> filesystem.Contents:
        return filesystem.parse(container.run(self.client, image, filesystem.LISTING, user="0"))

    def _libraries(self, product: str) -> tuple[elf.Library, ...]:
        """Our libraries in a product's image, seen by the tools of the toolkit's image."""
        folder = LIBRARIES[product]
        script = elf.inspection(f"/tmp/{Path(folder).name}/*.so", folder)
        with container.archive(self.client, self.images[product], folder) as tar:
            return elf.libraries(container.run(self.client, self.devel, script, user="0", files=tar))


Check = Callable[[Subject, str], Iterator[Verdict]]


def verify(
    client: docker.DockerClient,
    config: Config,
    plan: Plan,
    cache: Path,
    *,
    images: Mapping[str, str] | None = None,
    staged: Path | None = None,
    report: Reporter = lambda message: None,
) -> Report:
    """Run every check on the images of `plan`, or on other `images` (product -> name) as if they were these.

    `cache` holds the sources' git objects, `staged` the sources of the build if they are still there. A
    check that cannot be made fails. Raises VerifyError when an image does not exist, HostError when the base
    or its compiler image cannot be had.
    """
    names = images or {product: plan.tag(product) for product in PRODUCTS}
    ids = {product: daemon.require_image(client, name, VerifyError) for product, name in names.items()}
    subject = Subject(client, config, plan, ids, cache, staged, report)
    findings = tuple(
        Finding(name, product, verdict)
        for name, products, check in CHECKS
        for product in products
        for verdict in _outcome(check, subject, product)
    )
    return Report(VERIFY, plan, ids, findings)


def run(
    client: docker.DockerClient, config: Config, plan: Plan, cache: Path, folder: Path, *, report: Reporter
) -> Report:
    """Verify the images of `plan`, with the help of the `folder` of its build, and put the record there."""
    staged = folder / context.SOURCES
    found = verify(client, config, plan, cache, staged=staged, report=report)
    found.write(folder)
    return found


def require(
    client: docker.DockerClient, config: Config, plan: Plan, cache: Path, folder: Path, *, report: Reporter
) -> None:
    """The same, unless the record says that these very images passed this version of the checks.

    Raises VerifyError naming every check that failed.
    """
    record = verdict.read(VERIFY, folder)
    ids = {product: daemon.require_image(client, plan.tag(product), VerifyError) for product in PRODUCTS}
    if not (record and record.passed and record.ftbuild == __version__ and record.images == ids):
        report("verifying both images")
        run(client, config, plan, cache, folder, report=report).require()


def _outcome(check: Check, subject: Subject, product: str) -> list[Verdict]:
    """A check's verdicts; a check that breaks has failed, since nothing has been shown."""
    from docker.errors import DockerException
    from requests import RequestException

    try:
        return list(check(subject, product))
    except FtbuildError as error:
        return [Verdict(State.FAIL, error.what, error.hint or REPORT_BUG)]
    except (DockerException, RequestException) as refused:
        return [Verdict(State.FAIL, f"the engine says: {refused}", REPORT_BUG)]


def _result(problems: Iterable[str], fine: str, hint: str, facts: Mapping[str, Any] | None = None) -> Verdict:
    """Failed with the problems, if there are any, else what was seen to be fine."""
    found = list(problems)
    if not found:
        return Verdict(State.OK, fine, facts=facts or {})
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return Verdict(State.FAIL, "\n".join([*found[:SHOWN], *more]), hint, facts or {})


def machine_code(subject: Subject, product: str) -> Iterator[Verdict]:
    """SASS for exactly the cell's SMs; PTX for the very same, as FT v5.3 CMakeLists.txt:149 embeds it."""
    libraries = subject.libraries(product)
    wanted = {sm.code for sm in subject.plan.cell.sms}
    facts = {
        "sass": elf.architectures(library.sass for library in libraries),
        "ptx": elf.architectures(library.ptx for library in libraries),
    }
    problems = [
        f"{kind.upper()} for {_join(found) or 'no SM'}, the cell wants {_join(wanted)}"
        for kind, found in facts.items()
        if set(found) != wanted
    ]
    fine = ", ".join(f"{kind.upper()} {_counts(found)}" for kind, found in facts.items())
    hint = "build the cell again, its images came from another SM list; a GPU would hide this through JIT"
    yield _result(problems, fine, hint, facts)


def resolve(subject: Subject, product: str) -> Iterator[Verdict]:
    """Backend and server find every library and symbol; what the driver brings may be absent."""
    files = subject.contents(subject.images[product]).files
    own = [path for path in files if path.startswith(f"{BACKEND}/") and path.endswith(".so")]
    server_side = [
        f"{SERVER_FOLDER}/bin/tritonserver",
        f"{SERVER_FOLDER}/lib/libtritonserver.so",
        f"{SERVER_FOLDER}/backends/python/libtriton_python.so",
        f"{SERVER_FOLDER}/backends/python/triton_python_backend_stub",
    ]
    seen = [*sorted(own), *(path for path in server_side if path in files)]
    text = container.run(subject.client, subject.images[product], elf.resolution(seen))
    missing = [f"{name} is not in {BACKEND}" for name in REQUIRED if f"{BACKEND}/{name}" not in own]
    yield _result(
        [*missing, *elf.unresolved(text)],
        f"{len(seen)} libraries and programs find everything",
        f"the base lacks a package or the image lost a file: compare it with the base, then {REBUILD}",
    )


def multi_gpu(subject: Subject, product: str) -> Iterator[Verdict]:
    """MPI and NCCL are linked."""
    needed = {name for library in subject.libraries(product) for name in library.needed}
    linked = sorted(name for name in needed if name.startswith(MULTI_GPU))
    absent = [name for name in MULTI_GPU if not any(lib.startswith(name) for lib in linked)]
    yield _result(
        (f"no library is linked with {name}" for name in absent),
        ", ".join(linked),
        "BUILD_MULTI_GPU must be ON (ftbuild/cmake.py): without it a model runs on one GPU only",
    )


def collectives(subject: Subject, product: str) -> Iterator[Verdict]:
    """NCCL, which comes with the base, has machine code that runs on every SM of the cell."""
    image = subject.images[product]
    files = subject.contents(image).files.values()
    (path, *_) = [file.path for file in files if file.kind == "f" and _NCCL.fullmatch(file.path)] or [""]
    if not path:
        yield Verdict(State.FAIL, "there is no libnccl.so.2", "the base must bring NCCL", {})
        return
    script = elf.inspection(f"/tmp/{Path(path).name}", str(Path(path).parent))
    with container.archive(subject.client, image, path) as tar:
        text = container.run(subject.client, subject.devel, script, user="0", files=tar)
    (library,) = elf.libraries(text)
    codes = sorted(Sm.parse(name.rstrip("a")) for name in library.sass)
    problems = [
        f"{path} has no machine code for {sm.code}, only for {sm_codes(codes)}"
        for sm in subject.plan.cell.sms
        if not any(code.runs_on(sm) for code in codes)
    ]
    hint = "a model over several GPUs would end the server: the base needs an NCCL built for that SM"
    yield _result(problems, f"SASS {_counts(library.sass)}", hint, {"sass": dict(library.sass)})


def search_paths(subject: Subject, product: str) -> Iterator[Verdict]:
    """RPATH and RUNPATH lead to folders of the image that not everybody may fill."""
    image = subject.contents(subject.images[product])
    problems, seen = [], set()
    for library in subject.libraries(product):
        for written, folder in library.searched():
            seen.add(written)
            if not image.is_folder(folder) and folder not in UPSTREAM_SEARCH:
                problems.append(f"{library.path}: search path {written} is no folder of the image")
            elif folder in image.files and any(filesystem.open_to_all([image.files[folder]])):
                problems.append(f"{library.path}: everybody may write to its search path {written}")
    yield _result(problems, ", ".join(sorted(seen)) or "none", REPORT_BUG)


def starts(subject: Subject, product: str) -> Iterator[Verdict]:
    """The server gets ready without GPU and without models, and says the version that the label says."""
    import requests

    labelled = subject.labels(product).get(f"{LABELS}.server", "")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ftbuild-models-") as empty,
            server_container.serve(subject.images[product], Path(empty)) as running,
        ):
            found = str(requests.get(f"{running.url}/v2", timeout=10).json()["version"])
    except SmokeError as silent:
        raise VerifyError(silent.what, hint="docker run the image by hand; the server must start") from silent
    problems = [] if found == labelled else [f"the server says {found}, the label {labelled or 'nothing'}"]
    hint = f"bases.yaml (server) or matrix.yaml names a server that {subject.plan.base.serving} does not hold"
    yield _result(problems, f"version {found}", hint, {"version": found})


def labels(subject: Subject, product: str) -> Iterator[Verdict]:
    """Every label of the plan, but for those that tell of the checkout."""
    found = subject.labels(product)
    wanted = {n: v for n, v in subject.plan.labels(product).items() if n not in CHECKOUT_LABELS}
    problems = (
        f"{name} is {found.get(name)!r}, the plan says {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    )
    yield _result(problems, f"{len(wanted)} labels", f"the image was made from another plan: {REBUILD}")


def patched(subject: Subject, product: str) -> Iterator[Verdict]:
    """The sources in the image are the pinned ones with the series applied, file by file."""
    image: dict[sources.Place, str] = {}
    for tree in sources.TREES:
        with container.archive(subject.client, subject.images[product], tree.folder) as tar:
            image.update(sources.in_tar(tree, tar))
    compared = sources.compare(
        subject.config,
        subject.plan,
        image,
        subject.cache,
        staged=subject.staged,
        report=subject.progress,
    )
    yield _result(
        (f"{name}: {', '.join(wrong)}" for name, wrong in compared.wrong.items()),
        f"{len(compared.right)} patches seen, {compared.files} files as pinned and patched",
        f"the image was changed after its build or made from other sources: {REBUILD}",
        {"patches": compared.right},
    )
    if compared.elsewhere:
        yield Verdict(
            State.SKIP,
            f"{len(compared.elsewhere)} patches change compiled files only, which no image holds",
            facts={"patches": compared.elsewhere},
        )


def importable(subject: Subject, product: str) -> Iterator[Verdict]:
    """Python loads the libraries for PyTorch."""
    script = f"python3 - <<'PYTHON'\n{_IMPORT}PYTHON"
    loaded = container.run(subject.client, subject.images[product], script).split()
    problems = [] if loaded else [f"there is no library in {LIBRARIES[product]}"]
    yield _result(problems, ", ".join(loaded), REPORT_BUG)


def tokenization(subject: Subject, product: str) -> Iterator[Verdict]:
    """The server's Python has what the pre- and postprocessing of an ensemble import."""
    script = "python3 -c 'import numpy, tokenizers; print(tokenizers.__version__)'"
    version = container.run(subject.client, subject.images[product], script).strip()
    yield Verdict(State.OK, f"tokenizers {version}")


def leftovers(subject: Subject, product: str) -> Iterator[Verdict]:
    """Nothing of the build, no tool to build with, no credential, beyond the base."""
    image, base = _with_base(subject, product)
    brought = filesystem.brought_by_base(base)
    passwords = [
        f"password in a URL: {place}"
        for place, text in _recorded(subject, subject.images[product])
        if _PASSWORD.search(text)
    ]
    yield _result(
        [*filesystem.leftovers(image, base), *passwords],
        f"nothing added (of the base itself: {', '.join(brought)})" if brought else "nothing",
        "a stage of dockerfiles/triton-ft.Dockerfile leaves it; a credential that got into a layer must be "
        "revoked as well",
    )


def owners(subject: Subject, product: str) -> Iterator[Verdict]:
    """Every added file has an owner and a group with a name."""
    problems = filesystem.unknown_owners(*_with_base(subject, product))
    yield _result(problems, "all have a name", f"COPY with --chown, or make the user; {REPORT_BUG}")


def rights(subject: Subject, product: str) -> Iterator[Verdict]:
    """No added program runs with another's rights, no added file can be written by everybody."""
    both = _with_base(subject, product)
    problems = [
        *(f"setuid or setgid: {path}" for path in filesystem.setuid(*both)),
        *(f"everybody may write: {path}" for path in filesystem.world_writable(*both)),
    ]
    yield _result(problems, "nothing added", f"chmod it in its stage; {REPORT_BUG}")


def user(subject: Subject, product: str) -> Iterator[Verdict]:
    """The image runs as a user that exists and is not root."""
    configured = str(subject.attributes(subject.images[product])["Config"].get("User") or "")
    name = configured.partition(":")[0]
    users = subject.contents(subject.images[product]).users
    uid = int(name) if name.isdigit() else users.get(name)
    problems = []
    if not name or uid == 0:
        problems.append("the image runs as root")
    elif uid not in users.values():
        problems.append(f"the image runs as {name}, whom /etc/passwd does not know")
    yield _result(problems, configured, "the last USER of the stage must be 1000:1000")


def layers(subject: Subject, product: str) -> Iterator[Verdict]:
    """The image stands on the plan's base; what it adds, layer by layer."""
    image, base = subject.images[product], subject.base
    stack, below = (subject.attributes(i)["RootFS"]["Layers"] for i in (image, base))
    history = subject.client.images.get(image).history()
    added = history[: len(history) - len(subject.client.images.get(base).history())]
    facts = [{"bytes": step["Size"], "by": _short(step["CreatedBy"])} for step in added if step["Size"]]
    total = sum(fact["bytes"] for fact in facts)
    yield _result(
        [] if stack[: len(below)] == below else [f"the image does not stand on {subject.plan.base.serving}"],
        "\n".join([f"{size(total)} added", *(f"{size(fact['bytes'])}  {fact['by']}" for fact in facts)]),
        f"the base was made again under the same name: {REBUILD}",
        {"layers": facts},
    )


RUNTIME, SDK = (("runtime",), ("sdk",))
CHECKS: tuple[tuple[str, Sequence[str], Check], ...] = (
    ("machine code", PRODUCTS, machine_code),
    ("libraries resolve", RUNTIME, resolve),
    ("multi GPU", RUNTIME, multi_gpu),
    ("NCCL", RUNTIME, collectives),
    ("search paths", PRODUCTS, search_paths),
    ("server starts", RUNTIME, starts),
    ("labels", PRODUCTS, labels),
    ("patches", SDK, patched),
    ("python library", SDK, importable),
    ("tokenization", RUNTIME, tokenization),
    ("left-overs", PRODUCTS, leftovers),
    ("owners", PRODUCTS, owners),
    ("rights", PRODUCTS, rights),
    ("user", PRODUCTS, user),
    ("layers", PRODUCTS, layers),
)


def _with_base(subject: Subject, product: str) -> tuple[filesystem.Contents, filesystem.Contents]:
    return subject.contents(subject.images[product]), subject.contents(subject.base)


def _recorded(subject: Subject, image: str) -> Iterator[tuple[str, str]]:
    """Every text that an image's configuration carries: environment, labels, steps of its build."""
    configured = subject.attributes(image)["Config"]
    yield from (("environment", text) for text in configured.get("Env") or ())
    yield from (("labels", text) for text in (configured.get("Labels") or {}).values())
    yield from (("history", step["CreatedBy"]) for step in subject.client.images.get(image).history())


def _short(step: str) -> str:
    """A build step on one line, without the shell and the arguments around it."""
    line = " ".join(_STEP.sub("", step).split()).removesuffix(" # buildkit")
    return line[:80] or "imported"


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{sm} ({count})" for sm, count in found.items()) or "none"
