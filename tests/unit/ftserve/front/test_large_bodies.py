"""Large bodies in every field of every form: they take little memory and time, whatever they hold."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from pydantic import BaseModel

from ftserve.front import bodies, limits
from ftserve.front.failures import Failure
from ftserve.front.requests import Chat
from tests.unit.ftserve.front.test_limits import FORMS, REQUIRED

SIZE = 1 << 18
# A quarter of the largest body of each: elements of a list, or of an object.
HOSTILE = {
    "objects": b"[" + b",".join([b"{}"] * (SIZE // 3)) + b"]",
    "lists": b"[" + b",".join([b"[]"] * (SIZE // 3)) + b"]",
    "texts": b"[" + b",".join([b'""'] * (SIZE // 3)) + b"]",
    "numbers": b"[" + b",".join([b"-1"] * (SIZE // 3)) + b"]",
    "mixed": b'["a",' + b",".join([b"1"] * (SIZE // 2)) + b"]",
    "few objects": b"[" + b",".join([b"{}"] * (limits.MAX_CONTAINERS - 10)) + b"]",
    "few rows": b"[" + b",".join([b"[-1]"] * (limits.MAX_CONTAINERS - 10)) + b"]",
    "names": b"{" + b",".join(b'"%d":1' % number for number in range(SIZE // 12)) + b"}",
    "depth": b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
    "text": b'"' + b"a" * SIZE + b'"',
    "digits": b"1" * SIZE,
}


def failure(form: type[BaseModel], body: bytes) -> Failure | None:
    try:
        bodies.read(form, "application/json", body)
    except Failure as refused:
        return refused
    return None


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("form", FORMS)
def test_a_large_body_in_any_field_takes_little_memory_and_time(form: type[BaseModel], hostile: str) -> None:
    others = json.dumps(REQUIRED[form])[1:].encode()
    places = [b'{"%b":%b,%b' % (name.encode(), HOSTILE[hostile], others) for name in form.model_fields]
    places += [b'{"unknown":%b,%b' % (HOSTILE[hostile], others), HOSTILE[hostile]]
    if form is Chat:
        places.append(b'{"messages":[{"role":"user","content":%b}]}' % HOSTILE[hostile])
        places.append(b'{"messages":[{"role":"user","content":"a","name":%b}]}' % HOSTILE[hostile])
    for body in places:
        start = time.process_time()
        tracemalloc.start()
        refused = failure(form, body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert refused is None or (refused.status == 400 and len(refused.message) < 300)
        assert peak < 32 << 20, (body[:60], peak)
        assert time.process_time() - start < 2, body[:60]
