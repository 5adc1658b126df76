"""Python wheels without contents, for package indexes of tests."""

from __future__ import annotations

import io
import zipfile


def wheel(name: str, version: str, tag: str = "py3-none-any", *, note: str = "") -> dict[str, bytes]:
    """Return a wheel's content by its file name; another `note` gives other bytes."""
    content = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"NOTE = {note!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return {f"{name}-{version}-{tag}.whl": content.getvalue()}
