"""Acceptance by fixed token ids: shape, repetition, and the answers of a reference."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.client import golden, model_metadata, tensors
from ftbuild.client.acceptance.comparison import difference, mismatch, missing_prompt, shape_of_answer
from ftbuild.client.acceptance.session import Session
from ftbuild.client.connection import Protocol
from ftbuild.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

TEST = "identity"


def check(session: Session) -> None:
    """Ask for greedy answers to fixed prompts, over every protocol."""
    options, model = session.options, session.model
    expect = functools.partial(session.report.expect, TEST)
    prompts = list(islice(cycle(golden.PROMPTS), options.batch_size))
    extra = model_metadata.options(model, model.parameters, options.batch_size)
    request = {**session.schema.request(prompts, options.length), **extra}
    firsts: dict[Protocol, Arrays] = {}
    for protocol, client in session.clients.items():
        first, *repeats = list(session.repeated(TEST, client, model, request))
        if tensors.ANSWER not in first:
            expect(f"answer over {protocol}", f"there is no {tensors.ANSWER}, but {sorted(first)}")
            continue
        expected = shape_of_answer(options.tensors, prompts, options.length)
        shape = first[tensors.ANSWER].shape
        expect(f"shape over {protocol}", None if shape == expected else f"{shape}, not {expected}")
        if options.tensors.repeats_prompt:
            expect(f"prompts repeated over {protocol}", missing_prompt(first, prompts))
        wrong = (difference(first, other, [tensors.ANSWER]) for other in repeats)
        expect(f"{len(repeats)} repeats equal over {protocol}", next(filter(None, wrong), None))
        firsts[protocol] = first
    session.expect_equal(TEST, firsts, [tensors.ANSWER])
    if options.expect is not None:
        _check_reference(session, options.expect)


def _check_reference(session: Session, file: Path) -> None:
    """Compare with the greedy cases of a file that `invoke smoke --prepare` made."""
    try:
        expected = golden.expected(file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as broken:
        raise ConfigError(
            f"no reference answers: {broken!r}", where=str(file), hint="invoke smoke --prepare makes them"
        ) from broken
    model, schema = session.model, session.schema
    tolerance = max(golden.TOLERANCE.values()) if model.computes_in != "fp32" else 0.0
    for name, case in golden.CASES.items():
        if case["beams"] > 1 or name not in expected.cases:
            continue
        prompts, length = list(case["prompts"]), int(case["length"])
        extra = model_metadata.options(model, model.parameters, len(prompts))
        for protocol, client in session.clients.items():
            outputs = session.ask(client, model, {**schema.request(prompts, length), **extra})
            answers = schema.answers(outputs, prompts, length, expected.end_id)
            wrong = mismatch(expected.cases[name], answers, tolerance)
            session.report.expect(TEST, f"reference's answers to {name!r} over {protocol}", wrong)
