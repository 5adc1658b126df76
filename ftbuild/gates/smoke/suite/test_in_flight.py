"""Requests that come and end at any time: each gets the answer that it gets alone.

Rows, lengths and settings are mixed, so that some start and some end at every step. Long answers are there
all the time; malformed requests and clients that leave are between them. Where the release computes in
batches (before 22.12, or what has no slots), the same holds.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ftbuild.client import golden
from ftbuild.client.connection import Client, Refused, Unanswered
from ftbuild.client.probe import OVERLOADED
from ftbuild.client.tensors import BAD_WORDS, STOP_WORDS, Tokens
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import job, lasting
from ftbuild.gates.smoke.job import Job
from ftbuild.gates.smoke.memory import check_flat
from ftbuild.gates.smoke.rounding import Difference, faults
from ftbuild.gates.smoke.served import Numbers, Outputs, Served, prompts, serving, unlike
from ftbuild.models import config_pbtxt
from ftbuild.models.config_pbtxt import Limits

CLIENTS = 24
# Of each client.
REQUESTS = Numbers(on_gpu=40, over_gpus=8, on_cpu=4)
QUESTIONS = Numbers(on_gpu=120, over_gpus=60, on_cpu=40)
# Shares of the requests that are refused, and whose client leaves.
BAD_SHARE, LEAVING_SHARE = 0.1, 0.2
# Seconds after which a client leaves, which asked for a long answer: each of these magnitudes as often.
PATIENCE = (0.0003, 0.02)
ROWS = (1, 1, 1, 1, 2, 3, 5)
# Tokens of the answers that are there while others come and end. Only the first golden.LENGTH are compared,
# where no step is decided by so little that rounding could change it.
LONG = 64
# So few that most requests wait, and those of more rows are computed in batches beside them.
SLOTS = 3
GREEDY = {"runtime_top_k": 1}


@dataclass(frozen=True)
class Question:
    """A request with one or more prompts, by their numbers among those of "eight"."""

    numbers: Sequence[int]
    length: int
    options: Mapping[str, float] = field(default_factory=lambda: GREEDY)
    words: Mapping[str, Sequence[Tokens]] = field(default_factory=dict)

    @property
    def prompts(self) -> list[Tokens]:
        """The prompts, which differ in length."""
        return [prompts("eight")[number] for number in self.numbers]

    def ask(self, served: Served, client: Client, copies: int = 1) -> Outputs:
        """Return all outputs; of several `copies` of the question, in one request."""
        rows = self.prompts * copies
        return served.outputs(rows, self.length, client=client, words=self.words, **self.options)

    def tokens(self, served: Served, outputs: Outputs) -> list[list[int]]:
        """Return what is compared of each answer."""
        length = min(self.length, golden.LENGTH)
        return served.dialect.answers(outputs, self.prompts, length, served.expected.end_id)

    def fault(self, served: Served, got: Outputs, alone: Outputs) -> str | None:
        """Return what is wrong with an answer, or in what it differs from the one alone, or None."""
        if self.options == GREEDY and not self.words:
            for number, tokens in zip(self.numbers, self.tokens(served, got), strict=True):
                row = served.expected.cases["eight"][number]
                reference = replace(row, tokens=row.tokens[: self.length])
                if wrong := golden.mismatch(reference, tokens, served.tolerance):
                    return f"{self}: prompt {number + 1}: {wrong}"
        is_long = self.length > golden.LENGTH
        if wrong := unlike(got, alone, exact=served.tolerance == 0 and not is_long):
            return f"{self}: {wrong}"
        if is_long and served.tolerance == 0 and self.tokens(served, got) != self.tokens(served, alone):
            return f"{self}: {self.tokens(served, got)} came, alone {self.tokens(served, alone)}"
        return None


def settings(chance: random.Random, served: Served) -> Iterator[tuple[dict[str, float], dict[str, Any]]]:
    """Yield options and words of every kind that the family takes."""
    row = chance.choice(served.expected.cases["eight"]).tokens
    seed, top_k = chance.randrange(1000), chance.choice((3, 8, 50))
    mixed = {"runtime_top_p": 0.6, "temperature": 1.3, "repetition_penalty": 0.9, "random_seed": seed}
    for more in (
        {},
        {"runtime_top_k": top_k, "random_seed": seed},
        {"runtime_top_k": 0, "runtime_top_p": 0.8, "random_seed": seed},
        {"runtime_top_k": 4, **mixed},
        {"temperature": 0.7},
        {"repetition_penalty": 1.3},
        {"end_id": row[chance.randrange(1, len(row))]},
    ):
        if all(map(served.dialect.takes, more)):
            yield {**GREEDY, **more}, {}
    other = chance.randrange(served.expected.end_id)
    for name, words in (
        (STOP_WORDS, [row[3:4]]),
        (STOP_WORDS, [[other], row[2:4]]),
        (BAD_WORDS, [row[:1], [other]]),
        (BAD_WORDS, [row[1:3]]),
    ):
        if served.dialect.takes(name):
            yield dict(GREEDY), {name: words}


def questions(served: Served) -> Iterator[Question]:
    """Yield the questions, the same for each run."""
    chance = random.Random(str(served.variant))
    for _ in range(QUESTIONS.at(served)):
        numbers = chance.sample(range(len(prompts("eight"))), chance.choice(ROWS))
        length = chance.choice((LONG, *[chance.randint(1, golden.LENGTH) for _ in range(3)]))
        options, words = chance.choice(list(settings(chance, served)))
        yield Question(numbers, length, options, words)


@dataclass
class Load:
    """How many requests came to which end, what was wrong, and which answers are not those alone."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def leave(served: Served, question: Question, seconds: float) -> None:
    """Ask, and close the connection after some time, whether the answer is there or not.

    Over HTTP, as a cancelled call of gRPC can end servers of 23.10 to 25.05 (Triton's issues 7368 and 8034).
    """
    client = served.connect("http", seconds)
    try:
        question.ask(served, client)
    except Unanswered:
        pass
    finally:
        client.close()


def _patience(chance: random.Random) -> float:
    return math.exp(chance.uniform(*map(math.log, PATIENCE)))


def one_client(served: Served, seed: int, answers: Sequence[tuple[Question, Outputs]], until: float) -> Load:
    """Send REQUESTS of a client, and as many more as there is time for `until` one of the monotonic clock."""
    chance, client, load = random.Random(seed), served.connect("grpc"), Load()
    try:
        for _ in lasting.repeated(REQUESTS.at(served), until):
            question, alone = chance.choice(answers)
            kind = chance.random()
            if kind < BAD_SHARE:
                load.counts["refused"] += 1
                if not served.refuses_an_unknown_token(client, question.prompts, question.length):
                    load.wrong.append("a token outside the vocabulary was computed")
            elif kind < BAD_SHARE + LEAVING_SHARE:
                load.counts["left"] += 1
                leave(served, replace(question, length=LONG), _patience(chance))
            else:
                load.counts["answers"] += 1
                got = question.ask(served, client)
                if fault := question.fault(served, got, alone):
                    load.differences.append(difference(served, question, got, fault))
    finally:
        client.close()
    return load


def difference(served: Served, question: Question, got: Outputs, what: str) -> Difference:
    """Return how an answer differs from the one alone, to be asked again when no client is there."""
    return Difference(
        str(question),
        what,
        lambda copies: question.ask(served, served.clients["grpc"], copies),
        lambda other: question.fault(served, got, other),
    )


def run(
    served: Served, answers: Sequence[tuple[Question, Outputs]], first_seed: int = 0, seconds: float = 0
) -> Counter[str]:
    """Let all clients ask at once, for at least `seconds`, and return how many requests came to which end.

    Raises SmokeError when an answer is wrong, or the server has ended.
    """
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(CLIENTS) as pool:
        seeds = range(first_seed, first_seed + CLIENTS)
        loads = list(pool.map(lambda seed: one_client(served, seed, answers, until), seeds))
    wrong = [each for load in loads for each in load.wrong]
    wrong += faults([each for load in loads for each in load.differences])
    if wrong:
        raise SmokeError(
            f"{served.variant} answers {len(wrong)} requests of {CLIENTS} clients wrong: {wrong[0]}",
            hint="a row that starts or ends changes its neighbours: patches/backend/0250, patches/ft/0510; "
            "with FT_INFLIGHT=0 in the server's environment, too?",
        )
    if not served.server.alive():
        raise SmokeError(
            f"{served.variant}: the server ended; its log:\n    {served.server.log_excerpt()}",
            hint="a client that leaves, or a wrong request, must not end it: patches/backend",
        )
    return sum((load.counts for load in loads), Counter())


def asked_alone(served: Served) -> list[tuple[Question, Outputs]]:
    """Return the questions with their answers, one after the other."""
    return [(question, question.ask(served, served.clients["grpc"])) for question in questions(served)]


@pytest.mark.variants
@pytest.mark.variants(dtypes=("fp32",), tensor_para=2)
def test_requests_that_come_and_end_at_any_time_get_the_answers_that_they_get_alone(
    served: Served, record_property: Callable[[str, object], None]
) -> None:
    answers = asked_alone(served)
    run(served, answers)
    before = served.gpu_memory()
    for end, number in run(served, answers, CLIENTS, lasting.seconds(served)).items():
        record_property(f"in_flight_{end}", number)
    check_flat(before, served.gpu_memory(), f"{served.variant} after requests came and ended a second time")


@pytest.mark.variants(dtypes=("fp32",))
@pytest.mark.variants(dtypes=("fp32",), tensor_para=2)
@pytest.mark.variants(dtypes=("fp32",), extra=(job.FOUR,), tensor_para=4)
def test_requests_wait_for_a_slot_and_get_the_answers_that_they_get_alone(served: Served, task: Job) -> None:
    """Slots that are fewer than clients, and requests with more rows than there are slots."""
    with serving(task, served.variant, Limits(slots=SLOTS, slot_tokens=2 * LONG)) as few:
        run(few, asked_alone(few))


@pytest.mark.variants(dtypes=("fp32",))
def test_requests_wait_for_memory_and_get_the_answers_that_they_get_alone(served: Served, task: Job) -> None:
    """Slots for all, in a cache that has tokens for one of the longest, or some short ones."""
    limits = Limits(slots=CLIENTS, slot_tokens=2 * LONG, cache_tokens=2 * LONG)
    with serving(task, served.variant, limits) as few:
        run(few, asked_alone(few))


@pytest.mark.variants(dtypes=("fp32",))
def test_clients_that_find_a_full_queue_are_refused_and_the_others_get_their_answers(
    served: Served, task: Job
) -> None:
    limits = Limits(slots=SLOTS, slot_tokens=2 * LONG, queue=2)
    with serving(task, served.variant, limits) as few, ThreadPoolExecutor(CLIENTS) as pool:
        question = Question([0], LONG)
        alone = question.ask(few, few.clients["grpc"])

        def ask(_: int) -> str | None:
            client = few.connect("grpc")
            try:
                return question.fault(few, question.ask(few, client), alone)
            except Refused as refused:
                return refused.what
            finally:
                client.close()

        refusals = list(filter(None, pool.map(ask, range(4 * CLIENTS))))
    wrong = [each for each in refusals if OVERLOADED[0] not in each]
    # Without a GPU the answers may come too soon for a queue.
    if wrong or (served.on_gpu and not refusals):
        raise SmokeError(
            f"{served.variant}, of {4 * CLIENTS} requests from {CLIENTS} clients: "
            f"{wrong[0] if wrong else 'none was refused, and two may wait'}",
            hint="the queue's limit: patches/backend/0270, dynamic_batching in config.pbtxt",
        )


@pytest.mark.variants(dtypes=("fp32",), decoupled=True)
def test_streams_that_come_and_end_at_any_time_end_with_the_whole_answer(served: Served) -> None:
    chance = random.Random(0)
    number = CLIENTS * (4 if served.on_gpu else 1)
    streams = [
        (chance.randrange(len(prompts("eight"))), chance.randint(2, golden.LENGTH)) for _ in range(number)
    ]
    with ThreadPoolExecutor(CLIENTS) as pool:
        wrong = list(filter(None, pool.map(lambda each: _wrong_stream(served, *each), streams)))
    if wrong:
        raise SmokeError(
            f"{served.variant}: {len(wrong)} of {number} streams are wrong: {wrong[0]}",
            hint="parts of a stream are another's, or are not all sent: patches/backend/0250",
        )


def _wrong_stream(served: Served, number: int, length: int) -> str | None:
    """Ask for a stream; return what is wrong with its last part, or None."""
    prompt, whole = prompts("eight")[number], list(served.expected.cases["eight"][number].tokens[:length])
    request = served.dialect.request([prompt], length, runtime_top_k=1)
    last: list[int] = []
    client = served.connect("grpc")
    try:
        # Servers before 23.06 mark no response as the last one, so a whole answer ends the stream, too.
        for outputs in client.stream(config_pbtxt.MODEL, request):
            (last,) = served.dialect.answers(outputs, [prompt], length, served.expected.end_id)
            if last == whole:
                return None
    finally:
        client.close()
    return f"prompt {number + 1}, {length} tokens: {last} came last, expected {whole}"
