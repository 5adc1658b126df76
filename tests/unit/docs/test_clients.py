"""The table of clients in the documentation is that of their tests."""

from __future__ import annotations

import json

from testing import ROOT
from tests.engine.ftserve.clients.table import CLIENTS, RESULTS, table


def test_the_documentation_has_what_the_tests_of_clients_found() -> None:
    assert "\n".join(table()) in (ROOT / "docs/ftserve/openai.md").read_text()


def test_every_result_is_of_a_client_with_its_version() -> None:
    found = {name: result["version"] for name, result in json.loads(RESULTS.read_text()).items()}
    assert found == {client.name: client.version for client in CLIENTS}
