"""The clients of other projects that are tried as they are, and the table of them in the docs.

Each is installed into an environment of its own (requirements/, environments.py), and asked by its program
(programs/), which prints its answers as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
# What the last run has found: versions, and what each client was asked.
RESULTS = HERE / "results.json"


@dataclass(frozen=True)
class Client:
    """A client: its name, its package at PyPI or npm, the names of its requirements and of its program.

    Most ask the OpenAI front; those of `triton` ask the server itself.
    """

    name: str
    package: str
    requirements: str
    program: str
    asks: Literal["front", "triton"] = "front"

    @property
    def of_node(self) -> bool:
        """Whether it is a client for Node, from npm."""
        return self.program.endswith(".mjs")

    @property
    def source(self) -> Path:
        """The program that asks with it."""
        return HERE / "programs" / self.program

    @property
    def locked(self) -> Path:
        """The file with the versions of all its packages."""
        place = HERE / "requirements" / self.requirements
        return place / "package-lock.json" if self.of_node else place.with_name(f"{place.name}.txt")

    @property
    def version(self) -> str:
        """The version of the client itself."""
        text = self.locked.read_text()
        if self.of_node:
            return str(json.loads(text)["packages"][f"node_modules/{self.package}"]["version"])
        return dict(line.split(" ")[0].split("==") for line in text.splitlines())[self.package]


CLIENTS = (
    Client("openai", "openai", "openai", "openai_sdk.py"),
    Client("openai for Node", "openai", "openai-node", "openai_sdk.mjs"),
    Client("litellm", "litellm", "litellm", "litellm_sdk.py"),
    Client("langchain-openai", "langchain-openai", "langchain", "langchain_sdk.py"),
    Client("llama-index", "llama-index-llms-openai-like", "llama-index", "llama_index_sdk.py"),
    Client("lm_eval", "lm-eval", "lm-eval", "lm_eval_sdk.py"),
    Client("kserve", "kserve", "kserve", "kserve_sdk.py", asks="triton"),
)
# Clients that are not tried, and why.
ABSENT = {
    "guidellm": "needs torch with CUDA from PyPI, some gigabytes",
    "vLLM's bench": "comes with vLLM alone, some gigabytes",
    "perf_analyzer": "no version with a program was found as a wheel; asks Triton, not the front",
}


def table() -> list[str]:
    """Return the lines of the table."""
    results = json.loads(RESULTS.read_text())
    served = {"front": "the front", "triton": "Triton"}
    asks = {client.name: served[client.asks] for client in CLIENTS}
    asked = (
        f"| `{name}` {found['version']} | {asks[name]} | {', '.join(found['asked'])} |"
        for name, found in results.items()
    )
    absent = (f"| {name} | | not tried: {reason} |" for name, reason in ABSENT.items())
    return ["| client | of | tested |", "|---|---|---|", *asked, *absent]
