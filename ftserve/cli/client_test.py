"""The command that questions a running server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, ConfigFolder, Format

if TYPE_CHECKING:
    from ftbuild.client.acceptance.options import BleuOptions


@dataclass(frozen=True)
class Translation:
    """The options about translations: what is translated, and how good it must be."""

    bleu: Annotated[bool, "translate --source and compare with --target"] = False
    source: Annotated[
        Path | None, "file with a sentence a line, for instance upstream's tools/t5_utils/test.en"
    ] = None
    target: Annotated[Path | None, "file with the translations"] = None
    threshold: Annotated[float | None, Range(0, 100), "BLEU, 0 to 100, that must be reached"] = None

    def options(self) -> BleuOptions | None:
        """Return the options for the client, None without a translation; ConfigError without its files."""
        from ftbuild.client.acceptance.options import BleuOptions
        from ftbuild.errors import ConfigError

        if not self.bleu:
            return None
        if not (self.source and self.target):
            raise ConfigError("--bleu needs --source and --target, files with a sentence a line")
        return BleuOptions(self.source, self.target, self.threshold)


@command(needs={"source": ["bleu"], "target": ["bleu"], "threshold": ["bleu"]})
def client_test(
    model: Annotated[str, "model family, for instance gptneox"],
    translation: Translation,
    http: Annotated[
        str | None,
        "host:port of the server's HTTP endpoint (default: localhost:8000, if --grpc is not given)",
    ] = None,
    grpc: Annotated[
        str | None, "host:port of its gRPC endpoint (default: localhost:8001, if --http is not given)"
    ] = None,
    tokenizer: Annotated[
        Path | None,
        "folder of the checkpoint: the served tokens must be this tokenizer's; --bleu needs it",
    ] = None,
    batch_size: Annotated[int, Range(1, 1024), "prompts in a request"] = 8,
    requests: Annotated[int, Range(1, 10**6), "timed requests for each test and protocol"] = 10,
    expect: Annotated[
        Path | None, "answers.json that invoke smoke --prepare made, for the checkpoint beside it"
    ] = None,
    config: ConfigFolder = CONFIG,
    format: Format = "human",  # noqa: A002
) -> int:
    """Check what a running server answers over HTTP and gRPC, and how fast; exits with 9 if it is wrong."""
    from ftbuild.client.acceptance import runner, vectors
    from ftbuild.client.acceptance.options import AcceptanceOptions
    from ftbuild.client.connection import Protocol
    from ftbuild.config import loader
    from ftbuild.errors import ConfigError
    from ftbuild.models import repository
    from ftbuild.text import screen

    loaded = loader.load(config)
    repository.served_family(loaded, model)
    bleu = translation.options()
    if not (http or grpc):
        http, grpc = "localhost:8000", "localhost:8001"
    addresses: dict[Protocol, str] = {**({"http": http} if http else {}), **({"grpc": grpc} if grpc else {})}
    tensors = loaded.models.families[model].tensors
    if tensors is None:
        if bleu or tokenizer:
            raise ConfigError(
                f"{model} answers token ids with embeddings, not with text",
                hint=("leave out --bleu, --tokenizer"),
            )
        report = vectors.run(vectors.VectorOptions(addresses, batch_size, requests, expect))
    else:
        report = runner.run(
            AcceptanceOptions(
                tensors=tensors,
                addresses=addresses,
                batch_size=batch_size,
                requests=requests,
                tokenizer=tokenizer,
                expect=expect,
                bleu=bleu,
            )
        )
    screen.show(json.dumps(report.as_dict(), indent=2) if format == "json" else report.render())
    report.require()
    return 0
