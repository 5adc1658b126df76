"""Checks that run what the image serves: the server, and Python with its libraries."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ftbuild.client import server_container
from ftbuild.errors import SmokeError
from ftbuild.gates.verify.images import LIBRARIES, Images
from ftbuild.gates.verify.verdict import REPORT_BUG, Verdict, judge
from ftbuild.plan import LABELS
from ftbuild.text.results import State

# A process for each library: those of FT v5.2, one a model, register the same names with torch, which then
# ends the process. torch's libraries are found once torch is loaded, which the converters do first as well.
_IMPORT = """\
import glob, subprocess, sys
LOAD = '''
import ctypes, importlib.util, sys
if importlib.util.find_spec("torch"):
    import torch
ctypes.CDLL(sys.argv[1])
'''
for library in sorted(glob.glob("/opt/ftbuild/lib/*.so")):
    done = subprocess.run([sys.executable, "-c", LOAD, library], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{library}: code {done.returncode}: {done.stderr.strip()[-300:]}")
    print(library)
"""
TOKENIZERS = "python3 -c 'import numpy, tokenizers; print(tokenizers.__version__)'"


def starts(images: Images, product: str) -> Iterator[Verdict]:
    """Require that the server gets ready without GPU and models, and reports the version in its label."""
    import requests

    labelled = images.labels(product).get(f"{LABELS}.server", "")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ftbuild-models-") as empty,
            server_container.serve(images.ids[product], Path(empty)) as running,
        ):
            version = str(requests.get(f"{running.url}/v2", timeout=10).json()["version"])
    except SmokeError as silent:
        yield Verdict(State.FAIL, silent.what, "docker run the image by hand; the server must start")
        return
    problems = (
        [] if version == labelled else [f"the server is {version}, its label {labelled or 'is missing'}"]
    )
    hint = f"bases.yaml (server) or matrix.yaml names a server that {images.plan.base.serving} does not hold"
    yield judge(problems, f"version {version}", hint, {"version": version})


def importable(images: Images, product: str) -> Iterator[Verdict]:
    """Require that Python loads the libraries for PyTorch."""
    loaded = images.run(product, f"python3 - <<'PYTHON'\n{_IMPORT}PYTHON").split()
    problems = [] if loaded else [f"there is no library in {LIBRARIES[product]}"]
    yield judge(problems, ", ".join(loaded), REPORT_BUG)


def tokenization(images: Images, product: str) -> Iterator[Verdict]:
    """Require the Python packages that the pre- and postprocessing of an ensemble import."""
    yield Verdict(State.OK, f"tokenizers {images.run(product, TOKENIZERS).strip()}")
