"""The scripts that the Dockerfile gives to its steps, as files to be run by themselves."""

from __future__ import annotations

import re
from pathlib import Path

from testing import ROOT

DOCKERFILE = ROOT / "dockerfiles" / "triton-ft.Dockerfile"


def script(name: str, folder: Path) -> Path:
    """Write the script of that name into `folder`, ready to run."""
    found = re.search(rf"^COPY --chmod=755 <<'EOF' /{name}\n(.*?)^EOF$", DOCKERFILE.read_text(), re.M | re.S)
    assert found, f"the Dockerfile has no script {name}"
    file = folder / name
    file.write_text(found[1])
    file.chmod(0o755)
    return file
