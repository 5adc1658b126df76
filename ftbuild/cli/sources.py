"""Commands on sources: lock, bundle, patches, audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, SELECTING, CaBundle, ConfigFolder, Format, Releases, work_folder
from ftbuild.cli.output import require_writable
from ftbuild.cli.selection import Selection, plans
from ftbuild.host.paths import ca_bundle, cache_folder


@command(beside={"upgrade": ["check", "objects_from"], "objects_from": ["check"]})
def lock(
    config: ConfigFolder = CONFIG,
    check: Annotated[bool, "change nothing; fail where lock, sources.yaml and upstream disagree"] = False,
    upgrade: Annotated[bool, "move Debian packages and builds of wheels forward to today's"] = False,
    objects_from: Annotated[
        str | None,
        "registry whose newest objects of each cell are pinned, and nothing else (publish --objects)",
    ] = None,
) -> int:
    """Resolve refs to commits and trees, requirements to hashes of wheels, and Debian packages."""
    from ftbuild.build import base
    from ftbuild.config import loader
    from ftbuild.sources import wheels
    from ftbuild.sources.debian import lock as debian
    from ftbuild.sources.debian import pinned
    from ftbuild.sources.lock import check_lock, write_lock

    loaded = loader.load(config)
    if objects_from:
        from ftbuild.publishing import names
        from ftbuild.publishing import objects as published
        from ftbuild.registry.client import Repository
        from ftbuild.sources.lock import write_objects

        found = published.locked(
            Repository(names.resolve(objects_from, None, loaded.matrix.image, "--objects-from").repository)
        )
        write_objects(loaded, found)
        print("\n".join([*(f"{cell}: {name}" for cell, name in found.items()), f"wrote {loaded.lock_file}"]))
        return 0
    if check:
        pinned.check(loaded)
        check_lock(loaded, cache_folder(), report=print)
        wheels.check(loaded, report=print)
        print(f"{loaded.lock_file} agrees with sources.yaml and with upstream")
        print("every requirement names a wheel that the package index has")
    else:
        write_lock(loaded, cache_folder(), bases=base.digests(loaded), report=print)
        debian.write(loaded, upgrade=upgrade, report=print)
        for file in (
            loaded.lock_file,
            loaded.debian_lock_file,
            *wheels.lock(loaded, upgrade=upgrade, report=print),
        ):
            print(f"wrote {file}")
    return 0


@command()
def bundle(
    config: ConfigFolder = CONFIG,
    triton: Releases = (),
    base: Annotated[
        str | None, "only the packages of this base (default: of every base; none: of no base)"
    ] = None,
    output: Annotated[Path, "file to write (default: ftbuild-sources.tar)"] = Path("ftbuild-sources.tar"),
    ca: CaBundle = None,
) -> int:
    """Write every pinned source and package into one file, for `invoke build --sources=FILE` offline."""
    from ftbuild import matrix
    from ftbuild.config import loader
    from ftbuild.sources import wheels
    from ftbuild.sources.bundle import write_bundle
    from ftbuild.sources.debian import lock as debian

    require_writable(output, "--output")
    loaded, cache = loader.load(config), cache_folder()
    bases = matrix.bases_of(loaded, triton, base)
    packages = [
        *wheels.fetch_bases(loaded, bases, cache, ca=ca_bundle(ca), report=print),
        *debian.fetch_bases(loaded, bases, cache, ca=ca_bundle(ca), report=print),
    ]
    write_bundle(loaded, output, cache, releases=triton, downloaded=packages, report=print)
    print(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)")
    return 0


@command()
def patches(config: ConfigFolder = CONFIG, triton: Releases = (), format: Format = "human") -> int:  # noqa: A002
    """List which patch applies to which release, which is upstream already, and which conflicts."""
    from ftbuild.config import loader
    from ftbuild.sources import patched
    from ftbuild.sources.patches import series
    from ftbuild.text import reporter

    loaded = loader.load(config)
    rows = list(patched.survey(loaded, triton, cache_folder(), reporter.to_stderr))
    for entry in series.idle(loaded):
        reporter.to_stderr(f"{entry.name}: no release takes it; its range is {entry.versions}")
    print(series.as_json(rows) if format == "json" else series.table(rows))
    return series.exit_code(rows)


@command("audit.pins", default=True)
def audit(config: ConfigFolder = CONFIG, format: Format = "human") -> int:  # noqa: A002
    """Check that pins, base images and mirrors are still available and that the patches still apply."""
    from ftbuild.audit import job
    from ftbuild.config import loader
    from ftbuild.text import reporter, screen

    found = job.audit(loader.load(config), cache_folder(), report=reporter.to_stderr)
    screen.show(job.render(found, format))
    return job.exit_code(found)


@command("audit.feed")
def audit_feed(
    config: ConfigFolder = CONFIG,
    registry: Annotated[
        str | None, "where the images are published (host and path), for their package URLs"
    ] = None,
    out: Annotated[Path | None, "folder to write (default: advisories in the work folder)"] = None,
) -> int:
    """Write holes.yaml as advisories in OSV's format, for those who ship the images.

    A record that says what it said before keeps its time; one whose hole is gone is withdrawn.
    """
    from ftbuild import matrix
    from ftbuild.audit import feed
    from ftbuild.cli.selection import revision
    from ftbuild.config import loader
    from ftbuild.planning import make_plans
    from ftbuild.publishing import names

    loaded, checkout = loader.load(config), revision()
    cells = {(c.triton, c.base): c for c in matrix.make_matrix(loaded, *loaded.bases.bases).cells}
    image = loaded.matrix.image
    repository = names.resolve(registry, None, image).repository if registry else image
    folder = out or work_folder() / "advisories"
    planned = make_plans(loaded, cells.values(), checkout)
    made = feed.records(planned, loaded.holes, repository, checkout.time)
    old = feed.read(folder)
    new = feed.renewed(old, made, checkout.time)
    feed.write(folder, new)
    print(feed.summary(old, new, folder))
    return 0


@command("audit.holes", beside={name: ["sbom"] for name in SELECTING})
def audit_holes(
    selection: Selection,
    database: Annotated[
        Sequence[str],
        "zip file of OSV records for one ecosystem (repeatable)",
    ] = (),
    sbom: Annotated[
        Sequence[str], "SPDX file of an image, instead of what the plans of cells list (repeatable)"
    ] = (),
    fail_on: Annotated[
        Literal["critical", "high", "medium", "low", "any", "none"],
        "end with 8 if a hole of this class or a worse one is open; one without a score counts for any only",
    ] = "any",
    format: Format = "human",  # noqa: A002
) -> int:
    """List the known open holes of images, by holes.yaml and by databases of osv.dev that you bring.

    https://osv-vulnerabilities.storage.googleapis.com/Debian/all.zip is one; others have PyPI, Ubuntu or GIT
    in place of Debian. Nothing is downloaded.
    """
    from ftbuild.audit import contents, holes, osv, report
    from ftbuild.config import loader
    from ftbuild.plan import PRODUCTS
    from ftbuild.text import reporter

    config = loader.load(selection.config)
    found = (
        map(contents.of_sbom, map(Path, sbom))
        if sbom
        else (contents.of_plan(p, product) for p in plans(config, selection) for product in PRODUCTS)
    )
    images = contents.merged(found)
    databases = []
    for file in map(Path, database):
        reporter.to_stderr(f"reading {file}")
        databases.append(osv.read(file, holes.Names(images)))
    reports = [holes.search(each, databases, config.holes) for each in images]
    made = report.as_json if format == "json" else report.render
    print(made(reports, databases, config.holes.known))
    return report.exit_code(reports, fail_on)
