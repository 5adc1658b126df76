"""Conversions carried out in the SDK image, and checks of the weights that they leave."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import container, mounted
from ftbuild.errors import ConfigError, ConversionError, HostError
from ftbuild.host import disk, files
from ftbuild.models import config_ini, progress, sentence, untrusted, weight_checks, weights
from ftbuild.models.conversion import CHECKPOINT, OUT, RELAID, Conversion
from ftbuild.models.converters import SCRIPTS
from ftbuild.models.weight_files import FETCH_AGAIN
from ftbuild.text import terminal
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

RECORD = weight_checks.RECORD
LOG = "convert.log"
SHOWN_LINES = 15
# Of a longer log, its end is read.
LOG_BYTES = 2**26
# A converter whose worker process is killed waits for it for ever (multiprocessing.Pool). An hour, since the
# whole checkpoint is read before anything is written.
STALL_SECONDS = 3600
# 128 + SIGKILL: the kernel's answer when memory runs out.
KILLED = 137
# After these a converter goes on and ends with 0, with weights missing or wrong: FT v5.0
# huggingface_t5_ckpt_convert.py:129; v5.3 huggingface_t5_ckpt_convert.py:146, huggingface_gpt_convert.py:121;
# transformers' warning of tensors that the checkpoint lacks.
LOST = (
    "[ERROR]",
    "cannot find key",
    "Fail to save the config",
    "newly initialized",
)


def convert(client: docker.DockerClient, conversion: Conversion, image: str, report: Reporter) -> Path:
    """Convert in an SDK image; return the folder `<n>-gpu` with the weights.

    The converter's output is in `OUT.log`, beside the weights, and stays there. Raises HostError without
    enough disk or without a module that the converter needs, ConfigError for a checkpoint that lacks tensors,
    ConversionError with the last lines when the converter fails or its weights are incomplete. After any
    failure `OUT` does not exist.
    """
    if conversion.tensor_faults:
        raise ConfigError(
            "; ".join(conversion.tensor_faults),
            where=str(conversion.checkpoint.folder),
            hint=f"{FETCH_AGAIN}; or save it again with save_pretrained",
        )
    out = conversion.request.out.absolute()
    log = out.with_name(f"{out.name}.log")
    disk.require(out.parent, conversion.needed, "the conversion")
    with files.atomic_folder(out) as partial:
        log.unlink(missing_ok=True)
        code, output = _run(client, conversion, image, partial, log, report)
        _check_output(code, output, partial, log)
        _check_weights(conversion, partial, log)
        beyond = _check_values(conversion, partial, log, report)
        record = json.dumps({**_record(conversion, image), **beyond}, indent=2) + "\n"
        _write_new(partial / RECORD, record, log)
    return out / weights.folder_name(conversion.request.gpus)


def _run(
    client: docker.DockerClient,
    conversion: Conversion,
    image: str,
    partial: Path,
    log: Path,
    report: Reporter,
) -> tuple[int, str]:
    """Run the commands, which write into `partial`; return exit code and output, which is also in `log`."""
    readable = {CHECKPOINT: conversion.checkpoint.folder.absolute()}
    readable |= {f"{SCRIPTS}/{script.name}": script for script in conversion.scripts}
    lines = [f"exec > {OUT}/{LOG} 2>&1", *(shlex.join(argv) for argv in conversion.commands())]
    folders = mounted.Folders(readable, {OUT: partial})
    title = f"converting {conversion.request.family}"
    try:
        with progress.shown(title, partial, conversion.needed, report) as tick:
            watch = progress.Watch(partial)

            def look() -> None:
                tick()
                if watch() > STALL_SECONDS:
                    raise _stalled(log)

            code, output = mounted.run(client, image, "\n".join(lines), folders, look)
    finally:
        _keep_log(partial / LOG, log)
    return code, output + _tail(log)


def _keep_log(written: Path, log: Path) -> None:
    """Move the log beside the output, unless the converter put something else in its place."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(written.lstat().st_mode):
            written.replace(log)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, io.SEEK_END) - LOG_BYTES))
        return stream.read().decode("utf-8", "replace")


def _check_output(code: int, output: str, partial: Path, log: Path) -> None:
    """Raise the error that a converter's exit code and output stand for, if any."""
    if code:
        if not disk.free_bytes(partial):
            raise HostError(
                "the disk is full",
                where=str(partial.parents[1]),
                hint="free some space and repeat the command",
            )
        if code == KILLED:
            raise HostError(
                "the converter was killed, most likely because memory ran out",
                where=str(log),
                hint="it holds the whole model, some families as fp32 whatever the checkpoint is",
            )
        raise _failed(f"the converter {container.ending(code)}", output.splitlines()[-SHOWN_LINES:], log)
    if lost := [line for line in output.splitlines() if any(mark in line for mark in LOST)]:
        raise _failed("the converter left something out", lost[:SHOWN_LINES], log)


def _check_weights(conversion: Conversion, partial: Path, log: Path) -> None:
    """Leave nothing but complete weights in `partial`, or raise ConversionError.

    The checkpoint may have run code in the converter, so what that left is looked at before it is used.
    """
    # First, as it may hold links to the checkpoint; they are not followed.
    shutil.rmtree(partial / RELAID, ignore_errors=True)
    try:
        untrusted.require_plain(partial, "do not use this checkpoint: converters write files only")
    except ConfigError as odd:
        raise odd.converted(ConversionError) from odd
    gpus = conversion.request.gpus
    folder = partial / weights.folder_name(gpus)
    _complete_config(conversion, folder, log)
    complaints = list(
        weights.complaints(
            folder, conversion.converter, conversion.checkpoint.facts, gpus, conversion.data_type
        )
    )
    if complaints:
        more = len(complaints) - SHOWN_LINES
        shown = [*complaints[:SHOWN_LINES], *([f"and {more} more"] if more > 0 else [])]
        raise _failed("the converter ended without an error, but its weights are incomplete", shown, log)


def _check_values(conversion: Conversion, partial: Path, log: Path, report: Reporter) -> dict[str, list[str]]:
    """Return what the record says of values beyond fp16's range; ConversionError for what are no numbers."""
    from ftbuild.models import magnitudes  # numpy takes a while

    data_type = conversion.data_type
    folder = partial / weights.folder_name(conversion.request.gpus)
    extremes = magnitudes.examine(folder, conversion.files, data_type)
    if extremes.no_numbers:
        raise ConversionError(
            f"infinities or NaN, where {data_type} is too small for a value or the checkpoint has them: "
            + _named(extremes.no_numbers),
            where=str(log),
            hint="--dtype fp32 holds what fp16 does not, then serve it as fp32 or bf16"
            if data_type == "fp16"
            else "the checkpoint itself is damaged, or was trained to no end: take another",
        )
    if not extremes.beyond_fp16:
        return {}
    report(
        "warning: values that are infinite in fp16, so that invoke model-repo will want --dtype bf16 or "
        f"fp32: {_named(extremes.beyond_fp16)}"
    )
    return {weight_checks.BEYOND_FP16: list(extremes.beyond_fp16)}


def _named(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_LINES
    return ", ".join(names[:SHOWN_LINES]) + (f" and {more} more" if more > 0 else "")


def _complete_config(conversion: Conversion, folder: Path, log: Path) -> None:
    """Write the values of config.ini that a converter does not write."""
    added = weights.added_config(conversion.converter, conversion.checkpoint.facts)
    if conversion.sentence:
        added[sentence.SECTION] = conversion.sentence.values()
    if not folder.is_dir():
        return
    try:
        if added:
            config_ini.add(folder, added)
        if context := config_ini.added_context(folder, conversion.checkpoint.settings):
            config_ini.add(folder, context)
    except FileExistsError as taken:
        raise _taken(config_ini.FILE, log) from taken
    except ConfigError as broken:
        raise broken.converted(ConversionError) from broken


def _write_new(file: Path, content: str, log: Path) -> None:
    try:
        files.write_new(file, content)
    except FileExistsError as taken:
        raise _taken(file.name, log) from taken


def _taken(name: str, log: Path) -> ConversionError:
    return _failed("the converter wrote a file that ftbuild writes itself", [name], log)


def _record(conversion: Conversion, image: str) -> dict[str, object]:
    request = conversion.request
    return {
        "family": request.family,
        "release": conversion.release,
        "image": image,
        "gpus": request.gpus,
        "data_type": conversion.data_type,
        "facts": conversion.checkpoint.facts,
        "commands": conversion.commands(),
    }


def _stalled(log: Path) -> ConversionError:
    return ConversionError(
        f"the converter has written nothing for {STALL_SECONDS / 60:g} minutes",
        where=str(log),
        hint="was one of its processes killed because memory ran out? See dmesg; try --jobs 1",
    )


def _failed(what: str, lines: Sequence[str], log: Path) -> ConversionError:
    output = terminal.safe("\n    ".join(lines))
    return ConversionError(f"{what}:\n    {output}", where=str(log), hint="read the whole log")
