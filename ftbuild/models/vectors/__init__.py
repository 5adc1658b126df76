"""Python models for Triton, from token ids to vectors; `vector_models.py` puts them into a repository.

They run in the server's Python backend, not in ftbuild: on Python 3.8 in NGC's images of these releases, with
nothing but numpy.
"""
