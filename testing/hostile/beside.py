"""Hostile requests to a server of FasterTransformer, beside clients whose answers must stay right.

python -m testing.hostile.beside .ftbuild/<cell>/<key>/smoke-job.json --minutes 10 --model gpt --seed 1

The job is the smoke test's, whose models have references; a GPU is used where the job has one.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ftbuild.gates.smoke import job, served
from ftbuild.gates.smoke.job import Variant
from ftbuild.gates.smoke.served import PROTOCOLS, Served
from testing.hostile import campaign, models
from testing.hostile.campaign import BATCH, FRAMES, GRPC, HTTP, Kinds, Result

CASES = ("one", "eight", "long")
SHOWN = 5
# The smoke test spoils copies of a model, which are not loaded.
_OPTIONS = ("--exit-on-error=false", "--strict-readiness=false")


@dataclass
class Answers:
    """What right clients got: the seconds of each right answer, and what was wrong with the others."""

    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        slow = f"{sorted(self.seconds)[int(0.99 * len(self.seconds))]:.3f}" if self.seconds else "-"
        usual = f"{statistics.median(self.seconds):.3f}" if self.seconds else "-"
        counts = f"clients: {len(self.seconds)} answers right, {len(self.wrong)} wrong"
        return "\n".join([f"{counts}; seconds: p50 {usual}, p99 {slow}", *self.wrong[:SHOWN]])


def run(
    task: job.Job, variant: Variant, *, seconds: float, clients: int, seed: int
) -> tuple[Result, Answers, int]:
    """Send hostile requests for so long, while clients ask the variant.

    Return what became of both, and by how many bytes the GPU's memory in use has grown. It ends early when
    the server does.
    """
    kinds = Kinds()
    result, answers, rng = Result(), Answers(), random.Random(seed)
    over = threading.Event()
    with served.serving(task, variant, options=_OPTIONS, neighbours=models.write) as found:
        before, start = found.gpu_memory(), time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            asking = [pool.submit(_ask, found, number, over, answers) for number in range(clients)]
            try:
                while time.monotonic() - start < seconds:
                    protocol = rng.choice((HTTP, GRPC, FRAMES))
                    batch = [(protocol, rng.getrandbits(48)) for _ in range(BATCH)]
                    campaign.send_all(found.server, batch, kinds, result)
                    if wrong := campaign.fault(found.server):
                        log = f"{wrong}\n{campaign.last_words(found.server)}"
                        result.deaths.append(campaign.Death(batch, log, kinds))
                        break
            finally:
                over.set()
            for each in asking:
                each.result()
        result.seconds = time.monotonic() - start
        return result, answers, found.gpu_memory() - before


def _ask(found: Served, number: int, over: threading.Event, answers: Answers) -> None:
    """Ask all cases of the reference again and again; protocols take turns by client."""
    client = found.connect(PROTOCOLS[number % len(PROTOCOLS)])
    for case in itertools.cycle(CASES):
        if over.is_set():
            break
        start = time.monotonic()
        try:
            found.check(case, found.ask(served.prompts(case), client=client, runtime_top_k=1))
            answers.seconds.append(time.monotonic() - start)
        except Exception as failed:  # what a client's library raises when a server ends is its own matter
            answers.wrong.append(f"{case}: {failed}")
            time.sleep(0.1)
    client.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print the counts; 1 when a server ended or an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", type=Path)
    parser.add_argument("--model", default="gpt")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    result, answers, grown = run(
        job.read(given.job),
        Variant(given.model, given.dtype),
        seconds=60 * given.minutes,
        clients=given.clients,
        seed=given.seed,
    )
    print(result, *result.deaths, answers, f"GPU memory in use: {grown} bytes more", sep="\n")
    return bool(result.deaths or answers.wrong or not answers.seconds)


if __name__ == "__main__":
    sys.exit(main())
