from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.errors import ConfigError
from ftbuild.host.paths import ca_bundle, cache_folder


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"FTBUILD_CACHE": "/cache", "XDG_CACHE_HOME": "/xdg"}, "/cache"),
        ({"FTBUILD_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/ftbuild"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/ftbuild"),
        ({}, "/home/me/.cache/ftbuild"),
    ],
)
def test_the_cache_is_where_the_environment_puts_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: str
) -> None:
    for name in ("FTBUILD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(wanted)


def test_the_ca_bundle_is_that_of_the_option_then_that_of_openssl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named, usual = tmp_path / "named.pem", tmp_path / "usual.pem"
    for file in (named, usual):
        file.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(usual))
    assert ca_bundle(str(named)) == named
    assert ca_bundle(None) == usual
    monkeypatch.setenv("SSL_CERT_FILE", "")
    assert ca_bundle(None) is None
    with pytest.raises(ConfigError, match="the CA bundle does not exist"):
        ca_bundle(str(tmp_path / "nowhere.pem"))
