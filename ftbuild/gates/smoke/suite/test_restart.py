"""A server that is killed, as by the kernel that runs out of memory, answers after its restart."""

from __future__ import annotations

import pytest

from ftbuild.gates.smoke.served import Served, prompts


@pytest.mark.variants(dtypes=("fp32",))
def test_a_killed_server_answers_once_it_is_restarted(served: Served) -> None:
    served.close()
    served.server = served.server.killed_and_restarted()
    served.check("eight", served.ask(prompts("eight"), runtime_top_k=1))
