"""Commands on registries: publish, which, stage, pull."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.architecture import Architecture
from ftbuild.cli.command import command
from ftbuild.cli.options import (
    CONFIG,
    SELECTING,
    CaBundle,
    ConfigFolder,
    Format,
    Jobs,
    PlanFile,
    Progress,
    setting,
    work_folder,
)
from ftbuild.cli.selection import Selection, plans

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.plan import Plan
    from ftbuild.publishing.names import Names
    from ftbuild.publishing.session import Options
    from ftbuild.publishing.verifying import Verifier

Registry = Annotated[
    str | None,
    "host and path, for instance registry.gitlab.com/group/project (default: FTBUILD_REGISTRY)",
]
DEFAULT_REGISTRY = setting("FTBUILD_REGISTRY")
SignKey = Annotated[str | None, "key for cosign (default: FTBUILD_COSIGN_KEY; neither: no signature)"]
SignLog = Annotated[bool, "enter signatures into the public transparency log"]


@dataclass(frozen=True)
class Target:
    """The options that name where images go."""

    registry: Registry = DEFAULT_REGISTRY
    stage: Annotated[str | None, "path below the registry where images wait until they are tested"] = None

    def names(self, config: Config) -> Names:
        """Return the names of the repositories; ConfigError without a registry."""
        from ftbuild.publishing import names

        return names.resolve(_required(self.registry), self.stage, config.matrix.image)


@dataclass(frozen=True)
class Signing:
    """The options about signatures, untested images, and older ones."""

    allow_unsmoked: Annotated[
        bool, "publish what no GPU has tested, labelled so and without a moving tag"
    ] = False
    allow_shared_cache: Annotated[
        bool,
        "publish what was compiled with CCACHE_REMOTE_STORAGE: every machine that writes there is trusted",
    ] = False
    allow_dirty: Annotated[bool, "publish what was built from files that are not committed"] = False
    sign_key: SignKey = None
    sign_log: SignLog = True
    attest: Annotated[bool, "sign each statement, too, as cosign verify-attestation asks for it"] = False
    force: Annotated[bool, "let a moving tag go back to an older build"] = False


@dataclass(frozen=True)
class Objects:
    """The options about compiled objects: which are published, and whose may be in images."""

    objects: Annotated[bool, "publish what was compiled, too, for builds with --objects"] = False
    trust: Annotated[
        Sequence[str],
        "public key whose objects images may hold (repeatable; default: FTBUILD_TRUSTED_KEYS, --sign-key)",
    ] = ()

    def trusted(self) -> tuple[Verifier, ...]:
        """Return those that are named by option or variable; errors as `verifying.trusted`."""
        from ftbuild.publishing import verifying

        return verifying.trusted(self.trust) if self.trust or verifying.is_anybody_named() else ()


@command(beside={"plan": SELECTING})
def publish(
    selection: Selection,
    target: Target,
    signing: Signing,
    compiled: Objects = Objects(),
    dry_run: Annotated[
        bool, "say what is missing in the registry, and what would be refused, and stop"
    ] = False,
    format: Format = "human",  # noqa: A002
    plan: PlanFile = None,
) -> int:
    """Publish the tested images of every selected cell; what the registry has already is left alone.

    Writes `digests.json`, `index.json` and `INDEX.md` into `published/<host>/<path>` of the work folder.
    """
    from ftbuild.config import loader
    from ftbuild.errors import ConfigError, worst
    from ftbuild.publishing import outcomes, preview
    from ftbuild.publishing import publish as publishing
    from ftbuild.publishing.session import Options
    from ftbuild.publishing.signing import signer
    from ftbuild.text import reporter, screen

    config = loader.load(selection.config)
    planned = plans(config, selection, plan)
    names = target.names(config)
    own = signer(signing.sign_key, signing.sign_log)
    if signing.attest and own is None:
        raise ConfigError(
            "--attest signs, and no key is named", hint="--sign-key KEY, or what the variables of signing say"
        )
    options = Options(
        names,
        work_folder(),
        signing.allow_unsmoked,
        own,
        signing.force,
        signing.allow_shared_cache,
        signing.allow_dirty,
        compiled.objects,
        compiled.trusted(),
        signing.attest,
    )
    if dry_run:
        found = preview.preview(planned, options, report=reporter.to_stderr)
        print(outcomes.actions_as_json(found) if format == "json" else outcomes.actions_table(found))
        for refused in (entry for entry in found if entry.error):
            reporter.to_stderr(f"[{refused.plan.cell.id}] would be refused: {refused.error}")
        return worst(entry.exit_code for entry in found)
    ended = publishing.publish_cells(planned, options, report=reporter.to_stderr)
    outcomes.write(config, names.repository, ended, work_folder(), report=reporter.to_stderr)
    screen.show(outcomes.as_json(ended) if format == "json" else outcomes.table(ended))
    return worst(outcome.exit_code for outcome in ended)


@command("registry.stage")
def stage(selection: Selection, target: Target) -> int:
    """Push verified images to where another machine, one with a GPU, gets them by `registry.pull`."""
    from ftbuild.publishing import staging
    from ftbuild.text import reporter

    staging.stage(*_staging(selection, target), report=reporter.to_stderr)
    return 0


@command("registry.pull")
def pull(selection: Selection, target: Target) -> int:
    """Pull staged images onto this machine, to smoke-test them."""
    from ftbuild.publishing import staging
    from ftbuild.text import reporter

    staging.pull(*_staging(selection, target), report=reporter.to_stderr)
    return 0


def _staging(selection: Selection, target: Target) -> tuple[list[Plan], Options]:
    from ftbuild.config import loader
    from ftbuild.publishing.session import Options

    config = loader.load(selection.config)
    return plans(config, selection), Options(target.names(config), work_folder())


@command(beside={"registry": ["index"]})
def which(
    registry: Registry = DEFAULT_REGISTRY,
    index: Annotated[
        Path | None, "index.json that invoke publish wrote, instead of asking the registry"
    ] = None,
    sm: Annotated[
        tuple[str, ...],
        "SM or compute capability, for instance 86 or 8.6 (default: of the GPUs here; repeatable)",
    ] = (),
    arch: Annotated[Architecture | None, "processor, amd64 or arm64 (default: this machine's)"] = None,
    sdk: Annotated[bool, "the SDK images"] = False,
    config: ConfigFolder = CONFIG,
    format: Format = "human",  # noqa: A002
) -> int:
    """List the published images for the GPU that is here; exits with 3 when there is none."""
    import platform

    from ftbuild.architecture import of_machine
    from ftbuild.config import loader
    from ftbuild.engine import gpu as gpus
    from ftbuild.errors import NothingSelected
    from ftbuild.publishing import index as catalogue
    from ftbuild.registry.client import Repository
    from ftbuild.sm import Sm
    from ftbuild.text import reporter

    loaded = loader.load(config)
    entries = (
        catalogue.from_file(index)
        if index
        else catalogue.read(
            Repository(Target(_required(registry)).names(loaded).repository), reporter.to_stderr
        )
    )
    wanted = dict.fromkeys(map(Sm.parse, sm), "") or {gpu.sm: gpu.driver for gpu in gpus.installed()}
    product = "sdk" if sdk else "runtime"
    processor = arch or of_machine(platform.machine())
    found = {gpu: catalogue.fitting(entries, gpu, product, processor) for gpu in wanted}
    if format == "json":
        print(json.dumps({gpu: [asdict(entry) for entry in fit] for gpu, fit in found.items()}, indent=2))
    else:
        print("\n".join(catalogue.answer(gpu, fit, wanted[gpu]) for gpu, fit in found.items()))
    if not all(found.values()):
        missing = ", ".join(gpu.capability for gpu, fit in found.items() if not fit)
        raise NothingSelected(
            f"no published image for {processor} runs on compute capability {missing}",
            hint="invoke matrix lists what can be built",
        )
    return 0


@command()
def rebuild(
    image: Annotated[str, "published image by digest, NAME@sha256:..., as invoke which prints it"],
    config: ConfigFolder = CONFIG,
    jobs: Jobs = None,
    ca: CaBundle = None,
    progress: Progress = "auto",
    sources: Annotated[str | None, "file made by invoke bundle, for a machine without internet"] = None,
    cached: Annotated[
        bool,
        "use what this engine has of layers and objects: quick, and shows less, which the statement says",
    ] = False,
    sign_key: SignKey = None,
    sign_log: SignLog = True,
    format: Format = "human",  # noqa: A002
) -> int:
    """Build a published image again from its provenance, compare both, and attach a signed statement.

    Ends with 0 if all layers are equal, and with 8 and the differing files if not; then nothing is attached.
    """
    from ftbuild.build.run import BuildOptions
    from ftbuild.config import loader
    from ftbuild.errors import VerifyError
    from ftbuild.host.paths import ca_bundle, cache_folder
    from ftbuild.publishing import differences
    from ftbuild.publishing import rebuild as rebuilding
    from ftbuild.publishing.signing import signer
    from ftbuild.sources.bundle import read_bundle
    from ftbuild.text.reporter import to_stderr

    loaded, own = loader.load(config), signer(sign_key, sign_log)
    if sources:
        read_bundle(loaded, Path(sources), cache_folder(), report=to_stderr)
    published = rebuilding.read(image)
    plan = rebuilding.plan(loaded, published)
    options = BuildOptions(cache_folder(), work_folder(), jobs=jobs, ca=ca_bundle(ca), progress=progress)
    made = rebuilding.rebuild(plan, published, options, cached=cached, report=to_stderr)
    lines = [*differences.sentences(made.compared), f"the statement: {made.record}"]
    print(json.dumps(made.predicate, indent=2) if format == "json" else "\n".join(lines))
    if not made.compared.is_equal:
        raise VerifyError(
            "this machine makes another image of the same inputs",
            where=str(made.record),
            hint="nothing is attached; docs/attestations.md says what is known to differ",
        )
    if own:
        rebuilding.attach(made, published, own, to_stderr)
    return 0


def _required(registry: str | None) -> str:
    from ftbuild.errors import ConfigError

    if not registry:
        raise ConfigError("no registry is named", hint="--registry host/path, or FTBUILD_REGISTRY")
    return registry
