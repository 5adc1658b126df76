"""Invoke tasks: parse, call ftbuild, turn a failure into its exit code. `invoke --list` shows them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from invoke import Context, task

ROOT = Path(__file__).parent
CONFIG = os.environ.get("FTBUILD_CONFIG", str(ROOT / "buildcfg"))
WORK = os.environ.get("FTBUILD_WORK", str(ROOT / ".ftbuild"))

REGISTRY = os.environ.get("FTBUILD_REGISTRY")

CONFIG_HELP = {"config": "folder of the configuration (default: buildcfg, or FTBUILD_CONFIG)"}
SELECTION = ["triton", "sm", "cell"]
SELECTION_HELP = {
    "triton": "Triton release, for instance 22.12 (repeatable)",
    "sm": "SM of the GPU, for instance 80; 80,86 puts both into one image (repeatable)",
    "cell": "glob on cell ids, for instance '22.12-*' (repeatable)",
    "base": "image to build on: ngc (default) or open",
    **CONFIG_HELP,
}
ENGINE_HELP = {
    "ca": "CA bundle for downloads behind a TLS-inspecting proxy (default: SSL_CERT_FILE)",
    "progress": "auto, tty or plain",
    "rebuild": "build even if the image is there",
}


def command(body: Callable[..., int | None]) -> Callable[..., None]:
    """Run a task's body; a failure becomes a message on standard error and its exit code."""

    @wraps(body)
    def guarded(*args: Any, **options: Any) -> None:
        from ftbuild.errors import FtbuildError, Interrupted

        sys.stdout.reconfigure(line_buffering=True)  # a CI log shows each line when it is said
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # CI cancels with SIGTERM: end as on Ctrl-C
        try:
            code = body(*args, **options) or 0
        except FtbuildError as failure:
            print(f"error: {failure}", file=sys.stderr)
            code = failure.exit_code
        except KeyboardInterrupt:
            print("interrupted: the same command resumes", file=sys.stderr)
            code = Interrupted.exit_code
        except BrokenPipeError:  # whoever reads our output (`| head`) has enough; Python would flush it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        if code:
            raise SystemExit(code)

    return guarded


def selection(config: str, triton: list[str], sm: list[str], cell: list[str], base: str | None) -> Any:
    """The options that choose cells."""
    from ftbuild.cli.selection import Selection

    return Selection(Path(config), triton or (), sm or (), cell or (), base)


@task(iterable=SELECTION, help={**SELECTION_HELP, "format": "human, json or github"})
@command
def matrix(c: Context, triton=None, sm=None, cell=None, base=None, config=CONFIG, format="human"):  # noqa: A002
    """List the cells that can be built and, with reasons, those that cannot."""
    from ftbuild.cli import cells as commands

    return commands.matrix(selection(config, triton, sm, cell, base), format)


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        **ENGINE_HELP,
        "dry_run": "print the plan and stop: needs neither Docker nor network",
        "format": "of the dry run: human or json",
        "jobs": "compile jobs at a time (default: from the engine's cores and memory)",
        "builder": "buildx builder (default: the engine's own)",
        "sources": "file made by invoke bundle, for a machine without internet",
        "layer_cache": "repository in a registry that holds layers, for builders that share no disk",
    },
)
@command
def build(
    c: Context,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    dry_run=False,
    format="human",  # noqa: A002
    jobs=0,
    ca=None,
    builder=None,
    progress="auto",
    rebuild=False,
    sources=None,
    layer_cache=None,
):
    """Build the runtime and the SDK image of every selected cell."""
    from ftbuild.cli import cells as commands

    chosen = selection(config, triton, sm, cell, base)
    if dry_run:
        return commands.dry_run(chosen, format)
    return commands.build(
        chosen,
        jobs=jobs or None,
        ca=ca,
        builder=builder,
        progress=progress,
        rebuild=rebuild,
        bundle=sources,
        layer_cache=layer_cache,
        work=Path(WORK),
    )


@task(iterable=SELECTION, help={**SELECTION_HELP, "format": "human or json"})
@command
def verify(c: Context, triton=None, sm=None, cell=None, base=None, config=CONFIG, format="human"):  # noqa: A002
    """Check the built images of every selected cell, without a GPU."""
    from ftbuild.cli import cells as commands

    return commands.verify(selection(config, triton, sm, cell, base), format, Path(WORK))


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        "format": "human or json",
        "prepare": "make the models in the SDK image and stop: needs no GPU",
        "any_gpu": "test also on a GPU that the image has no machine code for",
    },
)
@command
def smoke(
    c: Context,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    format="human",  # noqa: A002
    prepare=False,
    any_gpu=False,
):
    """Serve tiny models of every family with the built images, on a GPU, and check what they answer."""
    from ftbuild.cli import cells as commands

    chosen = selection(config, triton, sm, cell, base)
    return commands.smoke(chosen, format, prepare=prepare, any_gpu=any_gpu, work=Path(WORK))


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        **ENGINE_HELP,
        "prepare": "build the images and stop: needs no GPU",
        "dry_run": "print what would be built and run, and stop: needs neither Docker nor network",
        "format": "human or json",
        "jobs": "compile jobs at a time (default: from the engine's cores and memory)",
        "builder": "buildx builder (default: the engine's own)",
    },
)
@command
def unittest(
    c: Context,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    prepare=False,
    dry_run=False,
    format="human",  # noqa: A002
    jobs=0,
    ca=None,
    builder=None,
    progress="auto",
    rebuild=False,
):
    """Build upstream's own unit tests against the patched sources, and run them on a GPU."""
    from ftbuild.cli import unittests as commands

    chosen = selection(config, triton, sm, cell, base)
    if dry_run:
        return commands.dry_run(chosen, format)
    return commands.run(
        chosen,
        format,
        prepare=prepare,
        jobs=jobs or None,
        ca=ca,
        builder=builder,
        progress=progress,
        rebuild=rebuild,
        work=Path(WORK),
    )


@task(
    iterable=["only", "cell"],
    help={
        "only": "name of a benchmark (repeatable; default: all that this machine can run)",
        "real": "on the real sources and the open base: hours on a small machine",
        **{key: SELECTION_HELP[key] for key in ("cell", "base")},
        "jobs": "compile jobs at a time (default: 2)",
        "rounds": "repetitions of what takes seconds",
        "out": "folder for records and plots (default: .ftbuild/bench)",
        "list": "show the benchmarks and stop",
    },
)
@command
def bench(
    c: Context,
    only=None,
    real=False,
    cell=None,
    base=None,
    jobs=2,
    rounds=5,
    out=None,
    list=False,  # noqa: A002
):
    """Measure what benchmarks/README.md has goals for; without --real on the sample stack."""
    from benchmarks.harness import run

    if list:
        print(run.listing())
        return 0
    return run.bench(
        run.BenchOptions(
            only=only or (),
            real=real,
            base=base,
            cell=cell or (),
            jobs=jobs,
            rounds=rounds,
            out=Path(out or f"{WORK}/bench"),
        )
    )


REGISTRY_HELP = {
    "registry": "host and path, for instance registry.gitlab.com/group/project (default: FTBUILD_REGISTRY)",
    "stage": "path below the registry where images wait until they are tested",
}


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        **REGISTRY_HELP,
        "allow_unsmoked": "publish what no GPU has tested, labelled so and without a moving tag",
        "sign_key": "key for cosign (default: FTBUILD_COSIGN_KEY; neither: no signature)",
        "sign_log": "enter signatures into the public transparency log",
        "dry_run": "say what is missing in the registry and stop",
        "format": "human or json",
    },
)
@command
def publish(
    c: Context,
    registry=REGISTRY,
    stage=None,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    allow_unsmoked=False,
    sign_key=None,
    sign_log=True,
    dry_run=False,
    format="human",  # noqa: A002
):
    """Publish the tested images of every selected cell; what the registry has already is left alone."""
    from ftbuild.cli import publishing as commands

    return commands.run(
        selection(config, triton, sm, cell, base),
        registry,
        stage=stage,
        allow_unsmoked=allow_unsmoked,
        sign_key=sign_key,
        sign_log=sign_log,
        dry_run=dry_run,
        output=format,
        work=Path(WORK),
    )


@task(iterable=SELECTION, help={**SELECTION_HELP, **REGISTRY_HELP})
@command
def stage(
    c: Context, registry=REGISTRY, stage=None, triton=None, sm=None, cell=None, base=None, config=CONFIG
):
    """Push verified images to where another machine, one with a GPU, gets them by invoke pull."""
    from ftbuild.cli import publishing as commands

    return commands.stage(selection(config, triton, sm, cell, base), registry, stage, Path(WORK))


@task(iterable=SELECTION, help={**SELECTION_HELP, **REGISTRY_HELP})
@command
def pull(
    c: Context, registry=REGISTRY, stage=None, triton=None, sm=None, cell=None, base=None, config=CONFIG
):
    """Get staged images onto this machine, to smoke-test them."""
    from ftbuild.cli import publishing as commands

    return commands.pull(selection(config, triton, sm, cell, base), registry, stage, Path(WORK))


@task(
    iterable=["sm"],
    help={
        **CONFIG_HELP,
        "registry": REGISTRY_HELP["registry"],
        "index": "index.json that invoke publish wrote, instead of asking the registry",
        "sm": "SM or compute capability, for instance 86 or 8.6 (default: of the GPUs here; repeatable)",
        "sdk": "the SDK images",
        "format": "human or json",
    },
)
@command
def which(c: Context, registry=REGISTRY, index=None, sm=None, sdk=False, config=CONFIG, format="human"):  # noqa: A002
    """Say which published image is for the GPU that is here."""
    from ftbuild.cli import publishing as commands

    return commands.which(Path(config), registry, index, sm or (), sdk, format)


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        **REGISTRY_HELP,
        "jobs": "compile jobs of all cells together (default: from the engine's cores and memory)",
        "parallel": "cells at a time (default: from the jobs)",
        "resume": "go on with the last night: what passed there with the same inputs is left alone",
        "fail_fast": "begin no further cell after one has failed",
        "smoke": "test on the GPU",
        "audit": "look after pins, bases, patches and mirrors too",
        "allow_unsmoked": "publish also what no GPU here can test, labelled so and without a moving tag",
        "sign_key": "key for cosign (default: FTBUILD_COSIGN_KEY; neither: no signature)",
        "sign_log": "enter signatures into the public transparency log",
        "notify": "URL that gets the outcome as JSON",
        "ca": ENGINE_HELP["ca"],
        "builder": "buildx builder (default: the engine's own)",
    },
)
@command
def nightly(
    c: Context,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    registry=REGISTRY,
    stage=None,
    jobs=0,
    parallel=0,
    resume=False,
    fail_fast=False,
    smoke=True,
    audit=True,
    allow_unsmoked=False,
    sign_key=None,
    sign_log=True,
    notify=None,
    ca=None,
    builder=None,
):
    """Build, verify, smoke-test and publish the whole matrix, keep going, and report."""
    from ftbuild.cli import nightly as commands

    options = commands.Options(
        registry=registry,
        stage=stage,
        jobs=jobs or None,
        cells=parallel or None,
        resume=resume,
        fail_fast=fail_fast,
        smoke=smoke,
        audit=audit,
        allow_unsmoked=allow_unsmoked,
        sign_key=sign_key,
        sign_log=sign_log,
        notify=notify,
        ca=ca,
        builder=builder,
    )
    return commands.run(selection(config, triton, sm, cell, base), options, Path(WORK))


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        "github": "files for GitHub Actions only (default: for both systems)",
        "gitlab": "the file for GitLab only",
        "one_host": "one job that does everything on one machine with a GPU",
        "registry": "host and path (default: the CI system's own registry)",
        "cpu_runner": "labels or tags of runners that build, with commas",
        "gpu_runner": "labels or tags of runners with a GPU; the SM (sm80) comes on top",
        "cron": "when nights begin, in UTC (GitHub only)",
        "out": "folder to write into (default: this checkout)",
        "check": "change nothing; fail when a file is not what the configuration makes",
        "dry_run": "print the files and stop",
        "summary": "print the gate records of the work folder as Markdown and stop",
    },
)
@command
def ci(
    c: Context,
    github=False,
    gitlab=False,
    one_host=False,
    registry="",
    cpu_runner="",
    gpu_runner="",
    cron="17 1 * * *",
    out=str(ROOT),
    check=False,
    dry_run=False,
    summary=False,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
):
    """Write the workflow files of GitHub and GitLab: tests on push, a night over the matrix."""
    from ftbuild.cli import ci as commands

    chosen = selection(config, triton, sm, cell, base)
    if summary:
        return commands.summary(chosen, Path(WORK))
    wanted = commands.CiOptions(github, gitlab, one_host, registry, cpu_runner, gpu_runner, cron)
    return commands.run(chosen, wanted, ROOT, out=Path(out), check=check, dry_run=dry_run)


@task(help={**CONFIG_HELP, "format": "human or json"})
@command
def audit(c: Context, config=CONFIG, format="human"):  # noqa: A002
    """Look after what others keep: pins, base images, patches that upstream took, mirrors."""
    from ftbuild.cli import audit as job
    from ftbuild.cli.selection import cache_folder

    return job.run(Path(config), cache_folder(), format)


@task(
    iterable=["triton"], help={**ENGINE_HELP, **{k: SELECTION_HELP[k] for k in ("triton", "base", "config")}}
)
@command
def base(c: Context, triton=None, base=None, config=CONFIG, ca=None, progress="auto", rebuild=False):
    """Make the images that cells are built on (`--base open`: from Debian and PyPI packages)."""
    from ftbuild.cli import cells as commands

    chosen = selection(config, triton, [], [], base)
    return commands.base(chosen, ca=ca, progress=progress, rebuild=rebuild, work=Path(WORK))


@task(help={**CONFIG_HELP, "check": "change nothing; fail where lock, sources.yaml and upstream disagree"})
@command
def lock(c: Context, config=CONFIG, check=False):
    """Resolve the refs of sources.yaml to commits and trees, into sources.lock.yaml."""
    from ftbuild.cli import cells as commands

    return commands.lock(Path(config), check)


@task(
    iterable=["triton"],
    help={
        **CONFIG_HELP,
        "triton": SELECTION_HELP["triton"],
        "output": "file to write (default: ftbuild-sources.tar)",
    },
)
@command
def bundle(c: Context, triton=None, config=CONFIG, output="ftbuild-sources.tar"):
    """Put every pinned source into one file, for `invoke build --sources` where there is no internet."""
    from ftbuild.cli import cells as commands

    return commands.bundle(Path(config), triton or (), Path(output))


@task(
    iterable=["triton"], help={**CONFIG_HELP, "triton": SELECTION_HELP["triton"], "format": "human or json"}
)
@command
def patches(c: Context, triton=None, config=CONFIG, format="human"):  # noqa: A002
    """Show which patch applies to which release, which is upstream already, and which conflicts."""
    from ftbuild.cli import cells as commands

    return commands.patches(Path(config), triton or (), format)


@task(help={**CONFIG_HELP, "format": "human or json"})
@command
def doctor(c: Context, config=CONFIG, format="human"):  # noqa: A002
    """Check this machine: engine, buildx, disk, memory, GPU, registries and sources."""
    from ftbuild.cli import cells as commands

    return commands.doctor(Path(config), Path(WORK), format)


@task(help={"check": "change nothing; fail when a schema is out of date"})
@command
def schema(c: Context, check=False):
    """Write the JSON Schemas of the configuration files."""
    from ftbuild.cli import cells as commands

    return commands.schema(ROOT / "buildcfg" / "schema", check)


@task(help={k: ENGINE_HELP[k] for k in ("ca", "progress")})
@command
def demo(c: Context, ca=None, progress="auto"):
    """Run the main job on the sample stack, from lock to a server that answers."""
    from ftbuild.cli import demo

    return demo.run(ROOT, Path(WORK), ca=ca, progress=progress)


@task(help={"select": "only the tests below this path, for instance tests/unit"})
@command
def test(c: Context, select=""):  # noqa: PT028
    """Run formatting, lint, types and all tests, as CI does."""
    from ftbuild.cli import development as checks

    return checks.run(ROOT, Path(WORK), select)


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        "model": "gpt, gptj, gptneox, t5 or codegen",
        "checkpoint": "folder from Hugging Face, or GPT-J's original step_<n>",
        "out": "folder to make; the weights lie in <out>/<gpus>-gpu",
        "gpus": "GPUs that the weights are split over (tensor parallel)",
        "dtype": "fp32 or fp16 (default: the converter's own)",
        "image": "SDK image (default: of the newest selected release that converts the model)",
        "jobs": "processes of the converter",
        "dry_run": "print what would be done: needs neither Docker nor network",
    },
)
@command
def convert(
    c: Context,
    model=None,
    checkpoint=None,
    out=None,
    gpus=1,
    dtype=None,
    image=None,
    jobs=4,
    dry_run=False,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
):
    """Turn a checkpoint into weights for the FasterTransformer backend, with the release's own converter."""
    from ftbuild.cli import serving as commands

    return commands.convert(
        selection(config, triton, sm, cell, base),
        model=model,
        checkpoint=checkpoint,
        out=out,
        gpus=gpus,
        dtype=dtype,
        jobs=jobs,
        image=image,
        dry_run=dry_run,
    )


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        "model": "model family, for instance gptneox",
        "weights": "what invoke convert wrote: a folder <n>-gpu, or the one that holds it",
        "out": "folder to write; must not exist",
        "gpus": "which weights, by the GPUs that they are split over (default: what is there)",
        "pipeline": "pipeline stages; the server then needs gpus x pipeline GPUs",
        "dtype": "what the GPUs compute in: fp16, fp32 or, where the model can, bf16",
        "tokenizer": "folder of the checkpoint, with tokenizer.json or vocab.json and merges.txt",
        "streamed": "answer token by token, over gRPC",
        "bare": "the model of token ids alone, without ensemble and tokenizer",
        "image": "SDK image to take the templates from (default: that of the selected release)",
    },
)
@command
def model_repo(
    c: Context,
    model,
    weights,
    out,
    gpus=0,
    pipeline=1,
    dtype="fp16",
    tokenizer=None,
    streamed=False,
    bare=False,
    image=None,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
):
    """Write the model repository of converted weights: ensemble, tokenizer, config.pbtxt of the release."""
    from ftbuild.cli import serving as commands

    return commands.model_repo(
        selection(config, triton, sm, cell, base),
        model=model,
        weights=weights,
        out=out,
        gpus=gpus or None,
        pipeline=pipeline,
        dtype=dtype,
        tokenizer=tokenizer,
        streamed=streamed,
        bare=bare,
        image=image,
    )


def serving_options(
    model_repo: str | None, gpus: Any, http_port: int, grpc_port: int, metrics_port: int, shm: str, name: str
) -> Any:
    """The options that say how a repository is served; `gpus` are indices as typed, or their number."""
    from ftbuild.serving import deployment

    return deployment.Options(
        models=Path(model_repo) if model_repo else None,
        gpus=tuple(range(gpus)) or None if isinstance(gpus, int) else deployment.gpu_indices(gpus),
        ports=deployment.Ports(http_port, grpc_port, metrics_port),
        shared_memory=deployment.size(shm),
        name=name,
    )


def wanted_image(image: str | None, triton: str | None, sm: str | None, base: str | None) -> Any:
    """The options that choose one of the images that are built."""
    from ftbuild.serving.image_choice import ImageChoice

    return ImageChoice(image, triton, sm, base)


IMAGE_HELP = {
    "image": "image to serve with (default: the built one for the GPU that is here)",
    "triton": "Triton release of the image, for instance 22.12",
    "sm": "SM of the image, for instance 80 (default: by the GPU)",
    "base": SELECTION_HELP["base"],
    **CONFIG_HELP,
}
SERVE_HELP = {
    "model_repo": "folder that invoke model-repo wrote",
    "gpus": "indices of the GPUs, for instance 0,1 (default: the first that the weights need)",
    "http_port": "port of the HTTP endpoint",
    "grpc_port": "port of the gRPC endpoint",
    "metrics_port": "port of the metrics",
    "shm": "shared memory, for instance 1g",
    "name": "name of the server",
    **IMAGE_HELP,
}


@task(
    help={
        **SERVE_HELP,
        "detach": "leave the server running",
        "stop": "end the server of that name",
        "logs": "print what the server of that name has said",
        "timeout": "seconds until the server must be ready",
        "dry_run": "print the docker run line and stop; with --image it needs no engine",
    },
)
@command
def serve(
    c: Context,
    model_repo=None,
    gpus=None,
    image=None,
    triton=None,
    sm=None,
    base=None,
    http_port=8000,
    grpc_port=8001,
    metrics_port=8002,
    shm="1g",
    name="triton-ft",
    detach=False,
    stop=False,
    logs=False,
    timeout=900,
    dry_run=False,
    config=CONFIG,
):
    """Serve a model repository with the image for the GPU that is here, until Ctrl-C."""
    from ftbuild.cli import serving as commands

    if stop:
        return commands.stop_server(name)
    if logs:
        return commands.server_log(name)
    return commands.serve(
        Path(config),
        wanted_image(image, triton, sm, base),
        serving_options(model_repo, gpus, http_port, grpc_port, metrics_port, shm, name),
        detach=detach,
        timeout=timeout,
        dry_run=dry_run,
    )


@task(help={**SERVE_HELP, "out": "file to write (default: standard output)"})
@command
def compose(
    c: Context,
    model_repo=None,
    gpus=None,
    image=None,
    triton=None,
    sm=None,
    base=None,
    http_port=8000,
    grpc_port=8001,
    metrics_port=8002,
    shm="1g",
    name="triton-ft",
    out=None,
    config=CONFIG,
):
    """Write a Compose file that serves a model repository and restarts it."""
    from ftbuild.cli import serving as commands

    return commands.compose(
        Path(config),
        wanted_image(image, triton, sm, base),
        serving_options(model_repo, gpus, http_port, grpc_port, metrics_port, shm, name),
        Path(out) if out else None,
    )


@task(
    help={
        **{key: text for key, text in SERVE_HELP.items() if key != "gpus"},
        "model_repo": "folder with the model repository, the same on every node (without --pvc)",
        "pvc": "PersistentVolumeClaim with the model repository; --model-repo may name a copy to read here",
        "gpu_count": "GPUs for each pod (default: as many as the weights need)",
        "replicas": "pods behind the Service",
        "out": "file to write (default: standard output)",
    }
)
@command
def k8s(
    c: Context,
    model_repo=None,
    pvc=None,
    gpu_count=0,
    replicas=1,
    image=None,
    triton=None,
    sm=None,
    base=None,
    http_port=8000,
    grpc_port=8001,
    metrics_port=8002,
    shm="1g",
    name="triton-ft",
    out=None,
    config=CONFIG,
):
    """Write a Kubernetes Deployment and Service that serve a model repository."""
    from ftbuild.cli import serving as commands

    return commands.k8s(
        Path(config),
        wanted_image(image, triton, sm, base),
        serving_options(model_repo, gpu_count, http_port, grpc_port, metrics_port, shm, name),
        claim=pvc,
        replicas=replicas,
        out=Path(out) if out else None,
    )


@task(
    help={
        **SERVE_HELP,
        "model_repo": "model repository that the start script takes by default",
        "out": "folder to write",
        "archive": "put the image's tar into the folder, for a machine without Docker",
    }
)
@command
def sif(
    c: Context,
    out,
    model_repo=None,
    gpus=None,
    image=None,
    triton=None,
    sm=None,
    base=None,
    http_port=8000,
    grpc_port=8001,
    metrics_port=8002,
    shm="1g",
    name="triton-ft",
    archive=False,
    config=CONFIG,
):
    """Write an Apptainer definition, a start script and a Slurm batch script; build the .sif if possible."""
    from ftbuild.cli import serving as commands

    return commands.sif(
        Path(config),
        wanted_image(image, triton, sm, base),
        serving_options(model_repo, gpus, http_port, grpc_port, metrics_port, shm, name),
        folder=Path(out),
        archive=archive,
    )


@task(
    help={
        **CONFIG_HELP,
        "model": "model family, for instance gptneox",
        "http": "host:port of the server's HTTP endpoint (default: localhost:8000, if --grpc is not given)",
        "grpc": "host:port of its gRPC endpoint (default: localhost:8001, if --http is not given)",
        "tokenizer": "folder of the checkpoint: the served tokens must be this tokenizer's; --bleu needs it",
        "batch_size": "prompts in a request",
        "requests": "timed requests for each test and protocol",
        "bleu": "translate --source and compare with --target",
        "source": "file with a sentence a line, for instance upstream's tools/t5_utils/test.en",
        "target": "file with the translations",
        "threshold": "BLEU, 0 to 100, that must be reached",
        "expect": "answers.json that invoke smoke --prepare made, for the checkpoint beside it",
        "format": "human or json",
    }
)
@command
def client_test(
    c: Context,
    model,
    http=None,
    grpc=None,
    tokenizer=None,
    batch_size=8,
    requests=10,
    bleu=False,
    source=None,
    target=None,
    threshold="",
    expect=None,
    config=CONFIG,
    format="human",  # noqa: A002
):
    """Check what a running server answers over HTTP and gRPC, and how fast; exits with 9 if it is wrong."""
    from ftbuild.cli import serving as commands

    return commands.client_test(
        Path(config),
        model=model,
        http=http,
        grpc=grpc,
        tokenizer=tokenizer,
        batch_size=batch_size,
        requests=requests,
        bleu=bleu,
        source=source,
        target=target,
        threshold=threshold,
        expect=expect,
        output=format,
    )
