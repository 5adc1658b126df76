"""Acceptance by text through the ensemble, compared with its steps one by one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.client import bleu, model_metadata
from ftbuild.client.acceptance.comparison import difference, missing_text
from ftbuild.client.acceptance.session import Session
from ftbuild.client.connection import Client, Protocol
from ftbuild.client.model_metadata import ModelMetadata
from ftbuild.models import ensemble

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array]

TEST = "end to end"
# Their lengths differ; each is another case for a tokenizer: words, code, blanks, other alphabets.
TEXTS = (
    "The quick brown fox jumps over",
    "def fibonacci(n):\n    if n < 2:",
    "Yes",
    "In 1492, Columbus",
    "Z\u00fcrich, \u041c\u043e\u0441\u043a\u0432\u0430, \u6771\u4eac and",
    "a  b   c",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 2, 3, 4, 5,",
)


def check(session: Session) -> None:
    """Ask the ensemble for greedy answers to texts, over every protocol."""
    options = session.options
    expect = functools.partial(session.report.expect, TEST)
    whole = _streamed_as(model_metadata.read(session.any_client.config(ensemble.ENSEMBLE)), session.model)
    parts = {step.model: model_metadata.read(session.any_client.config(step.model)) for step in whole.steps}
    texts = list(islice(cycle(TEXTS), options.batch_size))
    request = _text_request(whole, session.model, texts, options.length)
    text = next(name for step in whole.steps for part, name in step.outputs.items() if part == "OUTPUT")
    firsts: dict[Protocol, Arrays] = {}
    for protocol, client in session.clients.items():
        first, *repeats = list(session.repeated(TEST, client, whole, request))
        firsts[protocol] = first
        expect(f"texts begin with the prompts over {protocol}", missing_text(first[text], texts))
        wrong = (difference(first, other, [text]) for other in repeats)
        expect(f"{len(repeats)} repeats equal over {protocol}", next(filter(None, wrong), None))
        known = _stepwise(session, client, whole, parts, request)
        expect(f"ensemble and its steps equal over {protocol}", difference(first, known, [text]))
        if options.tokenizer is not None:
            wrong_ids = _wrong_ids(known, whole, texts, options.tokenizer)
            expect(f"prompts as the tokenizer's over {protocol}", wrong_ids)
    session.expect_equal(TEST, firsts, [text])


def _text_request(
    whole: ModelMetadata, model: ModelMetadata, texts: Sequence[str], length: int
) -> dict[str, Array]:
    """Return the ensemble's inputs for a greedy answer to each text, without word lists."""
    import numpy as np

    source = model_metadata.sources(whole)
    batch = len(texts)
    values = {
        "QUERY": np.array([[text.encode()] for text in texts], object),
        "REQUEST_OUTPUT_LEN": np.full((batch, 1), length, np.uint32),
        **{name: np.full((batch, 1), b"", object) for name in ensemble.WORDS},
    }
    named = {source[name]: array for name, array in values.items() if name in source}
    needed = {name: array for name, array in named.items() if not whole.inputs[name].optional}
    return {**needed, **model_metadata.options(whole, model.parameters, batch)}


def _stepwise(
    session: Session,
    client: Client,
    whole: ModelMetadata,
    parts: Mapping[str, ModelMetadata],
    request: Arrays,
) -> dict[str, Array]:
    """Return the ensemble's tensors when the client itself carries them from step to step."""
    known: dict[str, Array] = dict(request)
    for step, inputs in model_metadata.chain(whole):
        arrays = {name: known[tensor] for name, tensor in inputs.items() if tensor in known}
        outputs = session.ask(client, parts[step.model], arrays)
        known |= {tensor: outputs[name] for name, tensor in step.outputs.items() if name in outputs}
    return known


def _wrong_ids(known: Arrays, whole: ModelMetadata, texts: Sequence[str], folder: Path) -> str | None:
    """Return the first text whose token ids are not the tokenizer's, or None."""
    tokenizer = bleu.tokenizer(folder)
    outputs = whole.steps[0].outputs
    rows, lengths = known[outputs["INPUT_ID"]], known[outputs["REQUEST_INPUT_LEN"]]
    for text, row, length in zip(texts, rows.tolist(), lengths.reshape(-1).tolist(), strict=True):
        if row[:length] != (ids := tokenizer.encode(text).ids):
            return f"{text!r} became {row[:length]}, not {ids}"
    return None


def _streamed_as(whole: ModelMetadata, model: ModelMetadata) -> ModelMetadata:
    """Return an ensemble that answers as its fastertransformer model does, whatever its config.pbtxt has."""
    return ModelMetadata(whole.name, whole.inputs, whole.parameters, whole.steps, model.decoupled)
