from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from ftbuild.config import loader
from ftbuild.config.schema import FILES, json_schemas
from ftbuild.errors import ConfigError
from testing import ROOT


def spoil(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text()
    assert old in text, f"the test's premise: {old!r} stands in {file}"
    path.write_text(text.replace(old, new, 1))


def line_of(folder: Path, file: str, text: str) -> int:
    return next(n for n, line in enumerate((folder / file).read_text().splitlines(), 1) if text in line)


def test_an_unknown_key_is_refused_with_file_and_line(config_folder: Path) -> None:
    spoil(config_folder, "matrix.yaml", '    server: "2.24.0"', '    server: "2.24.0"\n    colour: blue')
    with pytest.raises(ConfigError) as refused:
        loader.load(config_folder)
    line = line_of(config_folder, "matrix.yaml", "colour: blue")
    assert f"matrix.yaml:{line}: releases.22.07.colour: unknown key" in str(refused.value)


def test_a_duplicate_key_is_refused_with_both_lines(config_folder: Path) -> None:
    spoil(config_folder, "matrix.yaml", '    server: "2.24.0"', '    server: "2.24.0"\n    server: "2.25.0"')
    with pytest.raises(ConfigError) as refused:
        loader.load(config_folder)
    first = line_of(config_folder, "matrix.yaml", 'server: "2.24.0"')
    assert f"duplicate key 'server' (first on line {first})" in str(refused.value)
    assert f"matrix.yaml:{first + 1}" in str(refused.value)


def test_a_version_written_as_a_number_is_refused(config_folder: Path) -> None:
    spoil(config_folder, "matrix.yaml", 'cuda: "11.7"', "cuda: 11.10")
    with pytest.raises(
        ConfigError, match=r"releases\.22\.07\.cuda: must be text in quotes, not the number 11\.1"
    ):
        loader.load(config_folder)


def test_a_release_written_as_a_number_is_refused(config_folder: Path) -> None:
    spoil(config_folder, "matrix.yaml", '  "22.07":', "  22.10:")
    with pytest.raises(ConfigError, match=r"must be text in quotes, not the number 22\.1"):
        loader.load(config_folder)


def test_a_leading_zero_is_refused_instead_of_read_as_octal(config_folder: Path) -> None:
    spoil(config_folder, "matrix.yaml", "default_sms: [80]", "default_sms: [075]")
    with pytest.raises(ConfigError, match="075 has a leading zero"):
        loader.load(config_folder)


def test_broken_yaml_names_the_line(config_folder: Path) -> None:
    spoil(config_folder, "sources.yaml", "repositories:", "repositories: [")
    with pytest.raises(ConfigError, match=r"not valid YAML.*") as refused:
        loader.load(config_folder)
    assert "sources.yaml:" in str(refused.value)


def test_a_base_that_names_an_unknown_release_is_refused(config_folder: Path) -> None:
    spoil(config_folder, "bases.yaml", '["22.03", "22.07", "22.12"]', '["22.03", "23.12"]')
    with pytest.raises(ConfigError, match=r"base ngc names release 23\.12"):
        loader.load(config_folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("matrix.yaml", "default_sms: [80]", "default_sms: [81]", r"release 22\.03 names SM 81"),
        ("matrix.yaml", '"22.07":', '"22.08":', r"release 22\.08 of matrix\.yaml has no sources"),
        ("matrix.yaml", "base: open\n", "base: nix\n", r"the base 'nix' of release 22\.03 is not described"),
        ("patches.yaml", "  ft:\n", "  tf:\n", "component 'tf' is not a repository in sources.yaml"),
        ("models.yaml", "hidden * hidden", "hidden * depth", "uses the fact 'depth', which nothing defines"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    config_folder: Path, file: str, old: str, new: str, message: str
) -> None:
    spoil(config_folder, file, old, new)
    with pytest.raises(ConfigError, match=message) as refused:
        loader.load(config_folder)
    assert str(config_folder) in str(refused.value)


@pytest.mark.parametrize("sm", ["5", "1000", "'80'", "8.0", "true"])
def test_an_sm_that_is_not_a_number_of_two_or_three_digits_is_refused(config_folder: Path, sm: str) -> None:
    spoil(config_folder, "matrix.yaml", "default_sms: [80]", f"default_sms: [{sm}]")
    with pytest.raises(ConfigError, match=r"releases\.22\.03\.default_sms\.0: "):
        loader.load(config_folder)


def test_a_missing_file_and_folder_are_configuration_errors(config_folder: Path) -> None:
    with pytest.raises(ConfigError, match="folder does not exist"):
        loader.load(config_folder / "nowhere")
    (config_folder / "bases.yaml").unlink()
    with pytest.raises(ConfigError, match="it does not exist"):
        loader.load(config_folder)


@pytest.mark.parametrize("folder", ["buildcfg", "buildcfg/sample"])
def test_every_configuration_file_fits_the_exported_schema(folder: str) -> None:
    schemas = json_schemas()
    for name in FILES:
        schema = json.loads(schemas[name.removesuffix(".yaml") + ".schema.json"])
        data = yaml.safe_load((ROOT / folder / name).read_text())
        jsonschema.validate(json.loads(json.dumps(data)), schema)


@pytest.mark.parametrize("name", json_schemas())
def test_editors_describe_every_key(name: str) -> None:
    schema = json.loads(json_schemas()[name])
    models = {"": schema, **schema.get("$defs", {})}
    plain = [
        f"{model}.{key}"
        for model, of in models.items()
        for key, facts in of.get("properties", {}).items()
        if not facts.get("description")
    ]
    assert not plain


def test_the_schemas_in_the_repository_are_current() -> None:
    for name, text in json_schemas().items():
        assert (ROOT / "buildcfg/schema" / name).read_text() == text, "run: invoke dev.schema"
