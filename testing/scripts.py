"""Scripts of ours for SDK images, in this process: no Python starts, and faults in memory show."""

from __future__ import annotations

import contextlib
import importlib
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from testing import ROOT

# They import each other by their names alone, as they lie beside each other in the image.
with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(ROOT / "ftbuild/models")
    _TENSORS = importlib.import_module("checkpoint_tensors")
    _SCRIPTS = {name: importlib.import_module(name) for name in ("bert_weights", "llama_weights")}


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `python3 SCRIPT ...`, and return what it prints."""
    module, output, errors = _SCRIPTS[Path(argv[1]).stem], io.StringIO(), io.StringIO()
    code: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", list(argv[1:]))
        try:
            module.main(_TENSORS.ordered(module.__doc__))
        except SystemExit as ended:
            code = 0 if ended.code is None else ended.code
    if not isinstance(code, int):
        print(code, file=errors)
    return subprocess.CompletedProcess(
        list(argv), code if isinstance(code, int) else 1, output.getvalue(), errors.getvalue()
    )
