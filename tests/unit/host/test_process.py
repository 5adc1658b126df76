from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftbuild.host.process import identity, is_dead
from testing.waiting import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_a_process_is_alive_until_it_ends_even_if_nobody_collects_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = identity(child.pid)
    assert owner
    assert not is_dead(owner)
    child.kill()
    assert until(lambda: is_dead(owner))  # killed, but its parent has not waited for it
    child.communicate()
    assert is_dead(owner)


def test_an_id_that_was_used_again_is_another_process() -> None:
    host, boot, namespace, pid, start = identity().split("/")
    assert pid == str(os.getpid())
    assert is_dead("/".join((host, boot, namespace, pid, str(int(start) - 1))))
    assert not is_dead(identity())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_process_of_another_machine_boot_or_namespace_may_be_alive(place: int) -> None:
    parts = identity().split("/")
    parts[place] = "other"
    parts[3] = "99999999"
    assert not is_dead("/".join(parts))


@pytest.mark.parametrize("owner", ["", "/", "a/b/c/d/e", "x"])
def test_nothing_is_known_of_an_owner_without_identity(owner: str) -> None:
    assert not is_dead(owner)
