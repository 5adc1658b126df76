"""What this machine lacks for a build, and how to mend it.

Each check looks at one thing and never raises. A `fail` stops every build; a `warn` stops only some work, as its
text says. Everything that talks to a network runs at the same time and has `TIMEOUT_SECONDS`, so that a dead
network costs seconds.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from packaging.version import Version

from ftbuild import base, build, cmake, engine, explain, registry, shell
from ftbuild.config import BaseConfig, Config, Repository
from ftbuild.errors import FtbuildError, HostError

State = Literal["ok", "warn", "fail"]
TIMEOUT_SECONDS = 5.0
# Name resolution obeys no timeout of ours: what is late by this much is reported and left behind.
_PATIENCE_SECONDS = 2.0
OLDEST_PYTHON = (3, 11)
# Fetching a commit by its id and checking out a part of a tree (release notes of git 2.25).
OLDEST_GIT = (2, 25)
# Where packages for a local base come from (dockerfiles/open-base.Dockerfile, pip's default index).
DEBIAN_MIRROR = "http://deb.debian.org/debian"
PYPI = "https://pypi.org/simple/pip/"
# What names a CA bundle to Python and buildx, to requests, curl, git and pip.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
_BEHIND_PROXY = (
    "check network, HTTPS_PROXY and, behind a proxy that inspects TLS, SSL_CERT_FILE and REQUESTS_CA_BUNDLE"
)

EngineInfo = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found and, unless it is `ok`, what to do about it."""

    name: str
    state: State
    found: str
    mend: str = ""


def checks(config: Config, work: Path) -> list[Check]:
    """Look at everything; takes as long as the slowest answer, at most `TIMEOUT_SECONDS` and a little."""
    asked = _start(_network_probes(config))
    connected = _start({"engine": _engine})
    found, info = _engine_result(connected["engine"])
    return [
        python_version(tuple(map(int, platform.python_version_tuple()[:2]))),
        _git(),
        found,
        _buildx(),
        *_disks(work, info),
        memory(*_size(info)),
        *_gpus(config, info),
        *certificates(os.environ),
        *_collect(asked),
    ]


def exit_code(found: Iterable[Check]) -> int:
    """HostError's code when anything failed; warnings are no failure."""
    return HostError.exit_code if any(check.state == "fail" for check in found) else 0


def render(found: Sequence[Check], output: str) -> str:
    """The checks as a table for people, or as JSON: a list of name, state, found, mend."""
    if output == "json":
        return json.dumps([asdict(check) for check in found], indent=2)
    rows = [(c.state, c.name, f"{c.found}\n-> {c.mend}" if c.mend else c.found) for c in found]
    count = {state: sum(check.state == state for check in found) for state in ("fail", "warn")}
    return f"{explain.render(('', 'Check', 'Found'), rows)}\n{count['fail']} failed, {count['warn']} warnings"


def python_version(version: tuple[int, ...]) -> Check:
    """Whether Python runs ftbuild."""
    text = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return Check("python", "ok", text)
    return Check("python", "fail", text, "install Python 3.11 or later, or run ./bootstrap")


def git_version(text: str) -> Check:
    """Whether `git --version` says a git that sources can be fetched with."""
    numbers = re.search(r"(\d+)\.(\d+)[\w.]*", text)
    if numbers is None:
        return Check("git", "warn", f"unknown version: {text}", "git 2.25 or later is needed")
    if tuple(map(int, numbers.groups())) < OLDEST_GIT:
        return Check("git", "fail", numbers[0], "install git 2.25 or later")
    return Check("git", "ok", numbers[0])


def storage(info: EngineInfo) -> Check:
    """Whether the engine of that `docker info` is one to build on: version and storage driver."""
    driver = str(info.get("Driver", "unknown"))
    found = f"{info.get('ServerVersion', 'unknown version')}, storage driver {driver}"
    if driver == "vfs":
        hint = "vfs copies every layer: slow, and disk for each; put the engine's data on ext4 or xfs"
        return Check("engine", "warn", found, hint)
    return Check("engine", "ok", found)


def memory(cores: int, memory_bytes: int) -> Check:
    """The cores and the memory that compile jobs get, and how many of them a build therefore runs."""
    jobs = cmake.jobs(cores, memory_bytes)
    found = f"{cores} cores, {memory_bytes / engine.GIB:.1f} GiB: {jobs} compile jobs"
    per_job = f"one job of the real sources takes up to {cmake.MEMORY_PER_JOB_BYTES / engine.GIB:.0f} GiB"
    if memory_bytes < cmake.MEMORY_PER_JOB_BYTES:
        return Check(
            "cpu, memory", "warn", found, f"{per_job}: add memory or swap, else the compiler is killed"
        )
    if jobs < cores:
        return Check("cpu, memory", "warn", found, f"{per_job}: more memory would use all cores")
    return Check("cpu, memory", "ok", found)


def gpus(config: Config, listing: str) -> list[Check]:
    """One check for each line of `nvidia-smi` (name, compute capability, driver): what it can serve."""
    found = []
    for line in listing.strip().splitlines():
        name, capability, driver = (field.strip() for field in line.rsplit(",", 2))
        sm = capability.replace(".", "")
        text = f"{name}, sm_{sm}, driver {driver}"
        if sm not in map(str, config.matrix.sms):
            found.append(Check("gpu", "warn", text, "no image is built for this SM: see invoke matrix"))
            continue
        late = [
            f"{r} (from {c.driver})" for r, c in config.matrix.releases.items() if _older(driver, c.driver)
        ]
        mend = f"the driver is too old for images of {', '.join(late)}: update it" if late else ""
        found.append(Check("gpu", "warn" if late else "ok", text, mend))
    return found


def gpu_in_containers(info: EngineInfo, cdi_specs: Sequence[str]) -> Check:
    """Whether the engine can hand a GPU to a container: by NVIDIA's runtime or by CDI."""
    if "nvidia" in info.get("Runtimes", {}):
        return Check("gpu in containers", "ok", "runtime nvidia")
    if cdi_specs and info.get("CDISpecDirs"):
        return Check("gpu in containers", "ok", f"CDI: {', '.join(cdi_specs)}")
    hint = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure`, restart the engine"
    return Check("gpu in containers", "warn", "neither NVIDIA's runtime nor a CDI specification", hint)


def certificates(environment: Mapping[str, str]) -> list[Check]:
    """The CA bundle that builds get, where one is set; nothing to say where none is."""
    named = {name: environment[name] for name in _CA_VARIABLES if environment.get(name)}
    missing = [f"{name}={file}" for name, file in named.items() if not Path(file).is_file()]
    if missing:
        return [Check("ca", "fail", f"no such file: {', '.join(missing)}", "correct or unset the variable")]
    if "SSL_CERT_FILE" in named:
        return [Check("ca", "ok", f"{named['SSL_CERT_FILE']}, also for downloads during builds")]
    if named:
        hint = "downloads during builds use SSL_CERT_FILE or --ca only: set one to the same file"
        return [Check("ca", "warn", f"{', '.join(named)} set, SSL_CERT_FILE is not", hint)]
    return []


def _engine() -> EngineInfo:
    client = engine.connect()
    try:
        info: EngineInfo = client.info()
    finally:
        client.close()
    return info


def _engine_result(asked: Future[EngineInfo]) -> tuple[Check, EngineInfo]:
    try:
        info = asked.result(TIMEOUT_SECONDS + _PATIENCE_SECONDS)
    except TimeoutError:
        where = os.environ.get("DOCKER_HOST", "the engine")
        hint = "restart the engine, or correct DOCKER_HOST"
        return Check("engine", "fail", f"{shell.redact(where)} does not answer", hint), {}
    except FtbuildError as silent:
        return _failed("engine", silent), {}
    return storage(info), info


def _git() -> Check:
    try:
        return git_version(shell.run(["git", "--version"], timeout=TIMEOUT_SECONDS).stdout.strip())
    except FtbuildError as missing:
        return _failed("git", missing)


def _buildx() -> Check:
    try:
        version = engine.buildx_version()
    except FtbuildError as missing:
        return _failed("buildx", missing)
    return Check("buildx", "ok", ".".join(map(str, version)))


def _disks(work: Path, info: EngineInfo) -> Iterator[Check]:
    """The work folder, and the engine's folder where the engine is on this machine."""
    yield _disk("disk: work folder", work, build.CELL_BYTES)
    root = Path(info.get("DockerRootDir", "/nonexistent"))
    if root.is_dir():
        yield _disk("disk: engine", root, build.CELL_BYTES + base.LOCAL_BASE_BYTES)


def _disk(name: str, folder: Path, wanted: int) -> Check:
    """`fail` where not even one cell fits, `warn` where it fits only once its base is there."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / engine.GIB:.0f} GiB free at {existing}"
    if free >= wanted:
        return Check(name, "ok", found)
    hint = (
        f"a build wants {wanted / engine.GIB:.0f} GiB: `docker builder prune` frees old layers, FTBUILD_WORK and "
        "FTBUILD_CACHE move our folders, data-root in /etc/docker/daemon.json moves the engine's"
    )
    return Check(name, "fail" if free < build.CELL_BYTES else "warn", found, hint)


def _size(info: EngineInfo) -> tuple[int, int]:
    """Cores and memory in bytes of the engine's machine, else of this one."""
    if info:
        return int(info["NCPU"]), int(info["MemTotal"])
    return os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gpus(config: Config, info: EngineInfo) -> Iterator[Check]:
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        listing = shell.run(query, timeout=TIMEOUT_SECONDS).stdout
    except FtbuildError:
        yield _no_gpu([str(node) for node in Path("/dev").glob("nvidia[0-9]*")])
        return
    yield from gpus(config, listing)
    specs = (s for d in info.get("CDISpecDirs") or () for s in Path(d).glob("*nvidia*"))
    yield gpu_in_containers(info, [str(spec) for spec in specs])


def _no_gpu(nodes: Sequence[str]) -> Check:
    if nodes:
        hint = "install NVIDIA's driver with nvidia-smi, or mend it"
        return Check("gpu", "warn", f"{', '.join(nodes)} exist, but nvidia-smi does not answer", hint)
    hint = "smoke tests will be skipped; building needs no GPU"
    return Check("gpu", "warn", "none", hint)


def _older(version: str, needed: str) -> bool:
    return Version(version) < Version(needed)


Probe = Callable[[], Check]


def _network_probes(config: Config) -> dict[str, Probe]:
    """What to ask, by name; a host that several things need is asked once."""
    probes: dict[str, Probe] = {}
    for name, described in config.bases.bases.items():
        probes |= _base_probes(name, described)
    for name, repository in config.sources.repositories.items():
        probes |= _source_probes(config, name, repository)
    return probes


def _base_probes(name: str, described: BaseConfig) -> Iterator[tuple[str, Probe]]:
    if described.image:
        image = described.image.format(release=described.releases[-1])
        hint = f"only for base {name}: {_BEHIND_PROXY}; or `docker load` its image, or use --base open"
        yield _registry_probe(image, hint)
    if described.local:
        hint = f"base {name} is then made by debootstrap, which is no loss"
        yield _registry_probe(described.local.os_image, hint)
        mirror = described.local.arguments.get("DEBIAN_MIRROR", DEBIAN_MIRROR)
        hint = f"base {name} is built from it: {_BEHIND_PROXY}"
        for title, url in (
            ("debian packages", f"{mirror}/dists/{described.local.suite}/Release"),
            ("pypi", PYPI),
        ):
            yield title, lambda t=title, u=url: _http(t, u, hint)


def _registry_probe(image: str, hint: str) -> tuple[str, Probe]:
    host = registry.parse(image).host
    name = f"registry {host}"

    def ask() -> Check:
        try:
            registry.require_reachable(image, purpose="doctor", hint=hint, timeout=TIMEOUT_SECONDS)
        except HostError as silent:
            return Check(name, "warn", silent.where or silent.what, hint)
        return Check(name, "ok", "answers")

    return name, ask


def _http(name: str, url: str, hint: str) -> Check:
    import requests

    try:
        answer = requests.head(url, timeout=TIMEOUT_SECONDS, allow_redirects=True)
        answer.raise_for_status()
    except requests.RequestException as silent:
        return Check(name, "warn", f"{url}: {type(silent).__name__}", hint)
    return Check(name, "ok", f"{url} answers")


def _source_probes(config: Config, name: str, repository: Repository) -> Iterator[tuple[str, Probe]]:
    urls = (repository.url, *repository.mirrors)
    for number, written in enumerate(urls):
        title = f"source {name}" + (f", mirror {number}" if number else "")
        url = written if _is_remote(written) else str(config.path(written))
        yield title, lambda t=title, u=url, many=len(urls) > 1: _git_remote(t, u, many)


def _is_remote(url: str) -> bool:
    """Whether git reads it as a URL or as `host:path` (git-fetch(1), GIT URLS), else it is a path of ours."""
    return "://" in url or re.match(r"[^/]+:", url) is not None


def _git_remote(name: str, url: str, has_others: bool) -> Check:
    no_questions = {"GIT_TERMINAL_PROMPT": "0"}
    try:
        argv = ["git", "ls-remote", "--exit-code", url, "HEAD"]
        shell.run(argv, env=no_questions, timeout=TIMEOUT_SECONDS)
    except shell.CommandFailed as silent:
        said = silent.result.stderr.strip().splitlines() or [silent.what]
        others = "; the other addresses of this source are tried too" if has_others else ""
        hint = f"{_BEHIND_PROXY}; without internet: invoke build --sources FILE (docs/air-gap.md){others}"
        return Check(name, "warn", f"{shell.redact(url)}: {said[-1]}", hint)
    except HostError as missing:
        return Check(name, "warn", missing.what, missing.hint or "")
    return Check(name, "ok", f"{shell.redact(url)} answers")


def _failed(name: str, error: FtbuildError) -> Check:
    found = f"{error.what} ({error.where})" if error.where else error.what
    return Check(name, "fail", found, error.hint or "")


def _start(probes: Mapping[str, Callable[[], Any]]) -> dict[str, Future[Any]]:
    """Run all at once. Daemon threads, not an executor's: the process need not wait for a silent host."""
    running = {}
    for name, probe in probes.items():
        running[name] = Future[Any]()
        Thread(target=_answer, args=(running[name], probe), name=name, daemon=True).start()
    return running


def _answer(future: Future[Any], probe: Callable[[], Any]) -> None:
    try:
        future.set_result(probe())
    except BaseException as error:  # handed to whoever asks for the result
        future.set_exception(error)


def _collect(asked: Mapping[str, Future[Check]]) -> Iterator[Check]:
    done = wait(asked.values(), TIMEOUT_SECONDS + _PATIENCE_SECONDS).done
    for name, future in asked.items():
        late = Check(name, "warn", f"no answer within {TIMEOUT_SECONDS:g} s", _BEHIND_PROXY)
        yield future.result() if future in done else late
