"""Numbers of options mean what they look like, as those of the configuration do."""

from __future__ import annotations

import pytest

import tasks
from ftbuild.cli.arguments import Option
from ftbuild.errors import ConfigError

NUMBERS = [
    pytest.param(option, id=f"{member.path} {option.flag}")
    for members in tasks.namespace.groups.values()
    for member in members
    for option in member.signature.options
    if option.kind in (int, float)
]


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("text", ["1_0", "\uff12", "\u0663", "1\uff10"])
def test_what_only_looks_like_a_number_to_python_is_refused(option: Option, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{option.flag} must be a (whole )?number, not"):
        option.parse(text)


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("+2", 2), (" 2 ", 2), ("02", 2)])
def test_a_plain_number_is_taken(text: str, value: int) -> None:
    assert Option("jobs", int, "", default=None).parse(text) == value
