"""Many clients at once, a quarter of whose requests is refused: each gets the answer that it gets alone.

Prompts, lengths and options differ, so that requests wait for each other that may not be computed together.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as finished
from dataclasses import asdict, dataclass, field, replace

import pytest

from ftbuild.client import golden
from ftbuild.client.connection import Client
from ftbuild.client.latency import percentile
from ftbuild.client.tensors import BAD_WORDS, STOP_WORDS, Tokens
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import job, lasting
from ftbuild.gates.smoke.memory import check_flat
from ftbuild.gates.smoke.rounding import Difference, faults
from ftbuild.gates.smoke.served import Numbers, Outputs, Served, prompts, unlike
from ftbuild.models import config_pbtxt

CLIENTS = 16
REQUESTS = Numbers(on_gpu=64, over_gpus=24, on_cpu=8)
SAMPLE_SECONDS = 1.0
BAD_SHARE = 0.25
LENGTHS = (golden.LENGTH, golden.LENGTH - 1, golden.LENGTH // 2, 1)
GREEDY = {"runtime_top_k": 1}


@dataclass(frozen=True)
class Question:
    """A request with one prompt, by its number among those of "eight"; `length` is in tokens."""

    prompt: int
    length: int
    options: Mapping[str, float] = field(default_factory=lambda: GREEDY)
    words: Mapping[str, Sequence[Tokens]] = field(default_factory=dict)

    def ask(self, served: Served, client: Client, copies: int = 1) -> Outputs:
        """Return all outputs; of several `copies` of the question, in one request."""
        rows = [prompts("eight")[self.prompt]] * copies
        return served.outputs(rows, self.length, client=client, words=self.words, **self.options)

    @property
    def is_greedy(self) -> bool:
        """Whether the reference has the answer."""
        return self.options == GREEDY and not self.words


def questions(served: Served) -> Iterator[Question]:
    """Yield every prompt with every length, and in turn with every kind of options that the family takes."""
    for number, row in enumerate(served.expected.cases["eight"]):
        for length in LENGTHS:
            yield Question(number, length)
        length = LENGTHS[number % len(LENGTHS)]
        for more in (
            {},
            {"is_return_log_probs": True},
            {"runtime_top_k": 8, "random_seed": number},
            {"runtime_top_p": 0.9, "random_seed": number},
            {"temperature": 0.5},
            {"beam_width": 2},
            {"end_id": row.tokens[1]},
        ):
            options = {**GREEDY, **more} if more else {}
            if all(map(served.dialect.takes, options)) and (
                "beam_width" not in more or served.searches_with_beams
            ):
                yield Question(number, length, options)
        for name, word in (
            (STOP_WORDS, row.tokens[2:4]),
            (STOP_WORDS, row.tokens[3:4]),
            (BAD_WORDS, row.tokens[:1]),
        ):
            if served.dialect.takes(name):
                yield Question(number, length, words={name: [word]})


def unlike_alone(served: Served, question: Question, got: Outputs, alone: Outputs) -> str | None:
    """Return in what an answer differs from the one that the same request gets alone, or None.

    Where rounding decides, in fp16, only names and shapes are compared.
    """
    wrong = unlike(got, alone, exact=served.tolerance == 0)
    return wrong and f"{question}: {wrong}"


@dataclass
class Load:
    """What came of a load: what was wrong, when answers came and how long each took, memory.

    Times are in seconds since its start; `memory` is bytes of GPU memory in use, nothing without a GPU.
    """

    wrong: list[str] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)
    refusals: int = 0
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, float]:
        """Answers per second, and the median and the 99th percentile of the seconds that one took."""
        taken = [seconds for _, seconds in self.answers]
        last = max(at for at, _ in self.answers)
        return {
            "load_answers_per_second": round(len(self.answers) / last, 1),
            "load_p50_seconds": round(percentile(taken, 50), 5),
            "load_p99_seconds": round(percentile(taken, 99), 5),
        }


def run_load(served: Served, alone: Mapping[int, Outputs], seeds: Sequence[int], seconds: float = 0) -> Load:
    """Run a client for each seed, for at least `seconds`; return what they measured."""
    load, start = Load(), time.monotonic()
    with ThreadPoolExecutor(len(seeds)) as pool:
        clients = [pool.submit(_one_client, served, seed, alone, load, start, seconds) for seed in seeds]
        load.memory = _memory(served, clients, start) if served.on_gpu else []
        differences = [each for client in clients for each in client.result()]
    load.wrong += faults(differences)
    return load


def _memory(
    served: Served, clients: Sequence[Future[list[Difference]]], start: float
) -> list[tuple[float, int]]:
    """Return the GPU memory in use, in bytes, until all clients have ended and once more."""
    samples, waiting = [], True
    while waiting:
        waiting = bool(finished(clients, timeout=SAMPLE_SECONDS).not_done)
        samples.append((round(time.monotonic() - start, 1), served.gpu_memory()))
    return samples


def _one_client(
    served: Served, seed: int, alone: Mapping[int, Outputs], load: Load, start: float, seconds: float
) -> list[Difference]:
    """Send a client's requests, note what came of them, and return which answers are not those alone."""
    chance, client = random.Random(seed), served.connect("grpc")
    pool, differences = list(questions(served)), list[Difference]()
    try:
        for _ in lasting.repeated(REQUESTS.at(served), start + seconds):
            chosen = chance.randrange(len(pool))
            question = pool[chosen]
            if chance.random() < BAD_SHARE:
                load.wrong += _refused(served, client, question)
                load.refusals += 1
                continue
            begin = time.monotonic()
            got = question.ask(served, client)
            end = time.monotonic()
            load.answers.append((round(end - start, 3), round(end - begin, 5)))
            if what := unlike_alone(served, question, got, alone[chosen]):
                differences.append(_difference(served, question, got, what))
            if question.is_greedy:
                load.wrong += filter(None, [_mismatch(served, question, got)])
    finally:
        client.close()
    return differences


def _difference(served: Served, question: Question, got: Outputs, what: str) -> Difference:
    return Difference(
        str(question),
        what,
        lambda copies: question.ask(served, served.clients["grpc"], copies),
        lambda other: unlike_alone(served, question, got, other),
    )


def _mismatch(served: Served, question: Question, got: Outputs) -> str | None:
    prompt, row = prompts("eight")[question.prompt], served.expected.cases["eight"][question.prompt]
    (tokens,) = served.dialect.answers(got, [prompt], question.length, served.expected.end_id)
    reference = replace(row, tokens=row.tokens[: question.length])
    return golden.mismatch(reference, tokens, served.tolerance)


def _refused(served: Served, client: Client, question: Question) -> list[str]:
    tokens = [prompts("eight")[question.prompt]]
    words = question.words
    if served.refuses_an_unknown_token(client, tokens, question.length, words=words, **question.options):
        return []
    return ["a token outside the vocabulary was computed"]


@pytest.mark.variants
@pytest.mark.over_gpus
def test_many_clients_get_the_answers_that_they_get_alone(
    served: Served, record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> None:
    alone = {
        number: question.ask(served, served.clients["grpc"])
        for number, question in enumerate(questions(served))
    }
    first, again = run_load(served, alone, range(CLIENTS)), range(CLIENTS, 2 * CLIENTS)
    second = run_load(served, alone, again, lasting.seconds(served)) if served.on_gpu else first
    for name, value in second.figures.items():
        record_property(name, value)
    file = job.load_file(pytestconfig.getoption("--job"), served.variant)
    file.write_text(json.dumps(asdict(second)) + "\n")
    if wrong := [*first.wrong, *second.wrong]:
        raise SmokeError(
            f"{served.variant} answers {len(wrong)} requests of {CLIENTS} clients wrong: {wrong[0]}",
            hint="a request changes the answers of its neighbours in a batch: patches/backend, 0200",
        )
    if served.on_gpu:
        check_flat(first.memory[-1][1], second.memory[-1][1], f"{served.variant} after a second load")


def _stream(served: Served, number: int) -> list[list[int]]:
    """Return the answer to a prompt after each response, without repeats."""
    prompt, row = prompts("eight")[number], served.expected.cases["eight"][number]
    length = LENGTHS[number % 2]
    parts: list[list[int]] = []
    client = served.connect("grpc")
    try:
        request = served.dialect.request([prompt], length, runtime_top_k=1)
        # Servers before 23.06 mark no response as the last one, so a whole answer ends the stream, too.
        for outputs in client.stream(config_pbtxt.MODEL, request):
            (tokens,) = served.dialect.answers(outputs, [prompt], length, served.expected.end_id)
            if tokens not in parts[-1:]:
                parts.append(tokens)
            if tokens == list(row.tokens[:length]):
                break
    finally:
        client.close()
    return parts


@pytest.mark.variants(dtypes=("fp32",), decoupled=True)
def test_many_streams_are_those_that_come_alone(served: Served) -> None:
    numbers = [number % len(prompts("eight")) for number in range(CLIENTS)]
    alone = [_stream(served, number) for number in sorted(set(numbers))]
    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(lambda number: _stream(served, number), numbers))
    for number, parts in zip(numbers, together, strict=True):
        if parts != alone[number]:
            raise SmokeError(
                f"{served.variant}, prompt {number + 1}: {parts} came beside others, {alone[number]} alone",
                hint="a stream changes its neighbours in a batch: patches/backend, 0200",
            )
        row = served.expected.cases["eight"][number]
        assert parts[-1] == list(row.tokens[: LENGTHS[number % 2]])
