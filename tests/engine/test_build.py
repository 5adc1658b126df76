"""The main job on the sample stack: real git, real BuildKit, real compilers, a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from ftbuild.cli.demo import ask, model_repository
from ftbuild.client import server_container
from ftbuild.engine import daemon
from ftbuild.plan import Plan
from testing import ROOT, terminals
from testing.sample import (
    SAMPLE,
    Invoke,
    add_patch,
    build_arguments,
    command,
    copy_of_sample,
    environment,
    sample_plan,
)
from testing.waiting import until

if TYPE_CHECKING:
    import docker

BACKEND = "/opt/tritonserver/backends/fastertransformer"
BROKEN_SOURCE = "src/fastertransformer/utils/mpi_utils.cc"


def in_container(client: docker.DockerClient, image: str, script: str, user: str | None = None) -> str:
    """The output of a shell script in an image; fails with it when the script fails."""
    output: bytes = client.containers.run(
        image, ["sh", "-ec", script], remove=True, stderr=True, user=user, network_disabled=True
    )
    return output.decode()


def appended(tree_file: str, line: str, first: str) -> str:
    """A diff that puts `line` before the first line of a file."""
    return f"--- a/{tree_file}\n+++ b/{tree_file}\n@@ -1,1 +1,2 @@\n+{line}\n {first}\n"


def first_line(plan_folder: Path, tree_file: str) -> str:
    return (plan_folder / "sources" / "ft" / tree_file).read_text().splitlines()[0]


def test_both_images_are_there_under_both_names_with_the_plans_labels(
    client: docker.DockerClient, built: Plan
) -> None:
    for product in ("runtime", "sdk"):
        image = daemon.image(client, built.tag(product))
        assert image is not None
        moving = daemon.image(client, built.tag(product, moving=True))
        assert moving is not None
        assert moving.id == image.id
        assert built.labels(product).items() <= image.labels.items()


def test_the_libraries_hold_machine_code_for_the_asked_sm_only(work: Path, built: Plan) -> None:
    for tree in ("backend", "pyt"):
        listed = (built.folder(work) / "info" / tree / "sass.txt").read_text()
        assert set(re.findall(r"sm_\d+", listed)) == {"sm_80"}


def test_the_libraries_find_everything_but_the_driver(client: docker.DockerClient, built: Plan) -> None:
    for library in ("libtriton_fastertransformer.so", "libtransformer-shared.so", "batchstrategy.so"):
        missing = in_container(client, built.tag("runtime"), f"ldd -r {BACKEND}/{library} 2>&1; true")
        assert not [
            line for line in missing.splitlines() if "not found" in line and "libcuda.so.1" not in line
        ]
        assert "undefined symbol" not in missing


def test_the_runtime_image_serves_without_rights_tools_or_secrets(
    client: docker.DockerClient, built: Plan
) -> None:
    image = daemon.image(client, built.tag("runtime"))
    assert image is not None
    assert image.attrs["Config"]["User"] not in ("", "root", "0")
    leftovers = in_container(
        client,
        built.tag("runtime"),
        "command -v gcc g++ cc nvcc cmake ninja ccache sshd || true; find / -xdev -path /proc -prune -o "
        "'(' -name 'ftbuild*' -o -path '/run/secrets/*' ')' -print 2>/dev/null || true",
    )
    # What says what the image is, and the package that provides the names of what it does without.
    package = [f"/var/lib/dpkg/info/ftbuild-without.{kind}" for kind in ("list", "md5sums")]
    assert sorted(leftovers.split()) == ["/usr/local/bin/ftbuild-image", *package]
    assert in_container(
        client, built.tag("runtime"), f'test -z "$(nm -a {BACKEND}/*.so 2>/dev/null)" && echo ok'
    )


def test_the_sdk_image_holds_the_patched_tree_and_the_python_library(
    client: docker.DockerClient, built: Plan
) -> None:
    script = (
        "python3 -c \"import ctypes; ctypes.CDLL('/opt/ftbuild/lib/libth_transformer.so')\"; "
        "grep -rl 'np.bool\\b' /opt/ftbuild/fastertransformer_backend || echo patched"
    )
    assert in_container(client, built.tag("sdk"), script).strip() == "patched"


def test_the_server_answers_as_the_sample_model_must(
    client: docker.DockerClient, built: Plan, tmp_path: Path
) -> None:
    with server_container.serve(built.tag("runtime"), model_repository(tmp_path)) as running:
        for _ in range(2):
            ask(running)


def test_building_again_compiles_nothing_and_says_so(invoke: Invoke, built: Plan) -> None:
    done = invoke(*build_arguments(SAMPLE))
    assert done.returncode == 0, done.stderr
    assert "already built from these inputs" in done.stdout
    assert "Building" not in done.stdout


def test_the_script_beside_the_log_repeats_the_build(work: Path, built: Plan) -> None:
    folder = built.folder(work)
    done = subprocess.run([str(folder / "build.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "CACHED" in done.stderr
    assert not re.search(r"Building (CXX|CUDA) object", done.stderr)


def test_a_failed_compile_ends_with_the_compilers_line_and_names_nothing(
    client: docker.DockerClient, built: Plan, invoke: Invoke, work: Path, sample_copy: Path
) -> None:
    first = first_line(built.folder(work), BROKEN_SOURCE)
    add_patch(
        sample_copy, "ft", "9000-break.patch", appended(BROKEN_SOURCE, "#error broken by a test", first)
    )
    done = invoke(*build_arguments(sample_copy))
    plan = sample_plan(sample_copy)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    assert re.search(r"mpi_utils\.cc:1:2: error: #error broken by a test", done.stdout)
    assert str(plan.folder(work) / "build.log") in done.stdout
    assert daemon.image(client, plan.tag("runtime")) is None


def test_a_patch_that_does_not_apply_stops_before_any_build(
    client: docker.DockerClient, built: Plan, invoke: Invoke, sample_copy: Path
) -> None:
    add_patch(sample_copy, "ft", "9000-conflict.patch", appended(BROKEN_SOURCE, "// x", "no such line"))
    done = invoke(*build_arguments(sample_copy))
    assert done.returncode == 6
    assert "ft/9000-conflict.patch" in done.stdout
    assert BROKEN_SOURCE in done.stdout
    assert "buildx" not in done.stdout


@pytest.mark.parametrize("field", ["commit", "tree"])
def test_a_lock_that_does_not_match_stops_before_any_build(
    built: Plan, invoke: Invoke, sample_copy: Path, field: str
) -> None:
    lock = sample_copy / "sources.lock.yaml"
    data = yaml.safe_load(lock.read_text())
    data["sources"]["22.12"]["ft"][field] = "0123456789" * 4
    lock.write_text(yaml.safe_dump(data))
    done = invoke(*build_arguments(sample_copy))
    assert done.returncode == 5, done.stdout + done.stderr
    assert "0123456789" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_unreachable_source_names_it_and_what_can_be_done(
    built: Plan, invoke: Invoke, sample_copy: Path, tmp_path: Path
) -> None:
    sources = sample_copy / "sources.yaml"
    sources.write_text(sources.read_text().replace("FasterTransformer.git", "Moved.git"))
    fresh = {"FTBUILD_CACHE": str(tmp_path / "cache"), "FTBUILD_WORK": str(tmp_path / "work")}
    done = invoke(*build_arguments(sample_copy, "--rebuild"), **fresh)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "Moved.git" in done.stdout
    assert "--sources" in done.stdout


def test_a_bundle_replaces_the_network(
    built: Plan, invoke: Invoke, sample_copy: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "sources.tar"
    done = invoke("bundle", "--config", str(sample_copy), "--triton", "22.12", "--output", str(bundle))
    assert done.returncode == 0, done.stderr
    debian = sample_plan(sample_copy).base.debian
    assert debian is not None
    with tarfile.open(bundle) as tar:
        assert {f"files/{package.sha256}" for package in debian.every()} <= set(tar.getnames())
    sources = sample_copy / "sources.yaml"
    sources.write_text(re.sub(r"url: .*/(\w+)\.git", r"url: /nowhere/\1.git", sources.read_text()))
    fresh = {"FTBUILD_CACHE": str(tmp_path / "cache"), "FTBUILD_WORK": str(tmp_path / "work")}
    done = invoke(*build_arguments(sample_copy, "--rebuild", "--sources", str(bundle)), **fresh)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_buildx_missing_is_an_environment_error(built: Plan, invoke: Invoke, tmp_path: Path) -> None:
    docker_cli = shutil.which("docker")
    stand_in = tmp_path / "docker"
    stand_in.write_text(
        f'#!/bin/sh\n[ "$1" = buildx ] && {{ echo "unknown command" >&2; exit 1; }}\nexec {docker_cli} "$@"\n'
    )
    stand_in.chmod(0o755)
    done = invoke(*build_arguments(SAMPLE), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 4
    assert "buildx is not installed" in done.stderr
    assert "bootstrap" in done.stderr


def interrupted_at(text: str, folder: Path, work: Path, **extra: str) -> tuple[int, str]:
    """Start a build, send Ctrl-C once `text` shows in its output, and return the exit code and the rest."""
    child = subprocess.Popen(
        command(*build_arguments(folder, "--rebuild")),
        cwd=ROOT,
        env=environment(work, **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    seen = []
    for line in child.stdout:
        seen.append(line)
        if text in line:
            child.send_signal(signal.SIGINT)
            break
    else:
        raise AssertionError(f"{text!r} never showed: {''.join(seen[-30:])}")
    pressed = time.monotonic()
    rest = child.communicate(timeout=100)[0]
    assert time.monotonic() - pressed < terminals.OVER_SECONDS
    assert "Traceback" not in rest
    return child.returncode, rest


def interrupted_on_a_terminal(
    text: bytes, folder: Path, work: Path, progress: str = "tty", **extra: str
) -> int:
    """Start a build on a terminal, press Ctrl-C once it shows `text`, and return the exit code."""
    arguments = [progress if word == "plain" else word for word in build_arguments(folder, "--rebuild")]
    with terminals.started(command(*arguments), ROOT, environment(work, **extra)) as terminal:
        assert until(lambda: terminal.time_of(text), 100)
        pressed = terminal.press(terminals.CTRL_C)
        code = terminal.process.wait(100)
        over = time.monotonic()
        said = terminal.time_of(b"interrupted: ")
    assert said is not None
    assert said - pressed < terminals.SAID_SECONDS
    assert over - pressed < terminals.OVER_SECONDS
    return code


def test_ctrl_c_names_nothing_and_the_same_command_resumes(
    client: docker.DockerClient,
    built: Plan,
    invoke: Invoke,
    work: Path,
    sample_copy: Path,
    tmp_path: Path,
) -> None:
    source = "src/fastertransformer/kernels/decoding_kernels.cu"
    line = f'static const char* touched_by_a_test = "{time.time()}";'
    diff = appended(source, line, first_line(built.folder(work), source))
    add_patch(sample_copy, "ft", "9000-touch.patch", diff)
    fresh = {"FTBUILD_CACHE": str(tmp_path / "cache")}
    plan = sample_plan(sample_copy)
    for moment in ("fetching", "patching", "Building CUDA object"):
        code, rest = interrupted_at(moment, sample_copy, work, **fresh)
        assert code == 130, rest
        assert daemon.image(client, plan.tag("runtime")) is None
        assert daemon.image(client, plan.tag("sdk")) is None
    assert interrupted_on_a_terminal(b"Building CUDA object", sample_copy, work, **fresh) == 130
    done = invoke(*build_arguments(sample_copy), **fresh)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert daemon.image(client, plan.tag("sdk")) is not None


NEW_FILE = """\
--- /dev/null
+++ b/src/fastertransformer/told_by_a_test.txt
@@ -0,0 +1 @@
+told
"""


def test_a_build_is_told_in_words_and_its_log_is_in_the_file(
    client: docker.DockerClient, built: Plan, invoke: Invoke, work: Path, sample_copy: Path
) -> None:
    source = "src/fastertransformer/kernels/decoding_kernels.cu"
    line = f'static const char* told_by_a_test = "{time.time()}";'
    add_patch(
        sample_copy, "ft", "9000-touch.patch", appended(source, line, first_line(built.folder(work), source))
    )
    plan = sample_plan(sample_copy)
    words = [word for word in build_arguments(sample_copy) if word not in ("--progress", "plain")]
    done = invoke(*words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 40
    assert not any(re.search(r"#\d+ |Building C|--mount", text) for text in lines), done.stdout
    assert re.search(r"(?m)^\[22\.12-sm80\] compile backend  \d+ commands  \d+:\d\d$", done.stdout), (
        done.stdout
    )
    for product in ("runtime", "sdk"):
        assert re.search(rf"(?m)^  {product} +[\d.]+ [MG]B  {re.escape(plan.tag(product))}$", done.stdout)
    log = plan.folder(work) / "build.log"
    assert f"  {log}\n" in done.stdout
    assert "Building CUDA object" in log.read_text()
    assert f"next: invoke smoke --config {sample_copy} --triton 22.12 --sm 80" in done.stdout
    # Another key, so that steps run again.
    add_patch(sample_copy, "ft", "9001-touch.patch", NEW_FILE)
    assert interrupted_on_a_terminal(b"left: ", sample_copy, work, "auto") == 130


def test_two_sms_in_one_image(client: docker.DockerClient, built: Plan, invoke: Invoke, work: Path) -> None:
    done = invoke("build", "--config", str(SAMPLE), "--sm", "80,90", "--triton", "22.12", "--rebuild")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    plan = sample_plan(sm="80,90")
    listed = (plan.folder(work) / "info" / "backend" / "sass.txt").read_text()
    assert set(re.findall(r"sm_\d+", listed)) == {"sm_80", "sm_90"}


def test_several_cells_keep_going_and_end_with_the_worst_code(
    client: docker.DockerClient, built: Plan, invoke: Invoke, tmp_path: Path
) -> None:
    folder = copy_of_sample(tmp_path)  # whose images are those that are built
    add_patch(folder, "ft", "9000-conflict.patch", appended(BROKEN_SOURCE, "// x", "no such line"))
    ranges = folder / "patches.yaml"
    ranges.write_text(ranges.read_text().replace('"9000-conflict.patch": {versions: ">=1"}',
                                                 '"9000-conflict.patch": {versions: "==5.0"}'))  # fmt: skip
    done = invoke("build", "--config", str(folder), "--triton", "22.03", "--triton", "22.12", "--sm", "80")
    assert done.returncode == 6
    assert re.search(r"22\.03-sm80 +failed", done.stdout)
    assert re.search(r"22\.12-sm80 +present", done.stdout)


def test_the_record_beside_the_log_is_the_plan(work: Path, built: Plan) -> None:
    recorded = json.loads((built.folder(work) / "plan.json").read_text())
    assert recorded["key"] == built.key
    assert recorded["tags"]["runtime"][0] == built.tag("runtime")


def test_the_base_alone_can_be_asked_for(built: Plan, invoke: Invoke) -> None:
    done = invoke("base", "--config", str(SAMPLE))
    assert done.returncode == 0, done.stderr
    assert f"base open: {built.base.serving}, {built.base.devel}" in done.stdout
