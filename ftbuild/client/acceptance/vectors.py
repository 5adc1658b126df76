"""Acceptance of a server that returns embeddings: shape, repetition, company, and a reference's answers."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.client import golden, model_metadata, vectors
from ftbuild.client.acceptance.report import AcceptanceReport
from ftbuild.client.connection import Client, Protocol
from ftbuild.client.tensors import Tokens
from ftbuild.errors import ConfigError
from ftbuild.models import config_pbtxt, ensemble
from ftbuild.models.vector_models import ANSWER, IDS, LENGTHS

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TEST = "vectors"


@dataclass(frozen=True)
class VectorOptions:
    """What to ask, and over which protocols (address by protocol); `expect` is a file with right vectors."""

    addresses: Mapping[Protocol, str]
    batch_size: int = 8
    requests: int = 10
    expect: Path | None = None


def run(options: VectorOptions) -> AcceptanceReport:
    """Ask the ensemble for the vectors of fixed token ids, over every protocol.

    Raises Refused when the server does not answer, ConfigError when it serves no such model.
    """
    clients = {protocol: Client(address, protocol) for protocol, address in options.addresses.items()}
    try:
        return _checked(options, clients)
    finally:
        for client in clients.values():
            client.close()


def _checked(options: VectorOptions, clients: Mapping[Protocol, Client]) -> AcceptanceReport:
    client = next(iter(clients.values()))
    whole = model_metadata.read(client.config(ensemble.ENSEMBLE))
    if missing := [name for name in (IDS, LENGTHS) if name not in whole.inputs]:
        raise ConfigError(
            f"the server's ensemble is of another family: it takes no {', '.join(missing)}",
            hint="name the family that is served with --model",
        )
    computes_in = model_metadata.read(client.config(config_pbtxt.MODEL)).computes_in
    tolerance = golden.VECTOR_TOLERANCE["fp32" if computes_in == "fp32" else "fp16"]
    report = AcceptanceReport()
    prompts = list(islice(cycle(golden.PROMPTS), options.batch_size))
    firsts: dict[Protocol, Array] = {}
    for protocol, client in clients.items():
        expect = functools.partial(report.expect, TEST)
        first = _ask(client, prompts)
        expect(f"shape over {protocol}", _misshapen(first, len(prompts)))
        repeats = [_timed(report, client, prompts) for _ in range(options.requests)]
        wrong = (_difference(first, other, tolerance) for other in repeats)
        expect(f"{len(repeats)} repeats equal over {protocol}", next(filter(None, wrong), None))
        # What comes with a text in a batch, and how it is padded, does not change its vector.
        alone = _together([_ask(client, [prompt]) for prompt in prompts])
        expect(f"equal alone and in a batch over {protocol}", _difference(first, alone, tolerance))
        if options.expect is not None:
            _check_reference(report, client, options.expect, tolerance)
        firsts[protocol] = first
    if len(firsts) == 2:
        wrong_pair = _difference(firsts["http"], firsts["grpc"], tolerance)
        report.expect(TEST, "HTTP and gRPC equal", wrong_pair)
    return report


def _ask(client: Client, prompts: Sequence[Tokens]) -> Array:
    outputs = client.infer(ensemble.ENSEMBLE, vectors.request(prompts))
    if ANSWER not in outputs:
        raise ConfigError(f"there is no {ANSWER} in the answer, but {sorted(outputs)}")
    return vectors.answer(outputs)


def _timed(report: AcceptanceReport, client: Client, prompts: Sequence[Tokens]) -> Array:
    start = time.perf_counter()
    vectors = _ask(client, prompts)
    report.seconds[f"{TEST} {client.protocol}"].append(time.perf_counter() - start)
    return vectors


def _together(rows: Sequence[Array]) -> Array:
    import numpy as np

    return np.concatenate(rows)


def _misshapen(vectors: Array, batch: int) -> str | None:
    import numpy as np

    if vectors.ndim != 2 or len(vectors) != batch or not vectors.size:
        return f"{vectors.shape}, not [{batch}, hidden]"
    return None if np.isfinite(vectors).all() else "it holds infinities or NaNs"


def _difference(first: Array, other: Array, tolerance: float) -> str | None:
    return golden.vector_mismatch(first.tolist(), other.tolist(), tolerance)


def _check_reference(report: AcceptanceReport, client: Client, file: Path, tolerance: float) -> None:
    """Compare with the vectors of a file that `invoke smoke --prepare` made."""
    try:
        expected = golden.expected_vectors(file)
        cases = {name: (list(golden.CASES[name]["prompts"]), rows) for name, rows in expected.cases.items()}
        vectors = {name: _ask(client, prompts).tolist() for name, (prompts, _) in cases.items()}
        wrong = {n: golden.vector_mismatch(rows, vectors[n], tolerance) for n, (_, rows) in cases.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as broken:
        raise ConfigError(
            f"no reference embeddings: {broken!r}", where=str(file), hint="invoke smoke --prepare makes them"
        ) from broken
    for name, difference in wrong.items():
        report.expect(TEST, f"reference's answers to {name!r} over {client.protocol}", difference)
