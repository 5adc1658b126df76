"""What this machine lacks for a build, and how to mend it.

Each check looks at one thing and never raises. A `fail` stops every build; a `warn` stops only some work, as
its text says.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from ftbuild import cmake
from ftbuild.build import base
from ftbuild.build import run as builds
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.engine import buildx, daemon, gpu
from ftbuild.engine.gpu import Installed
from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import shell
from ftbuild.host.disk import free_bytes, nearest
from ftbuild.text import tables
from ftbuild.text.units import GIB

State = Literal["ok", "warn", "fail"]
EngineInfo = Mapping[str, Any]

OLDEST_PYTHON = (3, 11)
# Checking out a part of a tree: release notes of git 2.25.
OLDEST_GIT = (2, 25)
LOCAL_COMMAND_SECONDS = 10.0
# addr_assign_type of an interface whose address was chosen (include/uapi/linux/netdevice.h, NET_ADDR_SET).
CHOSEN_ADDRESS = 3
# What `docker info` does not say: the interface of the default network.
BRIDGE = "DefaultBridge"
# What names a CA bundle to OpenSSL and us, to requests, curl, git and pip.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found and, unless all is well, what to do about it."""

    name: str
    state: State
    found: str
    mend: str = ""


def checks(config: Config, work: Path) -> list[Check]:
    """Look at everything. Takes as long as the slowest answer, at most `reach.PATIENCE_SECONDS`."""
    collect = network.ask(network.endpoints(config))
    connected, info = _engine(network.start({"engine": _engine_info})["engine"])
    return [
        python_version(tuple(map(int, platform.python_version_tuple()[:2]))),
        _git(),
        connected,
        *_buildx(),
        *_bridge(info),
        *_disks(work, info),
        memory(*_size(info)),
        *_gpus(config, info),
        *certificates(os.environ),
        *(reached(answer) for answer in collect()),
    ]


def exit_code(found: Iterable[Check]) -> int:
    """HostError's code when anything failed; a warning is no failure."""
    return HostError.exit_code if any(check.state == "fail" for check in found) else 0


def render(found: Sequence[Check], output: str) -> str:
    """The checks as a table for people, or as JSON: a list of name, state, found, mend.

    The table says what mends several checks in a row once, below the last of them.
    """
    if output == "json":
        return json.dumps([asdict(check) for check in found], indent=2)
    following = [check.mend for check in found[1:]] + [""]
    rows = [
        (
            check.state,
            check.name,
            check.found if check.mend in ("", after) else f"{check.found}\n-> {check.mend}",
        )
        for check, after in zip(found, following, strict=True)
    ]
    count = {state: sum(check.state == state for check in found) for state in ("fail", "warn")}
    return (
        f"{tables.render(('', 'Check', 'Found'), rows)}\nfailed: {count['fail']}, warnings: {count['warn']}"
    )


def python_version(version: tuple[int, ...]) -> Check:
    """Whether Python runs ftbuild."""
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Check("python", "fail", text, "install Python 3.11 or later, or run ./bootstrap")
    return Check("python", "ok", text)


def git_version(text: str) -> Check:
    """Whether the output of `git --version` names a git that can fetch the sources."""
    wanted = f"git {'.'.join(map(str, OLDEST_GIT))} or later is needed"
    numbers = re.search(r"(\d+)\.(\d+)[\w.]*", text)
    if numbers is None:
        return Check("git", "warn", f"unknown version: {text}", wanted)
    if tuple(map(int, numbers.groups())) < OLDEST_GIT:
        return Check("git", "fail", numbers[0], wanted)
    return Check("git", "ok", numbers[0])


def storage(info: EngineInfo) -> Check:
    """The engine of that `docker info`: its version, and whether its storage driver is one to build on."""
    driver = str(info.get("Driver", "unknown"))
    found = f"{info.get('ServerVersion', 'unknown version')}, storage driver {driver}"
    if driver == "vfs":
        hint = "vfs copies every layer, which costs time and disk: put the engine's data on ext4 or xfs"
        return Check("engine", "warn", found, hint)
    return Check("engine", "ok", found)


def build_cache(keeps: int) -> Check:
    """Whether the builder, which keeps so many bytes, keeps what makes the next build fast."""
    found = f"{keeps / GIB:.0f} GiB are kept"
    if keeps >= builds.CACHE_BYTES:
        return Check("build cache", "ok", found)
    hint = (
        f"builds want {builds.CACHE_BYTES / GIB:.0f} GiB: of more the oldest goes, compiled objects too: "
        '"builder": {"gc": {"enabled": true, "defaultKeepStorage": "40GB"}} in /etc/docker/daemon.json'
    )
    return Check("build cache", "warn", found, hint)


def bridge(name: str, assigned: int) -> Check:
    """Whether that bridge keeps its hardware address; `assigned` is its addr_assign_type in sysfs.

    One that nobody chose is the lowest among the bridge's ports (net/bridge/br_stp_if.c,
    br_stp_recalculate_bridge_id), which come and go with containers. Those that are left send to the old one
    until ARP asks again.
    """
    if assigned == CHOSEN_ADDRESS:
        return Check("network", "ok", f"bridge {name}")
    found = f"the hardware address of bridge {name} changes as containers come and go"
    hint = (
        "steps of a build lose their connections (CCACHE_REMOTE_STORAGE): "
        f"`ip link set dev {name} address 02:42:ac:11:00:01` keeps it"
    )
    return Check("network", "warn", found, hint)


def memory(cores: int, memory_bytes: int) -> Check:
    """Cores and memory of the engine's machine, and how many compile jobs a build therefore runs."""
    jobs = cmake.jobs(cores, memory_bytes)
    found = f"{cores} cores, {memory_bytes / GIB:.1f} GiB: {jobs} compile jobs at a time"
    per_job = f"one job of the real sources takes up to {cmake.MEMORY_PER_JOB_BYTES / GIB:.0f} GiB"
    if memory_bytes < cmake.MEMORY_PER_JOB_BYTES:
        return Check("cpu, memory", "warn", found, f"{per_job}: add memory, or the compiler may be killed")
    if jobs < cores:
        return Check("cpu, memory", "warn", found, f"{per_job}: more memory would use all cores")
    return Check("cpu, memory", "ok", found)


def gpus(config: Config, installed: Iterable[Installed]) -> list[Check]:
    """One check for each GPU: what it can run."""
    found = []
    for device in installed:
        text = f"{device.name}, {device.sm.code}, driver {device.driver}"
        late = [
            f"{release} (from {facts.driver})"
            for release, facts in config.matrix.releases.items()
            if Version(device.driver) < Version(facts.driver)
        ]
        if device.sm not in config.matrix.sms:
            found.append(
                Check("gpu", "warn", text, "no image is built for this SM: invoke matrix lists them")
            )
        elif late:
            found.append(
                Check("gpu", "warn", text, f"the driver is too old for {', '.join(late)}: update it")
            )
        else:
            found.append(Check("gpu", "ok", text))
    return found


def gpu_in_containers(info: EngineInfo, cdi_specs: Sequence[str]) -> Check:
    """Whether the engine can hand a GPU to a container, by NVIDIA's runtime or by CDI."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return Check("gpu in containers", "ok", "runtime nvidia")
    if cdi_specs:
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
        return [Check("ca", "ok", f"{named['SSL_CERT_FILE']}, for downloads during builds too")]
    if named:
        hint = "downloads during builds know SSL_CERT_FILE and --ca only: name the same file there"
        return [Check("ca", "warn", f"{', '.join(named)} set, but not SSL_CERT_FILE", hint)]
    return []


def reached(answer: network.Probe) -> Check:
    """A host that is silent stops only what needs it, so it is a warning."""
    target = answer.target
    if answer.problem is None:
        return Check(target.name, "ok", target.address)
    return Check(target.name, "warn", f"{target.address}: {answer.problem}", target.hint)


def _engine_info() -> EngineInfo:
    client = daemon.connect()
    try:
        info: EngineInfo = {**client.info(), BRIDGE: daemon.bridge(client)}
    finally:
        client.close()
    return info


def _engine(asked: Future[EngineInfo]) -> tuple[Check, EngineInfo]:
    try:
        info = asked.result(network.PATIENCE_SECONDS)
    except TimeoutError:
        where = shell.redact(os.environ.get("DOCKER_HOST", "the local engine"))
        hint = "restart the engine, or correct DOCKER_HOST"
        return Check("engine", "fail", f"{where} does not answer", hint), {}
    except FtbuildError as silent:
        return _failed("engine", silent), {}
    return storage(info), info


def _git() -> Check:
    try:
        return git_version(shell.run(["git", "--version"], timeout=LOCAL_COMMAND_SECONDS).stdout.strip())
    except FtbuildError as missing:
        return _failed("git", missing)


def _buildx() -> Iterator[Check]:
    try:
        yield Check("buildx", "ok", ".".join(map(str, buildx.version())))
        keeps = buildx.gc_limit()
    except FtbuildError as missing:
        yield _failed("buildx", missing)
        return
    if keeps is not None:
        yield build_cache(keeps)


def _local() -> bool:
    return os.environ.get("DOCKER_HOST", "unix://").startswith("unix://")


def _bridge(info: EngineInfo) -> Iterator[Check]:
    """The engine's default network, where that is on this machine."""
    name = info.get(BRIDGE, "")
    file = Path("/sys/class/net", name, "addr_assign_type")
    if name and _local() and file.is_file():
        yield bridge(name, int(file.read_text()))


def _disks(work: Path, info: EngineInfo) -> Iterator[Check]:
    """The work folder, and the engine's folder where that is on this machine."""
    yield disk("disk: work folder", work, builds.CELL_BYTES)
    root = Path(info.get("DockerRootDir", "/nonexistent"))
    if _local() and root.is_dir():
        yield disk("disk: engine", root, builds.CELL_BYTES + base.LOCAL_BASE_BYTES)


def disk(name: str, folder: Path, wanted_bytes: int) -> Check:
    """`fail` where not even one cell fits, `warn` where it fits only once its base is there."""
    free = free_bytes(folder)
    found = f"{free / GIB:.0f} GiB free at {nearest(folder)}"
    if free >= wanted_bytes:
        return Check(name, "ok", found)
    hint = (
        f"a first build wants {wanted_bytes / GIB:.0f} GiB: `docker builder prune` frees old layers, "
        "FTBUILD_WORK moves our folder, data-root in /etc/docker/daemon.json the engine's"
    )
    return Check(name, "fail" if free < builds.CELL_BYTES else "warn", found, hint)


def _size(info: EngineInfo) -> tuple[int, int]:
    """Cores, and memory in bytes, of the engine's machine, else of this one."""
    if info:
        return int(info["NCPU"]), int(info["MemTotal"])
    return os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gpus(config: Config, info: EngineInfo) -> Iterator[Check]:
    try:
        found = gpu.installed()
    except FtbuildError:
        yield no_gpu([str(node) for node in Path("/dev").glob("nvidia[0-9]*")])
        return
    yield from gpus(config, found)
    if info:
        specs = (spec for place in info.get("CDISpecDirs") or () for spec in Path(place).glob("*nvidia*"))
        yield gpu_in_containers(info, [str(spec) for spec in specs])


def no_gpu(nodes: Sequence[str]) -> Check:
    """What to say when `nvidia-smi` does not answer; `nodes` are NVIDIA's device nodes."""
    if nodes:
        hint = "install NVIDIA's driver with its nvidia-smi, or mend it"
        return Check("gpu", "warn", f"{', '.join(nodes)}, but nvidia-smi does not answer", hint)
    return Check("gpu", "warn", "none", "smoke tests will be skipped; building needs no GPU")


def _failed(name: str, error: FtbuildError) -> Check:
    found = f"{error.what} ({error.where})" if error.where else error.what
    return Check(name, "fail", found, error.hint or "")
