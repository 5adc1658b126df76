"""The command that compares two servers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, ConfigFolder, setting
from ftbuild.cli.output import OutFile, require_writable, write


@dataclass(frozen=True)
class Measured:
    """The options about the answers: how long, how often, and when they count as equal."""

    length: Annotated[int, Range(1, 10_000), "maximum tokens in an answer"] = 32
    requests: Annotated[int, Range(1, 1000), "timed requests for each prompt and server"] = 1
    tie: Annotated[
        float,
        Range(0, 100),
        "difference of log-probabilities up to which rounding decides between two tokens",
    ] = 0.1
    threshold: Annotated[
        float | None,
        Range(0, 100),
        ("percentage of answers that must agree; those that diverge at a tie count as agreeing"),
    ] = None
    timeout: Annotated[float, Range(0.1, 86400), "maximum seconds for an answer"] = 60.0


@command()
def compare(
    old: Annotated[
        str,
        "the current server: host:port of Triton's gRPC, http://host:port of its HTTP, or OpenAI's base "
        "URL, for instance http://host:8000/v1",
    ],
    new: Annotated[str, "the server to compare with it, an address as for --old"],
    prompts: Annotated[
        Path,
        "file with one text per line, or one list of token ids per line (.jsonl); both get the same ids",
    ],
    measured: Measured,
    tokenizer: Annotated[
        Path | None, "folder of the checkpoint, for texts and for servers that return only text"
    ] = None,
    old_model: Annotated[
        str | None, "name of the model on the old server (default: fastertransformer, or OpenAI's first)"
    ] = None,
    new_model: Annotated[str | None, "name of the model on the new server"] = None,
    config: ConfigFolder = CONFIG,
    format: Annotated[Literal["human", "json", "md", "html"], "human, json, md or html"] = "human",  # noqa: A002
    out: OutFile = None,
) -> int:
    """Compare two servers' answers token by token, and their latency; exits with 9 if one does not answer."""
    from ftbuild.client import bleu
    from ftbuild.client.comparing import prompts as prompt_files
    from ftbuild.client.comparing import rendering, runner, servers
    from ftbuild.client.comparing.runner import ComparisonOptions
    from ftbuild.client.comparing.servers import Address
    from ftbuild.config import loader
    from ftbuild.text import reporter

    require_writable(out)
    models = loader.load(config).models
    known = None if tokenizer is None else bleu.tokenizer(tokenizer)
    questions = prompt_files.read(prompts, known)
    addresses = {
        "old": Address(old, old_model, setting("FTBUILD_OLD_API_KEY"), measured.timeout),
        "new": Address(new, new_model, setting("FTBUILD_NEW_API_KEY"), measured.timeout),
    }
    with servers.connected(addresses, models, known) as connected:
        options = ComparisonOptions(measured.length, measured.requests, measured.tie)
        report = runner.run(connected, questions, options, reporter.to_stderr)
    if format == "json":
        write(json.dumps(report.as_dict(), indent=2) + "\n", out)
    else:
        text = None if known is None else lambda ids: str(known.decode(list(ids), skip_special_tokens=False))
        write(rendering.render(report, format, text), out)
    report.require(measured.threshold)
    return 0
