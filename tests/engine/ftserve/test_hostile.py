"""Hostile requests from seeds against real servers: 26.06 lives through all of them, 2.51 is known not to.

    FTBUILD_FUZZ=10 python -m pytest -s tests/engine/ftserve/test_hostile.py

tries random seeds for ten minutes on each server; see testing/hostile/campaign.py for single ones. Without it
the requests are counted, so that a busy machine sends the same ones as an idle one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.client.server_container import Server
from ftserve.image_choice import Image
from testing.compiled_server import image as compiled_server_image
from testing.hostile import campaign, grpc_calls, http_requests, models
from testing.hostile.campaign import FRAMES, GRPC, HTTP, Kinds, Result
from testing.outcomes import MINUTES
from testing.waiting import SECONDS

if TYPE_CHECKING:
    import docker

SEED = 1
# mpirun, the first process, would not wait until the server has stopped.
STOP = "for each in /proc/[0-9]*; do grep -qx tritonserver $each/comm && kill -TERM ${each#/proc/}; done"
# So many ended a server without our patches seven times (docs/security.md, "Hostile requests").
COUNTS = {HTTP: 1600, GRPC: 1200, FRAMES: 200}
LEFT_COUNTS = {GRPC: 3000}
HARMLESS_COUNTS = {HTTP: 800, GRPC: 400}
EVERY_KIND = Kinds()
# How many times as many are more than a server answers in minutes.
WITHOUT_END = 10**4
# What 2.51 is not ended by: right requests, and those that are refused before anything is computed from them.
HARMLESS = Kinds(
    http=("right", "methods and paths", "shared memory", "repository"), grpc=("right", "metadata")
)


@pytest.fixture(scope="module")
def compiled_server(client: docker.DockerClient) -> str:
    return compiled_server_image(client)


def seed() -> int:
    return random.SystemRandom().getrandbits(48) if MINUTES else SEED


def survived(image: str, counts: Mapping[str, int], kinds: Kinds = EVERY_KIND) -> Result:
    """Send so many requests, or more for the minutes of FTBUILD_FUZZ; fail where a server ends."""
    if MINUTES:
        many = {protocol: WITHOUT_END * count for protocol, count in counts.items()}
        until = time.monotonic() + 60 * MINUTES
        result = campaign.run(image, many, seed(), kinds=kinds, until=until)
    else:
        result = campaign.run(image, counts, seed(), kinds=kinds)
    print(result)
    assert not result.deaths
    return result


def test_the_server_from_sources_lives_through_hostile_requests(compiled_server: str) -> None:
    result = survived(compiled_server, COUNTS)
    # All kinds were sent, and the server answered meanwhile.
    assert len(result.sent) == len(http_requests.KINDS) + len(grpc_calls.KINDS) + 1
    assert result.ended["200"]
    assert result.ended["OK"]


def test_one_header_that_no_int_holds_is_refused(compiled_server: str) -> None:
    with campaign.running(compiled_server) as server:
        for number in ("99999999999", "-99999999999", "9" * 400):
            told = [("Inference-Header-Content-Length", number)]
            sent = http_requests.message("POST", f"/v2/models/{models.ECHO}/infer", told, b"{}")
            answer = campaign.exchange(server.http, http_requests.Attempt(0, "header", [sent]), SECONDS)
            assert answer == "400"
        assert campaign.fault(server) == ""


@pytest.mark.parametrize("announced", ["134217729", "99999999999", "18446744073709551615"])
def test_a_body_without_end_is_refused_before_it_comes(compiled_server: str, announced: str) -> None:
    path = f"/v2/models/{models.ECHO}/infer"
    whole = http_requests.message("POST", path, [("Content-Length", announced)], b"{")
    chunk = f"{int(announced):x}\r\n{{".encode()
    chunked = http_requests.message("POST", path, [("Transfer-Encoding", "chunked")], chunk)
    with campaign.running(compiled_server) as server:
        for sent in (whole, chunked):
            answer = campaign.exchange(server.http, http_requests.Attempt(0, "body", [sent]), SECONDS)
            assert answer == "413"
        assert campaign.fault(server) == ""


def test_headers_without_end_close_their_connection(compiled_server: str) -> None:
    endless = b"GET /v2 HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(100_000))
    with campaign.running(compiled_server) as server:
        answer = campaign.exchange(server.http, http_requests.Attempt(0, "headers", [endless]))
        assert answer in ("no answer", "ConnectionResetError", "BrokenPipeError")
        assert campaign.fault(server) == ""


def test_a_stream_may_ask_models_with_one_answer_and_with_many(compiled_server: str) -> None:
    """gRPC takes one write at a time, and a second one ended the server."""
    asked = [grpc_calls.infer(random.Random(1), model) for model in (models.STEPS, models.ECHO) * 5]
    sent = [each.SerializeToString() for each in asked]
    with campaign.running(compiled_server) as server:
        for _ in range(50):
            call = grpc_calls.Call(0, "mixed", "ModelStreamInfer", sent)
            assert campaign.call(server.grpc, call) == "OK"
        assert campaign.fault(server) == ""


def test_clients_may_leave_streams_while_answers_come(compiled_server: str) -> None:
    """A state was released while the completion queue still had a tag of it."""
    kinds = Kinds(http=(), grpc=(grpc_calls.LEFT,))
    assert survived(compiled_server, LEFT_COUNTS, kinds).ended["cancelled"]


def test_a_stream_is_served_after_others_were_left(compiled_server: str) -> None:
    asked = [grpc_calls.infer(random.Random(1), model) for model in (models.STEPS, models.ECHO)]
    right = grpc_calls.Call(0, "right", "ModelStreamInfer", [each.SerializeToString() for each in asked])
    rng = random.Random(seed())
    with campaign.running(compiled_server) as server:
        for _ in range(20):
            for _ in range(20):
                campaign.call(server.grpc, grpc_calls.call(rng.getrandbits(48), (grpc_calls.LEFT,)))
            assert campaign.call(server.grpc, right) == "OK"
        assert campaign.fault(server) == ""


def stop(server: Server) -> str:
    """Stop a server and return its log."""
    container = server.container.get_wrapped_container()
    container.exec_run(["sh", "-c", STOP])
    container.wait()
    return b"".join(server.container.get_logs()).decode("utf-8", "replace")


def test_a_server_keeps_nothing_of_streams_that_were_left(compiled_server: str) -> None:
    """It would wait for it when it stops, for all the seconds of --exit-timeout-secs."""
    rng = random.Random(seed())
    with campaign.running(compiled_server) as server:
        for _ in range(1000):
            made = grpc_calls.call(rng.getrandbits(48), (grpc_calls.LEFT, grpc_calls.CANCELLED))
            campaign.call(server.grpc, made)
        log = stop(server)
    assert "gRPC service connections" in log
    assert "Timeout 1: " not in log


def test_a_python_model_ends_without_a_fatal_error(compiled_server: str) -> None:
    with campaign.running(compiled_server) as server:
        log = stop(server)
    assert log.count("finalized") == len((models.ECHO, models.SEQUENCE))
    assert "Fatal Python error" not in log


def test_a_death_is_found_and_its_request_repeats_it(sample_image: Image) -> None:
    kinds = Kinds(http=("chunks",), grpc=())
    told: list[str] = []
    result = campaign.run(sample_image.name, {HTTP: 400}, SEED, kinds=kinds, report=told.append)
    assert result.deaths
    (death,) = [death for death in result.deaths if len(death.guilty) == 1][:1]
    assert "(chunks): " in told[0]
    assert campaign.replay(sample_image.name, death.guilty, kinds)


def test_what_is_refused_at_once_ends_no_older_server(sample_image: Image) -> None:
    survived(sample_image.name, HARMLESS_COUNTS, HARMLESS)


def test_a_seed_makes_the_same_request_each_time() -> None:
    for number in range(200):
        assert http_requests.attempt(number) == http_requests.attempt(number)
        assert grpc_calls.call(number) == grpc_calls.call(number)
        assert grpc_calls.frames(number) == grpc_calls.frames(number)


def test_the_repository_is_one_that_every_server_reads(tmp_path: Path) -> None:
    repository = models.write(tmp_path)
    assert sorted(folder.name for folder in repository.iterdir()) == sorted(models.NAMES)
