"""Checks of this machine: what it lacks for a build, and what to do about it.

Each check looks at one property and never raises. A failure stops every build, a warning only the work that
its hint names.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from packaging.version import Version

from ftbuild import cmake
from ftbuild.build import run as builds
from ftbuild.config.schema import Config
from ftbuild.doctor import folders, network
from ftbuild.engine import buildx, daemon, gpu
from ftbuild.engine.gpu import Installed
from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import paths, shell
from ftbuild.host.disk import free_bytes, nearest
from ftbuild.host.redaction import redact
from ftbuild.sources.patches import series
from ftbuild.text import results
from ftbuild.text.results import CheckResult, State
from ftbuild.text.units import GIB

EngineInfo = Mapping[str, Any]

OLDEST_PYTHON = (3, 11)
# Checking out a part of a tree: release notes of git 2.25.
OLDEST_GIT = (2, 25)
LOCAL_COMMAND_SECONDS = 10.0
# addr_assign_type of an interface whose address was chosen (include/uapi/linux/netdevice.h, NET_ADDR_SET).
CHOSEN_ADDRESS = 3
# A key of our own: the interface of the default network, which `docker info` lacks.
BRIDGE = "DefaultBridge"
# The variables that name a CA bundle to OpenSSL and us, to requests, curl, git and pip.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")


def checks(config: Config, work: Path) -> list[CheckResult]:
    """Run all checks. Takes as long as the slowest answer, at most `network.PATIENCE_SECONDS`."""
    collect = network.ask(network.endpoints(config))
    connected, info = _engine(network.start({"engine": _engine_info})["engine"])
    return [
        python_version(tuple(map(int, platform.python_version_tuple()[:2]))),
        _git(),
        connected,
        *_buildx(),
        *_bridge(info),
        *_disks(config, work, info),
        _cache(),
        memory(*_size(info)),
        *_gpus(config, info),
        *certificates(os.environ),
        series_used(config),
        *(reached(answer) for answer in collect()),
    ]


def exit_code(checks: Iterable[CheckResult]) -> int:
    """Return HostError's code when a check failed, else 0."""
    return HostError.exit_code if results.failed(checks) else 0


def render(checks: Sequence[CheckResult], output: str) -> str:
    """Return the checks as a table (`human`), or as a JSON list of name, state, found and hint (`json`)."""
    if output != "json":
        return results.render(checks)
    records = [
        {"name": r.check, "state": r.state.value, "found": r.detail, "hint": results.as_shown(r.hint)}
        for r in checks
    ]
    return json.dumps(records, indent=2)


def series_used(config: Config) -> CheckResult:
    """Check that the series can be read, and that every entry is for some release."""
    try:
        idle = series.idle(config)
    except FtbuildError as malformed:
        return CheckResult("patch series", State.FAIL, malformed.what, malformed.where or "")
    if idle:
        unused = ", ".join(f"{entry.name} ({entry.versions})" for entry in idle)
        hint = "patches.yaml: ranges are of the component's versions in sources.yaml, not of Triton's"
        return CheckResult("patch series", State.WARN, f"no release uses {unused}", hint)
    return CheckResult("patch series", State.OK, "every entry is for some release")


def python_version(version: tuple[int, ...]) -> CheckResult:
    """Check that Python is recent enough for ftbuild."""
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return CheckResult("python", State.FAIL, text, "install Python 3.11 or later, or run ./bootstrap")
    return CheckResult("python", State.OK, text)


def git_version(text: str) -> CheckResult:
    """Check the output of `git --version` for a git that can fetch the sources."""
    needed = f"git {'.'.join(map(str, OLDEST_GIT))} or later is needed"
    numbers = re.search(r"(\d+)\.(\d+)[\w.]*", text)
    if numbers is None:
        return CheckResult("git", State.WARN, f"unknown version: {text}", needed)
    if tuple(map(int, numbers.groups())) < OLDEST_GIT:
        return CheckResult("git", State.FAIL, numbers[0], needed)
    return CheckResult("git", State.OK, numbers[0])


def storage(info: EngineInfo) -> CheckResult:
    """Check the engine of that `docker info`: its version and storage driver."""
    driver = str(info.get("Driver", "unknown"))
    text = f"{info.get('ServerVersion', 'unknown version')}, storage driver {driver}"
    if driver == "vfs":
        hint = "vfs copies every layer, which costs time and disk: put the engine's data on ext4 or xfs"
        return CheckResult("engine", State.WARN, text, hint)
    return CheckResult("engine", State.OK, text)


def build_cache(keeps: int) -> CheckResult:
    """Check that a builder's cache, of so many bytes, is large enough for a fast next build."""
    text = f"{keeps / GIB:.0f} GiB are kept"
    if keeps >= builds.CACHE_BYTES:
        return CheckResult("build cache", State.OK, text)
    hint = (
        f"builds need {builds.CACHE_BYTES / GIB:.0f} GiB, or compiled objects are removed: "
        '"builder": {"gc": {"enabled": true, "defaultKeepStorage": "40GB"}} in /etc/docker/daemon.json'
    )
    return CheckResult("build cache", State.WARN, text, hint)


def bridge(name: str, assigned: int) -> CheckResult:
    """Check that a bridge keeps its hardware address; `assigned` is its addr_assign_type in sysfs.

    One that was not set explicitly is the lowest among the bridge's ports (net/bridge/br_stp_if.c,
    br_stp_recalculate_bridge_id), which come and go with containers. Those that are left send to the old one
    until ARP asks again.
    """
    if assigned == CHOSEN_ADDRESS:
        return CheckResult("network", State.OK, f"bridge {name}")
    text = f"the hardware address of bridge {name} changes as containers come and go"
    hint = (
        "steps of a build lose their connections (CCACHE_REMOTE_STORAGE): "
        f"`ip link set dev {name} address 02:42:ac:11:00:01` keeps it"
    )
    return CheckResult("network", State.WARN, text, hint)


def memory(cores: int, memory_bytes: int) -> CheckResult:
    """Check cores and memory of the engine's machine, which decide the number of compile jobs."""
    jobs = cmake.jobs(cores, memory_bytes)
    text = f"{cores} cores, {memory_bytes / GIB:.1f} GiB: {jobs} compile jobs at a time"
    per_job = f"one job of the real sources takes up to {cmake.MEMORY_PER_JOB_BYTES / GIB:.0f} GiB"
    if memory_bytes < cmake.MEMORY_PER_JOB_BYTES:
        return CheckResult(
            "cpu, memory", State.WARN, text, f"{per_job}: add memory, or the compiler may be killed"
        )
    if jobs < cores:
        return CheckResult("cpu, memory", State.WARN, text, f"{per_job}: more memory would use all cores")
    return CheckResult("cpu, memory", State.OK, text)


def gpus(config: Config, installed: Iterable[Installed]) -> list[CheckResult]:
    """Check for each GPU what it can run."""
    checks = []
    for device in installed:
        text = f"{device.name}, {device.sm.code}, driver {device.driver}"
        late = [
            f"{release} (from {driver})"
            for release, driver in _drivers(config).items()
            if Version(device.driver) < Version(driver)
        ]
        if device.sm not in config.matrix.sms:
            checks.append(
                CheckResult(
                    "gpu", State.WARN, text, "no image is built for this SM: invoke matrix lists them"
                )
            )
        elif late:
            checks.append(
                CheckResult(
                    "gpu", State.WARN, text, f"the driver is too old for {', '.join(late)}: update it"
                )
            )
        else:
            checks.append(CheckResult("gpu", State.OK, text))
    return checks


def _drivers(config: Config) -> dict[str, str]:
    """Return the oldest driver that runs a release on one of its bases."""
    bases = config.bases.bases.values()
    return {
        name: min((base.driver or release.driver for base in bases if name in base.releases), key=Version)
        for name, release in sorted(config.matrix.releases.items())
        if any(name in base.releases for base in bases)
    }


def gpu_in_containers(info: EngineInfo, cdi_specs: Sequence[str]) -> CheckResult:
    """Check that the engine can give a container a GPU, by NVIDIA's runtime or by CDI."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return CheckResult("gpu in containers", State.OK, "runtime nvidia")
    if cdi_specs:
        return CheckResult("gpu in containers", State.OK, f"CDI: {', '.join(cdi_specs)}")
    hint = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure`, restart the engine"
    return CheckResult(
        "gpu in containers", State.WARN, "neither NVIDIA's runtime nor a CDI specification", hint
    )


def certificates(environment: Mapping[str, str]) -> list[CheckResult]:
    """Check the CA bundle that builds get, if one is set."""
    named = {name: environment[name] for name in _CA_VARIABLES if environment.get(name)}
    missing = [f"{name}={file}" for name, file in named.items() if not Path(file).is_file()]
    if missing:
        return [
            CheckResult(
                "ca", State.FAIL, f"no such file: {', '.join(missing)}", "correct or unset the variable"
            )
        ]
    if "SSL_CERT_FILE" in named:
        return [CheckResult("ca", State.OK, f"{named['SSL_CERT_FILE']}, for downloads during builds too")]
    if named:
        hint = "downloads during builds use SSL_CERT_FILE and --ca only: name the same file there"
        return [CheckResult("ca", State.WARN, f"{', '.join(named)} set, but not SSL_CERT_FILE", hint)]
    return []


def reached(answer: network.Probe) -> CheckResult:
    """Return a warning for a host that does not answer, as it stops only what needs it."""
    target = answer.target
    if answer.problem is None:
        return CheckResult(target.name, State.OK, target.address)
    return CheckResult(target.name, State.WARN, f"{target.address}: {answer.problem}", target.hint)


def _engine_info() -> EngineInfo:
    client = daemon.connect()
    try:
        info: EngineInfo = {**client.info(), BRIDGE: daemon.bridge(client)}
    finally:
        client.close()
    return info


def _engine(future: Future[EngineInfo]) -> tuple[CheckResult, EngineInfo]:
    try:
        info = future.result(network.PATIENCE_SECONDS)
    except TimeoutError:
        where = redact(os.environ.get("DOCKER_HOST", "the local engine"))
        hint = "restart the engine, or correct DOCKER_HOST"
        return CheckResult("engine", State.FAIL, f"{where} does not answer", hint), {}
    except FtbuildError as silent:
        return _failed("engine", silent), {}
    return storage(info), info


def _git() -> CheckResult:
    try:
        return git_version(shell.run(["git", "--version"], timeout=LOCAL_COMMAND_SECONDS).stdout.strip())
    except FtbuildError as missing:
        return _failed("git", missing)


def _buildx() -> Iterator[CheckResult]:
    try:
        yield CheckResult("buildx", State.OK, ".".join(map(str, buildx.version())))
        keeps = buildx.gc_limit()
    except FtbuildError as missing:
        yield _failed("buildx", missing)
        return
    if keeps is not None:
        yield build_cache(keeps)


def _local() -> bool:
    return os.environ.get("DOCKER_HOST", "unix://").startswith("unix://")


def _bridge(info: EngineInfo) -> Iterator[CheckResult]:
    """Check the engine's default network, if it is on this machine."""
    name = info.get(BRIDGE, "")
    file = Path("/sys/class/net", name, "addr_assign_type")
    if name and _local() and file.is_file():
        yield bridge(name, int(file.read_text()))


def _disks(config: Config, work: Path, info: EngineInfo) -> Iterator[CheckResult]:
    """Check the work folder, and the engine's folder if it is on this machine, for any cell and base."""
    bases = config.bases.bases.values()
    cell = max(base.cell_gib for base in bases)
    name = "disk: work folder"
    yield folders.unusable(name, "FTBUILD_WORK", work) or disk(name, work, cell, cell)
    root = Path(info.get("DockerRootDir", "/nonexistent"))
    if _local() and root.is_dir():
        yield disk("disk: engine", root, cell, max(base.cell_gib + base.base_gib for base in bases))


def _cache() -> CheckResult:
    name = "cache folder"
    try:
        folder = paths.cache_folder()
    except FtbuildError as unknown:
        return _failed(name, unknown)
    unusable = folders.unusable(name, paths.CACHE_VARIABLE, folder)
    return unusable or CheckResult(name, State.OK, str(folder))


def disk(name: str, folder: Path, cell_gib: int, first_gib: int) -> CheckResult:
    """Fail when not even one cell fits, warn when only a first build, with its base, does not."""
    free = free_bytes(folder)
    text = f"{free / GIB:.0f} GiB free at {nearest(folder)}"
    if free >= first_gib * GIB:
        return CheckResult(name, State.OK, text)
    hint = (
        f"a first build needs {first_gib} GiB: `docker builder prune` frees old layers, "
        "FTBUILD_WORK moves our folder, data-root in /etc/docker/daemon.json the engine's"
    )
    return CheckResult(name, State.FAIL if free < cell_gib * GIB else State.WARN, text, hint)


def _size(info: EngineInfo) -> tuple[int, int]:
    """Return cores, and memory in bytes, of the engine's machine, else of this one."""
    if info:
        return int(info["NCPU"]), int(info["MemTotal"])
    return os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gpus(config: Config, info: EngineInfo) -> Iterator[CheckResult]:
    try:
        installed = gpu.installed()
    except FtbuildError:
        yield no_gpu([str(node) for node in Path("/dev").glob("nvidia[0-9]*")])
        return
    yield from gpus(config, installed)
    if info:
        specs = (spec for place in info.get("CDISpecDirs") or () for spec in Path(place).glob("*nvidia*"))
        yield gpu_in_containers(info, [str(spec) for spec in specs])


def no_gpu(nodes: Sequence[str]) -> CheckResult:
    """Return a warning for an `nvidia-smi` that does not answer; `nodes` are NVIDIA's device nodes."""
    if nodes:
        hint = "install NVIDIA's driver with its nvidia-smi, or repair it"
        return CheckResult("gpu", State.WARN, f"{', '.join(nodes)}, but nvidia-smi does not answer", hint)
    return CheckResult("gpu", State.WARN, "none", "smoke tests will be skipped; building needs no GPU")


def _failed(name: str, error: FtbuildError) -> CheckResult:
    text = f"{error.what} ({error.where})" if error.where else error.what
    return CheckResult(name, State.FAIL, text, error.hint or "")
