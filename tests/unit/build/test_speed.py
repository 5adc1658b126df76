"""Compile order, network of the compile steps, limits of a builder: settings that change no image."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ftbuild.build import bake, compile_order, context, definitions, machine
from ftbuild.build.machine import Host
from ftbuild.cli import cells
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import builders, buildx
from ftbuild.errors import HostError
from ftbuild.plan import PRODUCTS, Plan
from testing import STEPS, needs

# In CMake's form: rules from another file, an object with its variables, comments, links.
BUILD_NINJA = """\
ninja_required_version = 1.5
include rules.ninja
#############################################
# Utility

build all: phony lib/libone.a lib/libtwo.a

build a/CMakeFiles/one.dir/light.cc.o: compile /src/light.cc || order
  FLAGS = -O3
  OBJECT_DIR = a

build order: phony

build a/CMakeFiles/one.dir/sub/heavy_fp16.cu.o: compile /src/heavy_fp16.cu || order
  FLAGS = -arch=sm_80

build lib/libone.a: compile a/CMakeFiles/one.dir/light.cc.o a/CMakeFiles/one.dir/sub/heavy_fp16.cu.o

# Another target
build b/CMakeFiles/two.dir/heaviest.cu.o: compile /src/heaviest.cu
build lib/libtwo.a: compile b/CMakeFiles/two.dir/heaviest.cu.o
default all
"""
RULES = "rule compile\n  command = cat $in > $out\n"


def sorted_file(folder: Path, *names: str, where: str = "first", content: str = BUILD_NINJA) -> str:
    file = folder / "build.ninja"
    file.write_text(content)
    subprocess.run([sys.executable, STEPS / "heaviest.py", where, file, *names], check=True)
    return file.read_text()


def objects(text: str) -> list[str]:
    return re.findall(r"^build \S*/(\S+)\.o:", text, re.M)


def test_the_heaviest_units_start_first_and_the_others_keep_their_order(tmp_path: Path) -> None:
    text = sorted_file(tmp_path, "heaviest", "heavy_fp16", "unknown", "light.c", "li")
    assert objects(text) == ["heaviest.cu", "heavy_fp16.cu", "light.cc"]
    assert text.index("include rules.ninja") < text.index("heaviest.cu.o")
    assert sorted(text.splitlines()) == sorted(BUILD_NINJA.splitlines())


def test_a_tree_that_meets_another_one_starts_with_its_own_units_and_ends_with_the_heaviest(
    tmp_path: Path,
) -> None:
    of_pytorch = "build th_op/CMakeFiles/op.dir/Op.cc.o: compile /src/th_op/Op.cc\n"
    content = BUILD_NINJA.replace("# Another target\n", f"# Another target\n{of_pytorch}")
    text = sorted_file(tmp_path, "heaviest", "Op", "heavy_fp16", where="last", content=content)
    assert objects(text) == ["Op.cc", "light.cc", "heavy_fp16.cu", "heaviest.cu"]
    assert sorted(text.splitlines()) == sorted(content.splitlines())


def test_without_names_nothing_moves(tmp_path: Path) -> None:
    assert sorted_file(tmp_path) == BUILD_NINJA
    assert sorted_file(tmp_path, where="last") == BUILD_NINJA


def test_ninja_starts_units_in_the_order_of_the_file(tmp_path: Path) -> None:
    program = needs.program("ninja", "ninja-build")
    (tmp_path / "rules.ninja").write_text(RULES)
    text = sorted_file(tmp_path, "heaviest", "heavy_fp16")
    (tmp_path / "build.ninja").write_text(text.replace("/src/", ""))
    for source in ("light.cc", "heavy_fp16.cu", "heaviest.cu"):
        (tmp_path / source).touch()
    ninja = [program, "-n", "-v", "-j", "1"]
    output = subprocess.run(ninja, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"cat (\S+\.c[cu]) ", output) == ["heaviest.cu", "heavy_fp16.cu", "light.cc"]


@dataclass(frozen=True)
class Slots:
    """A folder of slots, and commands that run in them."""

    folder: Path
    jobs: int = 1

    @property
    def log(self) -> list[list[str]]:
        return [line.split("\t") for line in (self.folder / "log").read_text().splitlines()]

    def start(self, *command: str, preload: str = "") -> subprocess.Popen[str]:
        settings = {"SLOTS": str(self.folder), "SLOT_LOG": str(self.folder / "log"), "JOBS": str(self.jobs)}
        temporary = {"TMPDIR": str(self.folder), "COMPILER_PRELOAD": preload}
        return subprocess.Popen(
            [STEPS / "slot.py", *command],
            env={**os.environ, **settings, **temporary},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def test_no_more_commands_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    slots = Slots(tmp_path, jobs=2)
    started = [slots.start("sh", "-c", "sleep 0.2", "-o", f"{number}.o") for number in range(5)]
    for process in started:
        process.communicate(timeout=100)
        assert process.returncode == 0
    assert sorted(row[3] for row in slots.log) == [f"{number}.o" for number in range(5)]
    assert {row[2] for row in slots.log} == {"0", "1"}
    for start, *_ in slots.log:
        assert sum(int(row[0]) <= int(start) < int(row[1]) for row in slots.log) <= 2


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    slots = Slots(tmp_path)
    holder = slots.start("sh", "-c", "echo started; cat")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "started\n"
    waiting = slots.start("true")
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.3)
    holder.kill()
    waiting.communicate(timeout=100)
    assert waiting.returncode == 0
    holder.communicate(timeout=100)


def test_exit_code_and_cost_of_a_compiler_are_recorded(tmp_path: Path) -> None:
    slots = Slots(tmp_path)
    burn = f"{sys.executable} -c 'sum(range(10_000_000))'; exit 3"
    heavy, killed = slots.start("sh", "-c", burn, "-o", "heavy.o"), slots.start("sh", "-c", "kill -9 $$")
    for process, code in ((heavy, 3), (killed, 128 + 9)):
        process.communicate(timeout=100)
        assert process.returncode == code
    start, end, slot, _, seconds, memory = next(row for row in slots.log if row[3] == "heavy.o")
    assert slot == "0"
    assert 0 < float(seconds) <= (int(end) - int(start)) / 1000 + 0.1
    assert int(memory) > 1_000_000


def test_every_compiler_has_the_same_process_id_and_a_folder_of_its_own(tmp_path: Path) -> None:
    """nvcc writes its id into what it compiles, and names temporary files by it."""
    needs.program("cc", "gcc")
    line = next(line for line in (STEPS / "compilers.sh").read_text().splitlines() if "getpid" in line)
    preload = str(tmp_path / "process-id.so")
    subprocess.run(["sh", "-euc", line], env={**os.environ, "COMPILER_PRELOAD": preload}, check=True)
    slots = Slots(tmp_path, jobs=2)
    ask = "import os, time; print(os.getpid(), os.environ['TMPDIR'], flush=True); time.sleep(0.5)"
    started = [slots.start(sys.executable, "-c", ask, preload=preload) for _ in range(2)]
    printed = [process.communicate(timeout=100)[0].split() for process in started]
    assert [number for number, _ in printed] == ["1", "1"]
    assert len({folder for _, folder in printed}) == 2


def test_heavy_sources_are_listed_once() -> None:
    names = compile_order.SOURCES.split()
    assert len(set(names)) == len(names) > 0


@pytest.fixture
def plan(config: Config) -> Plan:
    return plans(config, Selection(config.folder, ["22.12"], ["80"]))[0]


def test_compile_steps_have_no_network(plan: Plan, tmp_path: Path) -> None:
    context.recipe(plan, tmp_path)
    text = (tmp_path / "Dockerfile").read_text()
    assert text == plan.file("dockerfile").path.read_text()
    steps = re.findall(r"^RUN (?:.*\\\n)*.*", text, re.M)
    compiling = [step for step in steps if "/steps/compile.sh " in step]
    assert len(compiling) == 3  # the backend, the Python library, upstream's unit tests
    assert all(step.startswith("RUN --network=none ") for step in compiling)


def test_the_staged_folder_holds_the_programs_of_its_dockerfile(plan: Plan, tmp_path: Path) -> None:
    context.recipe(plan, tmp_path)
    staged = {file.name: file for file in (tmp_path / "steps").iterdir()}
    assert staged.keys() == {step.path.name for step in plan.steps("dockerfile")}
    for name, file in staged.items():
        assert file.read_bytes() == (STEPS / name).read_bytes()
        if name not in ("compilers.sh", "host-environment.sh"):  # sourced
            assert os.access(file, os.X_OK)
    for name in re.findall(r"/steps/([\w.-]+)", "".join(file.read_text() for file in staged.values())):
        assert name in staged


def test_no_instruction_of_a_shipped_image_leaves_the_time_of_the_build(plan: Plan) -> None:
    text = plan.file("dockerfile").path.read_text()
    stages = dict(re.findall(r"^FROM .* AS (\S+)\n((?:(?!^FROM ).*\n?)*)", text, re.M))
    for stage in ("serving", "runtime", "sdk"):
        assert not re.search(r"^(COPY|ADD) ", stages[stage], re.M)
        steps = re.findall(r"^RUN (?:.*\\\n)*.*", stages[stage], re.M)
        assert steps
        assert all("/steps/fixed-times.sh " in step and "--network=none" in step for step in steps)


def test_copied_contents_have_roots_owner_and_folders_keep_their_mode(tmp_path: Path) -> None:
    source, place = tmp_path / "from", tmp_path / "place"
    (source / "lib" / "new").mkdir(parents=True)
    (source / "lib" / "new" / "file").write_text("content")
    (source / "lib" / "link").symlink_to("new/file")
    (place / "real").mkdir(parents=True)
    (place / "lib").symlink_to("real")
    (place / "real").chmod(0o775)
    subprocess.run([STEPS / "put.sh", source, place, source / "lib", tmp_path / "two"], check=True)
    assert (place / "lib").is_symlink()
    assert (place / "real").stat().st_mode & 0o777 == 0o775
    assert (place / "real" / "new" / "file").read_text() == "content"
    assert (tmp_path / "two" / "link").readlink() == Path("new/file")


def test_every_step_is_copied_by_a_dockerfile(config: Config) -> None:
    planned = [
        plans(config, Selection(config.folder, sm=["80"], base=[base]))[0] for base in config.bases.bases
    ]
    used = {
        step.path.name for plan in planned for role in ("dockerfile", "base") for step in plan.steps(role)
    }
    assert used == {file.name for file in STEPS.iterdir()}


def test_with_a_remote_cache_only_network_and_local_objects_of_compile_steps_change(
    plan: Plan, tmp_path: Path
) -> None:
    context.recipe(plan, tmp_path, online=True)
    text = (tmp_path / "Dockerfile").read_text()
    steps = re.findall(r"^RUN (?:.*\\\n)*.*", text, re.M)
    for step in steps:
        # What installs nothing and compiles nothing has no network either.
        alone = re.search(r"/steps/(pip-install|fixed-times)\.sh |^RUN --network=none <<", step)
        assert ("--network" in step) == bool(alone)
    original = plan.file("dockerfile").path.read_text()
    assert "id=ftbuild-ccache," in original
    # What the storage gives must not reach a later build that does without it.
    original = original.replace("id=ftbuild-ccache,", "id=ftbuild-ccache-remote,")
    assert text.replace("--network=none ", "") == original.replace("--network=none ", "")


def test_the_url_of_a_remote_cache_is_a_secret(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not machine.compiles_online()
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://sesame@storage.invalid")
    assert machine.compiles_online()
    host = Host(jobs=1)
    job = bake.Job(tmp_path, definitions.cell(plan, host))
    bake.write(job, host)
    assert "CCACHE_REMOTE_STORAGE=redis://sesame@storage.invalid" in host.lines()
    assert "sesame" not in job.file.read_text() + (tmp_path / "build.sh").read_text() + machine.ONLINE


@pytest.mark.parametrize(("storage", "label"), [("redis://sesame@storage.invalid", "remote"), ("", None)])
def test_an_image_says_whether_other_machines_may_have_compiled_it(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, storage: str, label: str | None
) -> None:
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", storage)
    for product in PRODUCTS:
        labels = definitions.image(plan, product, Host(jobs=1))["labels"]
        assert labels.get("io.ftbuild.compiler-cache") == label
        assert plan.labels(product).items() <= labels.items()


INSPECTED = """\
Name:          small
Driver:        docker-container

Nodes:
Name:                  small0
Endpoint:              unix:///var/run/docker.sock
Driver Options:        {options}
Status:                inactive
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('memory="4g" network="host"', 4 * 1024**3),
        ('network="host" memory="512m"', 512 * 1024**2),
        ('requests.memory="1Gi" limits.memory="6Gi"', 6 * 1024**3),
        ('memory="1073741824"', 1024**3),
        ('memory-swap="8g" network="host"', None),
        ('memory="8g"\nDriver Options:        memory="2g"', 2 * 1024**3),
        ("", None),
    ],
)
def test_a_builders_memory_limit_is_read_from_its_options(options: str, expected: int | None) -> None:
    assert buildx.memory_limit(INSPECTED.format(options=options)) == expected


KEPT = """\
GC Policy rule#0:
 All:           false
 Filters:       type==source.local,type==exec.cachemount,type==source.git.checkout
 Keep Duration: 48h0m0s
 {name}:    512MB
GC Policy rule#1:
 All:        false
 {name}: 25GiB
GC Policy rule#2:
 All:        true
 {name}: 25.5GiB
"""


@pytest.mark.parametrize("name", ["Keep Bytes", "Max Used Space"])
def test_a_builders_cache_limit_is_read_from_its_policies(name: str) -> None:
    assert buildx.parse_gc_limit(KEPT.format(name=name)) == 25 * 1024**3
    assert buildx.parse_gc_limit("Name: old\nStatus: running\n") is None


def test_an_unknown_builder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'ERROR: no builder \"x\" found' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(HostError, match="there is no builder x"):
        builders.find("x")


def test_the_dry_run_reports_network_access_of_compile_steps(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    selection = Selection(config.folder, ["22.12"], ["80"])
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://sesame@storage.invalid")
    assert cells.build.function(selection, dry_run=True) == 0
    output = capsys.readouterr().out
    assert machine.ONLINE in output
    assert "sesame" not in output
    monkeypatch.delenv("CCACHE_REMOTE_STORAGE")
    cells.build.function(selection, dry_run=True)
    assert machine.ONLINE not in capsys.readouterr().out
