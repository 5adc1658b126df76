"""Notes of a release: `python3 .ci/release_notes.py v1.2.3` prints that version's section of CHANGELOG.md.

Ends with 2 unless the tag names the package's version and the section has a date. Needs Python alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section for `tag` without its heading; ValueError if package or changelog disagrees."""
    package = (root / "ftbuild" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    if tag != f"v{version}":
        raise ValueError(f"ftbuild/__init__.py has version {version}, so the tag is v{version}, not {tag}")
    for section in re.split(r"^## ", (root / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading, _, text = section.partition("\n")
        if re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", heading) and text.strip():
            return text.strip()
    raise ValueError(f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD` with text")


if __name__ == "__main__":
    try:
        print(notes(" ".join(sys.argv[1:])))
    except ValueError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(2)
