"""An OpenAI-compatible service in front of a Triton server: HTTP and JSON here, token ids over gRPC there.

It runs in a container of its own, as a distribution of its own (pyproject.toml), and imports nothing else of
ftserve and nothing of ftbuild: the files that it shares with ftbuild are links (errors, texts, declared).
Everything about text happens here (template, tokens, stop sequences, counts), so it asks the model of token
ids, never the ensemble.
"""

__version__ = "0.1.0"
