"""The clients of other projects that are tried with the OpenAI front, and the table of them in the docs.

Each is installed into an environment of its own (requirements/), and asked by its program (programs/), which
prints its answers as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
# What the last run has found: versions, and what each client was asked.
RESULTS = HERE / "results.json"


@dataclass(frozen=True)
class Client:
    """A client: its name, its package at PyPI, and the names of its requirements and of its program."""

    name: str
    package: str
    requirements: str
    program: str

    @property
    def locked(self) -> Path:
        """The versions of all its packages."""
        return HERE / "requirements" / f"{self.requirements}.txt"

    @property
    def version(self) -> str:
        """The version of the client itself."""
        locked = dict(line.split(" ")[0].split("==") for line in self.locked.read_text().splitlines())
        return locked[self.package]


CLIENTS = (
    Client("openai", "openai", "openai", "openai_sdk"),
    Client("litellm", "litellm", "litellm", "litellm_sdk"),
    Client("langchain-openai", "langchain-openai", "langchain", "langchain_sdk"),
    Client("llama-index", "llama-index-llms-openai-like", "llama-index", "llama_index_sdk"),
    Client("lm_eval", "lm-eval", "lm-eval", "lm_eval_sdk"),
)
# Clients that are not tried, and why.
ABSENT = {
    "guidellm": "needs torch with CUDA from PyPI, some gigabytes",
    "vLLM's bench": "comes with vLLM alone, some gigabytes",
    "perf_analyzer": "no version with a program was found as a wheel; asks Triton, not the front",
    "kserve": "asks Triton, not the front; not tried yet",
    "openai for Node": "comes from npm, and `bootstrap` installs from PyPI alone",
}


def table() -> list[str]:
    """Return the lines of the table."""
    results = json.loads(RESULTS.read_text())
    asked = (
        f"| `{name}` {found['version']} | {', '.join(found['asked'])} |" for name, found in results.items()
    )
    absent = (f"| {name} | not tried: {reason} |" for name, reason in ABSENT.items())
    return ["| client | asked |", "|---|---|", *asked, *absent]
