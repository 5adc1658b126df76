"""Plans for people: tables in which every value stands beside the place it came from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ftbuild.cmake import Tree
from ftbuild.config.schema import Config
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.proven import evidence
from ftbuild.text.tables import render

Row = tuple[str, str, str]
# A terminal would wrap each row of a table at the longest one. `--format json` has the whole labels.
LABEL_CHARACTERS = 100
# Beside its name in a terminal of 80 columns.
VALUE_CHARACTERS = 66


def plan(plan: Plan) -> str:
    """Everything a build of the cell will do, in the order in which it matters."""
    sections = (
        ("image", _image(plan)),
        ("sources", _sources(plan)),
        ("patches", _patches(plan)),
        *((f"cmake: {tree.name}", _options(tree)) for tree in plan.trees),
        ("recipe", ((f.role, f.sha256[:12], str(f.path)) for f in plan.files)),
        ("labels", _labels(plan)),
    )
    return "\n".join(
        f"\n{title}\n{render(('what', 'value', 'from'), list(rows), header=False)}"
        for title, rows in sections
    )


def cell(config: Config | None, plan: Plan) -> str:
    """What a build of one cell will do, on a screen, with what `config` knows of such images."""
    known = [f"{sm.code}: {what}" for sm, what in evidence(config, plan.cell).items()] if config else []
    pinned = [f"{each.repository} {each.version or each.commit[:7]}" for each in plan.sources]
    components = dict.fromkeys(patch.component for patch in plan.patches)
    patches = [f"{sum(p.component == name for p in plan.patches)} to {name}" for name in components]
    rows = [
        ("cell", plan.cell.id),
        ("input key", plan.key),
        *((product, plan.tag(product)) for product in PRODUCTS),
        ("moving tag", plan.tag("runtime", moving=True)),
        *(("refuses", _wrapped([line])) for line in plan.cell.left_out.refused()),
        ("base", f"{plan.base.name}: {plan.base.serving}"),
        ("server", f"Triton {plan.server}, CUDA {plan.cuda}, driver {plan.driver} or later"),
        ("known", _wrapped(known) if known else plan.tried),
        ("compiler", f"{plan.toolchain.cc}, {plan.toolchain.cxx}"),
        *((f"tree {tree.name}", " ".join(tree.targets)) for tree in plan.trees),
        ("sources", _wrapped(pinned)),
        ("patches", _wrapped(patches) if patches else "none"),
        ("packages", f"{len(plan.wheels)} wheels, by hash"),
    ]
    return render(("what", "value"), rows, header=False)


def cells(planned: Sequence[Plan]) -> str:
    """What a build of several cells will do: a line each."""
    rows = [(plan.cell.id, plan.key, plan.base.name, plan.server, plan.cuda) for plan in planned]
    return render(("Cell", "Input key", "Base", "Server", "CUDA"), rows)


def _wrapped(words: Sequence[str]) -> str:
    return "\n".join(textwrap.wrap(", ".join(words), VALUE_CHARACTERS, break_on_hyphens=False))


def _image(plan: Plan) -> Iterator[Row]:
    yield "cell", plan.cell.id, "options, matrix.yaml"
    yield "input key", plan.key, "everything below but labels"
    for product in PRODUCTS:
        yield f"tag ({product})", plan.tag(product), "input key"
        yield f"moving tag ({product})", plan.tag(product, moving=True), "cell"
    for line in plan.cell.left_out.refused():
        yield "refuses", line, "--without, --head-sizes"
    yield "base", plan.base.serving, plan.base.origin
    yield "platform", plan.base.platform, "bases.yaml: architecture"
    yield "server", plan.server, "bases.yaml" if plan.base.local else "matrix.yaml"
    yield "CUDA", plan.cuda, "bases.yaml" if plan.base.local else "matrix.yaml"
    yield "oldest driver", plan.driver, "bases.yaml, else matrix.yaml"
    for name, value in plan.toolchain.environment().items():
        yield name, value, "bases.yaml: host_compiler"


def _sources(plan: Plan) -> Iterator[Row]:
    for source in plan.sources:
        only = f" (only {', '.join(source.sparse)})" if source.sparse else ""
        less = f", less {len(source.without)} patterns of sources.yaml" if source.without else ""
        origin = f"{source.url} {source.ref}, sources.lock.yaml{less}"
        yield source.repository, f"{source.commit}{only}", origin


def _patches(plan: Plan) -> Iterator[Row]:
    for patch in plan.patches:
        yield patch.component, patch.file, patch.origin


def _options(tree: Tree) -> Iterator[Row]:
    yield "source", tree.source, "ftbuild/cmake.py"
    yield "targets", " ".join(tree.targets), "ftbuild/cmake.py"
    for option in tree.options:
        yield option.name, option.value, option.source


def _labels(plan: Plan) -> Iterator[Row]:
    for name, value in plan.labels("runtime").items():
        yield name, textwrap.shorten(value, LABEL_CHARACTERS, placeholder=" ..."), "plan"
