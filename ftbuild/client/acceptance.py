"""Does a running server answer right? Fixed token ids, text through the ensemble, translations.

Upstream's client scripts print what comes and end with 0 even when nothing comes (BE v1.4
tools/gpt/end_to_end_test.py); here each expectation is a check that can fail.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.client import bleu as translation
from ftbuild.client import golden, latency, model_metadata, tensors
from ftbuild.client.connection import Client, Protocol
from ftbuild.client.model_metadata import ModelMetadata
from ftbuild.client.tensors import TensorSchema, Tokens
from ftbuild.config.families import Tensors
from ftbuild.errors import ConfigError, SmokeError
from ftbuild.models import config_pbtxt, ensemble
from ftbuild.text import tables

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array]

# Their lengths differ; each has another meaning in a tokenizer: words, code, blanks, other alphabets.
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
TRANSLATION_LENGTH = 128
IDENTITY, END_TO_END, TRANSLATION = "identity", "end to end", "translation"


@dataclass(frozen=True)
class Bleu:
    """Sentences to translate, their translations, and the score that must be reached (0 to 100)."""

    source: Path
    target: Path
    threshold: float | None = None
    prefix: str = translation.PREFIX


@dataclass(frozen=True)
class Options:
    """What to ask, over which protocols (address by protocol)."""

    tensors: Tensors
    addresses: Mapping[Protocol, str]
    batch_size: int = 8
    requests: int = 10
    length: int = 24
    tokenizer: Path | None = None
    expect: Path | None = None
    bleu: Bleu | None = None


@dataclass(frozen=True)
class Check:
    """An expectation, and in words why it does not hold; None: it does."""

    test: str
    what: str
    wrong: str | None


@dataclass
class Report:
    """What was checked and measured (seconds, by test and protocol), and what was left out and why."""

    checks: list[Check] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)
    bleu: float | None = None

    def expect(self, test: str, what: str, wrong: str | None) -> None:
        """Note a check."""
        self.checks.append(Check(test, what, wrong))

    @property
    def latencies(self) -> dict[str, dict[str, float]]:
        """Percentiles in milliseconds, by test and protocol."""
        return {name: latency.summary(values) for name, values in self.seconds.items()}

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "passed": not any(check.wrong for check in self.checks),
            "checks": [vars(check) for check in self.checks],
            "latency_ms": self.latencies,
            "bleu": self.bleu,
            "notes": self.notes,
        }

    def verdict(self) -> None:
        """SmokeError with everything that is wrong, if anything is."""
        wrong = [f"{check.test}: {check.what}: {check.wrong}" for check in self.checks if check.wrong]
        if wrong:
            raise SmokeError(
                "\n".join([f"{len(wrong)} of {len(self.checks)} checks failed", *wrong]),
                hint="do the weights, config.pbtxt and tokenizer belong to this model? "
                "invoke smoke tests the image alone",
            )


def run(options: Options) -> Report:
    """Run every test that the server's models and the options allow.

    Raises Refused when the server does not answer, ConfigError when the options do not fit its models.
    """
    report = Report()
    clients = {protocol: Client(address, protocol) for protocol, address in options.addresses.items()}
    try:
        model = model_metadata.read(next(iter(clients.values())).config(config_pbtxt.MODEL))
        _check_tensors(model, options.tensors)
        clients = _able(clients, model, report)
        _identity(clients, model, options, report)
        if next(iter(clients.values())).ready(ensemble.ENSEMBLE):
            _end_to_end(clients, model, options, report)
        else:
            report.notes.append("no ensemble is served: text was not tested")
        if options.bleu is not None:
            _translate(clients, model, options, options.bleu, report)
    finally:
        for client in clients.values():
            client.close()
    return report


def summary(report: Report) -> str:
    """What was checked and how long answers took, to read."""
    rows = [(check.test, check.what, check.wrong or "ok") for check in report.checks]
    parts = [tables.render(("test", "expected", "found"), rows), latency.table(report.latencies)]
    if report.bleu is not None:
        parts.append(f"BLEU: {report.bleu}")
    return "\n".join([*parts, *(f"note: {note}" for note in report.notes)])


def shape_of_answer(tensors: Tensors, prompts: Sequence[Tokens], length: int) -> tuple[int, int, int]:
    """[batch, beams, tokens] of a greedy answer; decoders repeat the longest prompt."""
    repeated = max(map(len, prompts)) if tensors.repeats_prompt else 0
    return len(prompts), 1, repeated + length


def difference(one: Arrays, other: Arrays, names: Sequence[str]) -> str | None:
    """How two answers differ in the tensors of these names, or None."""
    import numpy as np

    for name in names:
        if one[name].shape != other[name].shape:
            return f"{name} has the shapes {one[name].shape} and {other[name].shape}"
        if not np.array_equal(one[name], other[name]):
            row = int(np.argwhere(one[name] != other[name])[0][0])
            return f"{name} differs in row {row + 1}: {one[name][row]!r} and {other[name][row]!r}"
    return None


def prompts_missing(outputs: Arrays, prompts: Sequence[Tokens]) -> str | None:
    """Which prompt an answer does not begin with, or None."""
    for number, (row, prompt) in enumerate(zip(outputs[tensors.ANSWER], prompts, strict=True), start=1):
        begin = row[0][: len(prompt)].tolist()
        if begin != list(prompt):
            return f"row {number} begins with {begin}, not {list(prompt)}"
    return None


def unexpected(rows: Sequence[golden.Row], answers: Sequence[Tokens], tolerance: float) -> str | None:
    """The first difference from the reference's answers, or None."""
    for number, (row, tokens) in enumerate(zip(rows, answers, strict=True), start=1):
        if wrong := golden.mismatch(row, tokens, tolerance):
            return f"prompt {number}: {wrong}"
    return None


def _check_tensors(model: ModelMetadata, known: Tensors) -> None:
    """ConfigError when the served model is of another kind than asked for."""
    wanted = (known.prompt, known.prompt_length, known.answer_length)
    if missing := [name for name in wanted if name not in model.inputs]:
        raise ConfigError(
            f"the server's model is of another family: it takes no {', '.join(missing)}",
            hint="name the family that is served with --model",
        )


def _able(clients: dict[Protocol, Client], model: ModelMetadata, report: Report) -> dict[Protocol, Client]:
    """The clients that can ask the model: streamed answers come over gRPC alone."""
    if not model.decoupled or "http" not in clients:
        return clients
    if "grpc" not in clients:
        raise ConfigError("a model that streams its answers is asked over gRPC", hint="--grpc ADDRESS")
    report.notes.append("the model streams its answers: HTTP cannot ask it and was not tested")
    clients.pop("http").close()
    return clients


def _identity(
    clients: Mapping[Protocol, Client], model: ModelMetadata, options: Options, report: Report
) -> None:
    expect = functools.partial(report.expect, IDENTITY)
    dialect = TensorSchema(options.tensors, model.data_types)
    prompts = list(islice(cycle(golden.PROMPTS), options.batch_size))
    extra = model_metadata.options(model, model.parameters, options.batch_size)
    asked = {**dialect.request(prompts, options.length), **extra}
    firsts: dict[Protocol, Arrays] = {}
    for protocol, client in clients.items():
        first, *repeats = list(_repeated(client, model, asked, options.requests, IDENTITY, report))
        if tensors.ANSWER not in first:
            expect(f"answer over {protocol}", f"there is no {tensors.ANSWER}, but {sorted(first)}")
            continue
        wanted = shape_of_answer(options.tensors, prompts, options.length)
        shape = first[tensors.ANSWER].shape
        expect(f"shape over {protocol}", None if shape == wanted else f"{shape}, not {wanted}")
        if options.tensors.repeats_prompt:
            expect(f"prompts repeated over {protocol}", prompts_missing(first, prompts))
        wrong = (difference(first, other, [tensors.ANSWER]) for other in repeats)
        expect(f"{len(repeats)} repeats equal over {protocol}", next(filter(None, wrong), None))
        firsts[protocol] = first
    _compare(firsts, [tensors.ANSWER], expect)
    if options.expect is not None:
        _reference(clients, model, dialect, options.expect, expect)


def _reference(
    clients: Mapping[Protocol, Client], model: ModelMetadata, dialect: TensorSchema, file: Path, expect: Any
) -> None:
    """The greedy cases of a file that `invoke smoke --prepare` made."""
    try:
        expected = golden.expected(file)
    except (OSError, ValueError, KeyError, TypeError) as broken:
        raise ConfigError(
            f"no reference answers: {broken!r}", where=str(file), hint="invoke smoke --prepare makes them"
        ) from broken
    tolerance = max(golden.TOLERANCE.values()) if model.computes_in != "fp32" else 0.0
    for name, case in golden.CASES.items():
        if case["beams"] > 1 or name not in expected.cases:
            continue
        prompts, length = list(case["prompts"]), int(case["length"])
        extra = model_metadata.options(model, model.parameters, len(prompts))
        for protocol, client in clients.items():
            outputs = _ask(client, model, {**dialect.request(prompts, length), **extra})
            answers = dialect.answers(outputs, prompts, length, expected.end_id)
            wrong = unexpected(expected.cases[name], answers, tolerance)
            expect(f"reference's answers to {name!r} over {protocol}", wrong)


def _end_to_end(
    clients: Mapping[Protocol, Client], model: ModelMetadata, options: Options, report: Report
) -> None:
    expect = functools.partial(report.expect, END_TO_END)
    any_client = next(iter(clients.values()))
    whole = model_metadata.read(any_client.config(ensemble.ENSEMBLE))
    whole = _decoupled_as(whole, model)
    parts = {step.model: model_metadata.read(any_client.config(step.model)) for step in whole.steps}
    texts = list(islice(cycle(TEXTS), options.batch_size))
    asked = _text_request(whole, model, texts, options.length)
    text = next(name for step in whole.steps for part, name in step.outputs.items() if part == "OUTPUT")
    firsts: dict[Protocol, Arrays] = {}
    for protocol, client in clients.items():
        first, *repeats = list(_repeated(client, whole, asked, options.requests, END_TO_END, report))
        firsts[protocol] = first
        expect(f"texts begin with the prompts over {protocol}", _texts_missing(first[text], texts))
        wrong = (difference(first, other, [text]) for other in repeats)
        expect(f"{len(repeats)} repeats equal over {protocol}", next(filter(None, wrong), None))
        single = _stepwise(client, whole, parts, asked)
        expect(f"ensemble and its steps equal over {protocol}", difference(first, single, [text]))
        if options.tokenizer is not None:
            expect(
                f"prompts as the tokenizer's over {protocol}", _ids(single, whole, texts, options.tokenizer)
            )
    _compare(firsts, [text], expect)


def _translate(
    clients: Mapping[Protocol, Client], model: ModelMetadata, options: Options, asked: Bleu, report: Report
) -> None:
    if options.tokenizer is None:
        raise ConfigError("a translation needs the model's tokenizer", hint="--tokenizer DIR")
    tokenizer = translation.tokenizer(options.tokenizer)
    from ftbuild.models.tokenization import texts

    dialect = TensorSchema(options.tensors, model.data_types)
    sources, references = translation.pairs(asked.source, asked.target)
    protocol, client = next(iter(clients.items()))
    found: list[str] = []
    for start in range(0, len(sources), options.batch_size):
        batch = sources[start : start + options.batch_size]
        prompts = [tokenizer.encode(asked.prefix + sentence).ids for sentence in batch]
        extra = model_metadata.options(model, model.parameters, len(prompts))
        request = {**dialect.request(prompts, TRANSLATION_LENGTH), **extra}
        outputs = _timed(client, model, request, f"{TRANSLATION} {protocol}", report)
        answers = texts.answers(tokenizer, outputs[tensors.ANSWER], outputs[tensors.ANSWER_LENGTH])
        found += [answer.decode() for answer in answers]
    report.bleu = round(translation.bleu(found, references), 2)
    if asked.threshold is not None:
        low = report.bleu < asked.threshold
        wrong = f"{report.bleu}; the first translation: {found[0]!r}" if low else None
        report.expect(TRANSLATION, f"BLEU of {len(found)} sentences at least {asked.threshold}", wrong)


def _text_request(
    whole: ModelMetadata, model: ModelMetadata, texts: Sequence[str], length: int
) -> dict[str, Array]:
    """The ensemble's inputs for a greedy answer to each text, without word lists."""
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
    client: Client, whole: ModelMetadata, parts: Mapping[str, ModelMetadata], asked: Arrays
) -> dict[str, Array]:
    """The ensemble's tensors when the client itself carries them from step to step."""
    known: dict[str, Array] = dict(asked)
    for step, inputs in model_metadata.chain(whole):
        given = {name: known[tensor] for name, tensor in inputs.items() if tensor in known}
        outputs = _ask(client, parts[step.model], given)
        known |= {tensor: outputs[name] for name, tensor in step.outputs.items() if name in outputs}
    return known


def _texts_missing(found: Array, texts: Sequence[str]) -> str | None:
    """Which text an answer does not begin with; a tokenizer may add or drop a blank in front."""
    answers = [answer.decode(errors="replace") for answer in found.reshape(-1)]
    if len(answers) != len(texts):
        return f"{len(answers)} answers to {len(texts)} texts"
    wrong = (
        f"answer {number} is {answer!r}"
        for number, (answer, text) in enumerate(zip(answers, texts, strict=True), start=1)
        if not answer.lstrip().startswith(text.lstrip())
    )
    return next(wrong, None)


def _ids(known: Arrays, whole: ModelMetadata, texts: Sequence[str], folder: Path) -> str | None:
    tokenizer = translation.tokenizer(folder)
    outputs = whole.steps[0].outputs
    rows, lengths = known[outputs["INPUT_ID"]], known[outputs["REQUEST_INPUT_LEN"]]
    for text, row, length in zip(texts, rows.tolist(), lengths.reshape(-1).tolist(), strict=True):
        if row[:length] != (ids := tokenizer.encode(text).ids):
            return f"{text!r} became {row[:length]}, not {ids}"
    return None


def _decoupled_as(whole: ModelMetadata, model: ModelMetadata) -> ModelMetadata:
    """An ensemble answers as its fastertransformer model does, whatever its own config.pbtxt says."""
    return ModelMetadata(whole.name, whole.inputs, whole.parameters, whole.steps, model.decoupled)


def _compare(firsts: Mapping[Protocol, Arrays], names: Sequence[str], expect: Any) -> None:
    if len(firsts) == 2:
        expect("HTTP and gRPC equal", difference(firsts["http"], firsts["grpc"], names))


def _repeated(
    client: Client, model: ModelMetadata, asked: Arrays, times: int, test: str, report: Report
) -> Iterator[Arrays]:
    """A first answer, untimed as it may wait for what is set up once, and `times` timed ones."""
    yield _ask(client, model, asked)
    for _ in range(times):
        yield _timed(client, model, asked, f"{test} {client.protocol}", report)


def _timed(client: Client, model: ModelMetadata, asked: Arrays, name: str, report: Report) -> Arrays:
    start = time.perf_counter()
    outputs = _ask(client, model, asked)
    report.seconds[name].append(time.perf_counter() - start)
    return outputs


def _ask(client: Client, model: ModelMetadata, asked: Arrays) -> Arrays:
    """The whole answer: of a streamed one the last response."""
    if not model.decoupled:
        return client.infer(model.name, asked)
    responses = list(client.stream(model.name, asked))
    if not responses:
        raise SmokeError(f"{model.name} streamed no response", where=client.address)
    return responses[-1]
