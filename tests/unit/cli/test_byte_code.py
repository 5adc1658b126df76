"""Byte code of our modules is kept, unless the user told Python otherwise."""

import subprocess
import sys

import pytest

# As Invoke does before it loads tasks.py.
PROGRAM = "import sys; sys.dont_write_bytecode = True; import ftbuild.cli; print(sys.dont_write_bytecode)"


@pytest.mark.parametrize(
    ("options", "variables", "kept"),
    [((), {}, True), (("-B",), {}, False), ((), {"PYTHONDONTWRITEBYTECODE": "1"}, False)],
    ids=["by default", "python -B", "by a variable"],
)
def test_commands_keep_byte_code_unless_python_is_told_not_to(
    options: tuple[str, ...], variables: dict[str, str], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(not kept)
