"""Commands for the development of ftbuild itself: test, schema."""

from __future__ import annotations

from typing import Annotated

from ftbuild.cli.command import command
from ftbuild.cli.options import ROOT, work_folder


@command()
def test(
    select: Annotated[str | None, "only the tests below this path, for instance tests/unit"] = None,  # noqa: PT028
) -> int:
    """Run formatting, lint, types and all tests, as CI does."""
    from ftbuild.cli import checks

    return checks.run(ROOT, work_folder(), select or "")


@command("dev.schema")
def schema(check: Annotated[bool, "change nothing; fail when a schema is out of date"] = False) -> int:
    """Write the JSON Schemas of the configuration files."""
    from ftbuild.config.schema import json_schemas
    from ftbuild.errors import ConfigError

    folder = ROOT / "buildcfg" / "schema"
    schemas = json_schemas()
    stale = [
        folder / name
        for name, text in schemas.items()
        if not (folder / name).exists() or (folder / name).read_text() != text
    ]
    if check and stale:
        raise ConfigError(
            "schemas are out of date", where=", ".join(map(str, stale)), hint="invoke dev.schema"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in stale:
        file.write_text(schemas[file.name])
    print(f"{len(schemas)} schemas in {folder}: {'written' if stale else 'up to date'}")
    return 0
