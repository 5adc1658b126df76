"""What the tasks around a registry do: publish, stage, pull, which."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ftbuild.cli.selection import Selection, plans, progress, require_format
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, NothingSelected, worst
from ftbuild.host import files
from ftbuild.plan import Plan
from ftbuild.publishing import index as catalogue
from ftbuild.publishing import names, publish, signing, staging, status
from ftbuild.publishing.index import Entry
from ftbuild.publishing.publish import Outcome
from ftbuild.publishing.session import Options
from ftbuild.registry.client import Repository
from ftbuild.sm import Sm
from ftbuild.text import tables

DIGESTS, INDEX, TABLE = "digests.json", "index.json", "INDEX.md"


def run(
    selection: Selection,
    registry: str | None,
    *,
    stage: str | None,
    allow_unsmoked: bool,
    sign_key: str | None,
    sign_log: bool,
    dry_run: bool,
    output: str,
    work: Path,
) -> int:
    """Publish the selected cells, each even after another failed; the worst exit code.

    Writes `digests.json`, `index.json` and `INDEX.md` into `published/<host>/<path>` of the work folder.
    """
    require_format(output, "human", "json")
    config = loader.load(selection.config)
    planned = plans(config, selection)
    chosen = names.names(_registry(registry), stage, config.matrix.image)
    if dry_run:
        print(_planned_actions(status.survey(planned, Repository(chosen.release))))
        return 0
    options = Options(chosen, work, allow_unsmoked, signing.signer(sign_key, sign_log))
    outcomes = publish.publish(planned, options, report=progress)
    _write(config, chosen.release, outcomes, work)
    print(_as_json(outcomes) if output == "json" else _table(outcomes))
    return worst(outcome.exit_code for outcome in outcomes)


def stage(selection: Selection, registry: str | None, stage: str | None, work: Path) -> int:
    """Push the verified images of the selected cells to the staging repository."""
    staging.stage(*_staging(selection, registry, stage, work), report=progress)
    return 0


def pull(selection: Selection, registry: str | None, stage: str | None, work: Path) -> int:
    """Bring the staged images of the selected cells to this engine."""
    staging.pull(*_staging(selection, registry, stage, work), report=progress)
    return 0


def which(
    config_folder: Path, registry: str | None, index: str | None, sms: Sequence[str], sdk: bool, output: str
) -> int:
    """Print the published images for the GPUs here, or for `sms`; NothingSelected when there is none."""
    from ftbuild.engine import gpu

    require_format(output, "human", "json")
    config = loader.load(config_folder)
    entries = _from_file(Path(index)) if index else _from_registry(registry, config)
    product = "sdk" if sdk else "runtime"
    wanted = dict.fromkeys(map(Sm.parse, sms), "") or {d.sm: d.driver for d in gpu.installed()}
    found = {sm: catalogue.fitting(entries, sm, product) for sm in wanted}
    if output == "json":
        print(json.dumps({sm: [asdict(entry) for entry in fit] for sm, fit in found.items()}, indent=2))
    else:
        print("\n".join(_answer(sm, fit, wanted[sm]) for sm, fit in found.items()))
    if not all(found.values()):
        missing = ", ".join(sm.capability for sm, fit in found.items() if not fit)
        raise NothingSelected(
            f"no published image runs on compute capability {missing}",
            hint="invoke matrix lists what can be built",
        )
    return 0


def _registry(option: str | None) -> str:
    if not option:
        raise ConfigError("no registry is named", hint="--registry host/path, or FTBUILD_REGISTRY")
    return option


def _staging(
    selection: Selection, registry: str | None, stage: str | None, work: Path
) -> tuple[list[Plan], Options]:
    config = loader.load(selection.config)
    chosen = names.names(_registry(registry), stage, config.matrix.image)
    return plans(config, selection), Options(chosen, work)


def _planned_actions(presences: Sequence[status.PublishStatus]) -> str:
    def action(presence: status.PublishStatus) -> str:
        if presence.is_complete:
            return "nothing: published"
        return "set the moving tags" if presence.is_published else "push, attest, set all tags"

    rows = [(p.plan.cell.id, p.plan.key, action(p)) for p in presences]
    return tables.render(("Cell", "Key", "To do"), rows)


def _table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (outcome.plan.cell.id, product, outcome.state, published.reference, published.digest)
        for outcome in outcomes
        for product, published in outcome.products.items()
    ]
    rows += [(o.plan.cell.id, "", o.state, o.error.what.splitlines()[0], "") for o in outcomes if o.error]
    return tables.render(("Cell", "Image", "State", "Tag", "Digest"), rows)


def _as_json(outcomes: Sequence[Outcome]) -> str:
    return json.dumps([_outcome(outcome) for outcome in outcomes], indent=2)


def _outcome(outcome: Outcome) -> dict[str, object]:
    return {
        "cell": outcome.plan.cell.id,
        "key": outcome.plan.key,
        "state": outcome.state,
        "error": str(outcome.error) if outcome.error else None,
        "products": {product: asdict(published) for product, published in outcome.products.items()},
    }


def _write(config: Config, release: str, outcomes: Sequence[Outcome], work: Path) -> None:
    """What was found and made, and the catalogue of the whole registry where that may have changed."""
    folder = work / "published" / release.replace(":", "_")
    files.write_atomic(folder / DIGESTS, _as_json(outcomes) + "\n")
    if all(outcome.state == "present" for outcome in outcomes) and (folder / INDEX).exists():
        return
    entries = catalogue.read(Repository(release))
    files.write_atomic(folder / INDEX, catalogue.as_json(entries, config.matrix.sms))
    files.write_atomic(folder / TABLE, catalogue.as_markdown(entries, config.matrix.sms))
    progress(f"{folder}: {DIGESTS}, {INDEX}, {TABLE}")


def _from_registry(registry: str | None, config: Config) -> tuple[Entry, ...]:
    return catalogue.read(Repository(names.names(_registry(registry), None, config.matrix.image).release))


def _from_file(file: Path) -> tuple[Entry, ...]:
    try:
        return catalogue.from_json(file.read_text())
    except (OSError, ValueError) as unreadable:
        raise ConfigError("the index cannot be read", where=f"{file}: {unreadable}") from unreadable


def _answer(sm: Sm, fit: Sequence[Entry], driver: str) -> str:
    from packaging.version import Version

    head = f"compute capability {sm.capability}" + (f", driver {driver}" if driver else "")
    rows = []
    for entry in fit:
        too_old = driver and Version(driver) < Version(entry.driver)
        needs = f"driver {entry.driver}" + (", which is newer than this one" if too_old else "")
        rows.append((entry.tag, f"server {entry.server}, CUDA {entry.cuda}", needs, entry.pull))
    return (
        f"{head}\n{tables.render(('Image', 'Holds', 'Needs', 'Get it'), rows)}" if rows else f"{head}: none"
    )
