"""Options of a command line that say which server is started, and with which model."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.harness import origin
from benchmarks.harness.counts import at_least_one
from benchmarks.topics.inference import engine, lacking, server
from benchmarks.topics.inference.models import FAMILIES
from benchmarks.topics.inference.models.architecture import Architecture
from benchmarks.topics.inference.server import Launcher, Place, Variant
from ftbuild.errors import ConfigError, HostError

FOLDER = "ftbuild-inference"


def variant(words: Sequence[str]) -> Variant:
    """Parse `NAME [library=DIR] [cpus=LIST] [image=NAME] [VARIABLE=VALUE ...]`; ConfigError if it is not."""
    name, *rest = words
    pairs = [word.partition("=") for word in rest]
    if wrong := [word for word, equals, _ in pairs if not equals]:
        hint = "library=DIR, cpus=LIST, image=NAME or VARIABLE=VALUE"
        raise ConfigError(f"--variant {name}: {wrong[0]} has no value", hint=hint)
    settings = {key: value for key, _, value in pairs}
    library, cpus = settings.pop("library", None), settings.pop("cpus", "")
    image = settings.pop("image", "")
    if library is not None and not (Path(library) / server.LIBRARY).is_file():
        raise ConfigError(f"--variant {name}: there is no {server.LIBRARY}", where=library)
    return Variant(name, Path(library) if library else None, settings, cpus, image)


def variants(options: argparse.Namespace) -> tuple[Variant, ...]:
    """Return the variants that the options name; ConfigError for an image where none is run."""
    chosen = tuple(map(variant, options.variant or [[server.SHIPPED.name]]))
    if not options.image and (names := [each.name for each in chosen if each.image]):
        what = f"--variant {names[0]}: only --image runs images"
        raise ConfigError(what, hint="--image, or no image=")
    return chosen


def launcher(options: argparse.Namespace) -> Launcher:
    """Return the launcher that the options select; ConfigError for a root that holds no server."""
    if options.server_root:
        root = options.server_root.absolute()
        place = Place(options.folder.absolute() if options.folder else root / FOLDER, options.inside)
        return server.Root.at(root, place)
    folder = options.folder or Path(tempfile.gettempdir(), FOLDER)
    place = Place(folder.absolute(), options.inside)
    if options.image:
        return server.Image(place, options.image, options.access)
    return server.Command(place, shlex.split(options.server))


def template(options: argparse.Namespace) -> str:
    """Return upstream's config.pbtxt of the family; ConfigError without the file."""
    if not options.template.is_file():
        raise ConfigError("--template: there is no such file", where=str(options.template))
    text: str = options.template.read_text(encoding="utf-8")
    return text


def sizes(of: type[Architecture]) -> set[str]:
    """Return the names of the numbers that decide the size of a model."""
    return {field.name for field in fields(of)}


def shape(options: argparse.Namespace) -> Architecture:
    """Return the model that the options select; ConfigError for a number that its family lacks."""
    of = FAMILIES[options.family]
    every = set().union(*map(sizes, FAMILIES.values()))
    options_set = {name: value for name in every if (value := getattr(options, name)) is not None}
    if foreign := sorted(options_set.keys() - sizes(of)):
        raise ConfigError(f"--{foreign[0].replace('_', '-')} is not a number of a {of.name}")
    return of(**options_set)


def add_run(parser: argparse.ArgumentParser, *, rounds: int, out: str, device: str, minutes: str) -> None:
    """Add the options of the run itself: its record, its peers, its repetitions and its end.

    `rounds` is the number unless it is given; the others say what the topic makes of these options.
    """
    parser.add_argument("--out", type=Path, required=True, help=f"folder for {out}")
    peer = "another engine (repeatable)"
    parser.add_argument("--peer", action="append", choices=engine.ENGINES, default=[], help=peer)
    starts = "starts of each variant and peer (%(default)s)"
    parser.add_argument("--rounds", type=at_least_one, default=rounds, help=starts)
    parser.add_argument("--minutes", type=float, help=f"start {minutes} later than that")
    parser.add_argument("--device", default="cuda", help=f"{device}; cpu for a rehearsal")
    origin.add_option(parser)


def peers(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the engines that the options name, each once."""
    return tuple(dict.fromkeys(options.peer))


def require_packages(options: argparse.Namespace) -> None:
    """Raise HostError for packages of the engines that are not here."""
    if missing := lacking(*(engine.ENGINES[name].package for name in peers(options))):
        raise HostError(missing, hint="install them, or set PYTHONPATH to where they are")


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the server is started."""
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--image", help="run this image with docker")
    described = "run the server of an unpacked image, in that folder as root (chroot)"
    how.add_argument("--server-root", type=Path, metavar="FOLDER", help=described)
    how.add_argument("--server", metavar="COMMAND", help="run this; it gets tritonserver's options")
    parser.add_argument("--access", choices=list(server.DEVICES), default="cdi", help="how --image gets GPUs")
    parser.add_argument("--folder", type=Path, help="folder to make for the model; removed at the end")
    parser.add_argument("--inside", default=server.INSIDE, help=f"its path for the server ({server.INSIDE})")
    parser.add_argument(
        "--variant", action="append", nargs="+", metavar=("NAME", "SETTING"), help="repeatable"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model is served, and the numbers that decide its size."""
    parser.add_argument("--template", type=Path, required=True, help="upstream's config.pbtxt of the model")
    parser.add_argument("--family", choices=FAMILIES, default="gpt", help="of the model (%(default)s)")
    for name in sorted(set().union(*map(sizes, FAMILIES.values()))):
        parser.add_argument(f"--{name.replace('_', '-')}", type=at_least_one, help="of the model")
