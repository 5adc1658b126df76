"""An OpenAI-compatible service in front of a Triton server: HTTP and JSON here, token ids over gRPC there.

It runs in a container of its own, with little else of ftbuild. Everything about text happens here (template,
tokens, stop sequences, counts), so it asks the model of token ids, never the ensemble.
"""
