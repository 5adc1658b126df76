"""What each task does on the way from a checkpoint to a served answer. Returns the exit code."""

from __future__ import annotations

import json
from pathlib import Path

from ftbuild.cli.selection import Selection, plans, progress, require_format
from ftbuild.config import loader
from ftbuild.errors import ConfigError
from ftbuild.serving.deployment import Options
from ftbuild.serving.image_choice import ImageChoice


def convert(
    selection: Selection,
    *,
    model: str | None,
    checkpoint: str | None,
    out: str | None,
    gpus: int,
    dtype: str | None,
    jobs: int,
    image: str | None,
    dry_run: bool,
) -> int:
    """Convert a checkpoint in the SDK image of a selected cell, or (`dry_run`) print what would be done."""
    from ftbuild.engine import daemon
    from ftbuild.models import conversion

    if not (model and checkpoint and out):
        raise ConfigError("--model, --checkpoint and --out are needed", hint="invoke --help convert")
    config = loader.load(selection.config)
    order = conversion.ConversionRequest(model, Path(checkpoint), Path(out), gpus, dtype, jobs)
    cells = conversion.candidates(config, plans(config, selection), order)
    planned = conversion.plan(config, cells[0].cell.triton, order)
    print(planned.render())
    if not dry_run:
        client = daemon.connect()
        made = conversion.convert(client, planned, conversion.sdk_image(client, cells, image), progress)
        print(f"weights: {made}")
        print(f"next: invoke model-repo --model {model} --weights {made} --out FOLDER")
    return 0


def model_repo(
    selection: Selection,
    *,
    model: str,
    weights: str,
    out: str,
    gpus: int | None,
    pipeline: int,
    dtype: str,
    tokenizer: str | None,
    streamed: bool,
    bare: bool,
    image: str | None,
) -> int:
    """Write the model repository of converted weights, with templates out of an SDK image."""
    from ftbuild.engine import daemon
    from ftbuild.models import repository

    config = loader.load(selection.config)
    layout = repository.layout(config, model)
    client = daemon.connect()
    if image is None:
        plan = repository.sdk_image(client, plans(config, selection))
        image = plan.tag("sdk")
        if streamed:
            repository.check_streams(config, model, plan.cell.triton)
    options = repository.Options(
        layout=layout,
        weights=Path(weights),
        out=Path(out),
        gpus=gpus,
        pipeline=pipeline,
        dtype=dtype,
        tokenizer=Path(tokenizer) if tokenizer else None,
        streamed=streamed,
        bare=bare,
    )
    made = repository.make(repository.templates(client, image, layout), options)
    print(f"{made.folder}: {', '.join(sorted(made.models))}, for {made.gpus} GPUs")
    print(f"next: invoke serve --model-repo {made.folder}")
    return 0


def serve(
    config_folder: Path, wanted: ImageChoice, options: Options, *, detach: bool, timeout: int, dry_run: bool
) -> int:
    """Serve a model repository on this machine, or (`dry_run`) print the docker run line that would."""
    from ftbuild.engine import daemon
    from ftbuild.serving import docker, resolve

    config = loader.load(config_folder)
    if dry_run:
        print(docker.command_line(resolve.to_write(config, wanted, options)))
        return 0
    client = daemon.connect()
    found = resolve.to_serve(client, config, wanted, options)
    docker.serve(client, found.deployment, found.image, print, detach=detach, seconds=timeout)
    return 0


def stop_server(name: str) -> int:
    """End a server that `serve` started."""
    from ftbuild.engine import daemon
    from ftbuild.serving import docker

    docker.stop(docker.find(daemon.connect(), name))
    print(f"stopped {name}")
    return 0


def server_log(name: str) -> int:
    """Print what a server has said so far."""
    from ftbuild.engine import daemon
    from ftbuild.serving import docker

    print(docker.logs(docker.find(daemon.connect(), name)))
    return 0


def compose(config_folder: Path, wanted: ImageChoice, options: Options, out: Path | None) -> int:
    """Write a deployment as a Compose file."""
    from ftbuild.serving import compose as renderer
    from ftbuild.serving import resolve

    found = resolve.to_write(loader.load(config_folder), wanted, options)
    return _written(renderer.render(found), out)


def k8s(
    config_folder: Path,
    wanted: ImageChoice,
    options: Options,
    *,
    claim: str | None,
    replicas: int,
    out: Path | None,
) -> int:
    """Write a deployment as Kubernetes objects."""
    from ftbuild.serving import kubernetes, resolve

    found = resolve.to_write(loader.load(config_folder), wanted, options)
    return _written(kubernetes.render(found, claim=claim, replicas=replicas), out)


def sif(config_folder: Path, wanted: ImageChoice, options: Options, *, folder: Path, archive: bool) -> int:
    """Write a deployment for Apptainer and Slurm, and build the image where Apptainer is installed."""
    from ftbuild.serving import apptainer, resolve

    found = resolve.to_write(loader.load(config_folder), wanted, options)
    image = apptainer.write(found, folder, archive=archive, report=progress)
    print(f"wrote {image or folder}")
    return 0


def client_test(
    config_folder: Path,
    *,
    model: str,
    http: str | None,
    grpc: str | None,
    tokenizer: str | None,
    batch_size: int,
    requests: int,
    bleu: bool,
    source: str | None,
    target: str | None,
    threshold: str,
    expect: str | None,
    output: str,
) -> int:
    """Ask a running server and check what it answers; SmokeError when an answer is wrong."""
    from ftbuild.client import acceptance as tests
    from ftbuild.models import repository

    require_format(output, "human", "json")
    config = loader.load(config_folder)
    repository.layout(config, model)
    if min(batch_size, requests) < 1:
        raise ConfigError("--batch-size and --requests must be at least 1")
    if bleu and not (source and target):
        raise ConfigError("--bleu needs --source and --target, files with a sentence a line")
    if not (http or grpc):
        http, grpc = "localhost:8000", "localhost:8001"
    report = tests.run(
        tests.Options(
            tensors=config.models.families[model].tensors,
            addresses={**({"http": http} if http else {}), **({"grpc": grpc} if grpc else {})},
            batch_size=batch_size,
            requests=requests,
            tokenizer=Path(tokenizer) if tokenizer else None,
            expect=Path(expect) if expect else None,
            bleu=tests.Bleu(Path(source), Path(target), _number("threshold", threshold))
            if bleu and source and target
            else None,
        )
    )
    print(json.dumps(report.as_dict(), indent=2) if output == "json" else tests.summary(report))
    report.verdict()
    return 0


def _number(option: str, text: str) -> float | None:
    """The value of an option that is empty where it was not given; ConfigError when it is no number."""
    try:
        return float(text) if text else None
    except ValueError:
        raise ConfigError(f"--{option} must be a number, not {text!r}") from None


def _written(text: str, out: Path | None) -> int:
    """Print a file's text, or put it there."""
    if out is None:
        print(text, end="")
    else:
        out.write_text(text)
        print(f"wrote {out}")
    return 0
