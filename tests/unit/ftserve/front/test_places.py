"""Keys, places and the memory of bodies: how many are let in, and what the others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftserve.front import failures, keys, limits
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure
from ftserve.front.places import Bodies, Places

KEY = "0123456789abcdef"


def test_keys_are_the_lines_of_a_file_and_that_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"  {KEY}1 \n\n{KEY}2\n")
    assert keys.read(file, {}) == (f"{KEY}1", f"{KEY}2")
    assert keys.read(file, {"FTBUILD_OPENAI_API_KEY": KEY}) == (KEY, f"{KEY}1", f"{KEY}2")
    assert keys.read(None, {"FTBUILD_OPENAI_API_KEY": KEY}) == (KEY,)
    assert keys.read(None, {"FTBUILD_OPENAI_API_KEY": "", "OTHER": KEY}) == ()


@pytest.mark.parametrize("weak", [KEY[:15], f"{KEY}é", f"{KEY}\x07", "#"])
def test_a_weak_key_is_refused_wherever_it_is(tmp_path: Path, weak: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n{weak}\n", encoding="utf-8")
    for given, where in (
        ((file, {}), str(file)),
        ((None, {"FTBUILD_OPENAI_API_KEY": weak}), "FTBUILD_OPENAI"),
    ):
        with pytest.raises(ConfigError, match="fewer than 16 characters, or others than ASCII") as refused:
            keys.read(*given)
        assert where in str(refused.value)
        assert weak not in str(refused.value).replace(str(file), "")


def test_a_file_without_keys_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("\n \n")
    with pytest.raises(ConfigError, match="the file with API keys has none"):
        keys.read(file, {})
    assert keys.read(file, {"FTBUILD_OPENAI_API_KEY": KEY}) == (KEY,)
    file.write_bytes(b"\xff\xfe" * 10)
    for unreadable in (file, tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="the file with API keys cannot be read") as refused:
            keys.read(unreadable, {})
        assert str(unreadable) in str(refused.value)


def test_places_are_taken_and_given_back() -> None:
    places = Places(2)
    with places.taken(), places.taken():
        with pytest.raises(Failure, match="2 answers are being computed; try again later") as refused:
            places.require()
        with pytest.raises(Failure), places.taken():
            pass
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    with pytest.raises(ValueError), places.taken():  # noqa: PT011, PT012 (whatever ends an answer)
        places.require()
        raise ValueError
    with places.taken():
        with places.taken():
            pass
        with places.taken(), pytest.raises(Failure):
            places.require()


def test_the_bytes_of_all_bodies_together_are_limited() -> None:
    bodies = Bodies(10)
    most = 10 * limits.MAX_BODIES
    with bodies.held() as first, bodies.held() as second:
        first.take(10)
        second.take(most - 20)
        second.take(10)
        with pytest.raises(Failure, match="too many requests are being read; try again later") as refused:
            first.take(1)
        assert refused.value.status == 429
        second.give_back()
        first.take(most - 10)
        with pytest.raises(Failure):
            second.take(1)
    with bodies.held() as third:
        third.take(most)
    assert bodies.left == most


@pytest.mark.parametrize(
    ("failure", "status", "kind", "code", "headers"),
    [
        (failures.unsupported("n", "no"), 400, "invalid_request_error", "unsupported_parameter", {}),
        (failures.unknown("n"), 400, "invalid_request_error", "unknown_parameter", {}),
        (failures.too_long("m", "n"), 400, "invalid_request_error", "context_length_exceeded", {}),
        (
            failures.unauthorized(),
            401,
            "authentication_error",
            "invalid_api_key",
            {"WWW-Authenticate": "Bearer"},
        ),
        (failures.busy("m"), 429, "rate_limit_error", "rate_limit_exceeded", {"Retry-After": "1"}),
        (failures.unavailable("m"), 503, "server_error", "server_unavailable", {"Retry-After": "5"}),
        (failures.late(), 504, "server_error", "timeout", {}),
        (failures.broken(), 500, "server_error", None, {}),
        (Failure(400, "m"), 400, "invalid_request_error", None, {}),
    ],
)
def test_every_error_has_the_form_that_openais_clients_read(
    failure: Failure, status: int, kind: str, code: str | None, headers: dict[str, str]
) -> None:
    param = "n" if code in ("unsupported_parameter", "unknown_parameter", "context_length_exceeded") else None
    assert failure.body() == {"error": {"message": str(failure), "type": kind, "param": param, "code": code}}
    assert (failure.status, failure.headers) == (status, headers)
