"""Checks that the image was made from its plan: labels, sources, user, layers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftbuild import triton
from ftbuild.engine import container
from ftbuild.gates.verify import sources
from ftbuild.gates.verify.images import Images
from ftbuild.gates.verify.verdict import REBUILD, REPORT_BUG, Verdict, judge
from ftbuild.plan import HOLES_LABELS, SUPPORT_LABEL
from ftbuild.text.results import State
from ftbuild.text.units import size

# They depend on the checkout, not on what is built (plan.Revision, plan.Plan.holes and support_end).
CHECKOUT_LABELS = (
    *(
        f"org.opencontainers.image.{name}"
        for name in ("created", "revision", "source", "url", "documentation")
    ),
    *HOLES_LABELS,
    SUPPORT_LABEL,
)
_STEP = re.compile(r"^(?:RUN (?:\|\d+ .*? )?/bin/sh -c |/bin/sh -c (?:#\(nop\) )?)", re.S)


def labels(images: Images, product: str) -> Iterator[Verdict]:
    """Require every label of the plan, except those about the checkout."""
    image_labels = images.labels(product)
    plan_labels = {n: v for n, v in images.plan.labels(product).items() if n not in CHECKOUT_LABELS}
    problems = (
        f"{name} is {image_labels.get(name)!r}, in the plan {value!r}"
        for name, value in plan_labels.items()
        if image_labels.get(name) != value
    )
    yield judge(problems, f"{len(plan_labels)} labels", f"the image was made from another plan: {REBUILD}")


def patched(images: Images, product: str) -> Iterator[Verdict]:
    """Require that the sources in the image are the pinned ones with the series applied, file by file."""
    digests: dict[sources.Place, str] = {}
    for tree in sources.TREES:
        with container.archive(images.client, images.ids[product], tree.folder) as tar:
            digests.update(sources.in_tar(tree, tar))
    pinned = images.expected or sources.expected(images.subject)
    compared = sources.compare(pinned, digests, images.plan, staged=images.staged)
    yield judge(
        (f"{name}: {', '.join(wrong)}" for name, wrong in compared.wrong.items()),
        f"{len(compared.right)} patches seen, {compared.files} files as pinned and patched",
        f"the image was changed after its build or made from other sources: {REBUILD}",
        {"patches": compared.right},
    )
    if compared.elsewhere:
        yield Verdict(
            State.SKIP,
            f"{len(compared.elsewhere)} patches change compiled files only, which no image holds",
            facts={"patches": compared.elsewhere},
        )


def user(images: Images, product: str) -> Iterator[Verdict]:
    """Require that the image runs as a user that exists and is not root."""
    configured = str(images.attributes(images.ids[product])["Config"].get("User") or "")
    name = configured.partition(":")[0]
    users = images.contents(images.ids[product]).users
    uid = int(name) if name.isdigit() else users.get(name)
    problems = []
    if not name or uid == 0:
        problems.append("the image runs as root")
    elif uid not in users.values():
        problems.append(f"the image runs as {name}, which is not in /etc/passwd")
    yield judge(problems, configured, "the last USER of the stage must be 1000:1000")


def environment(images: Images, product: str) -> Iterator[Verdict]:
    """Require the variables without which a server that is started by hand can hang."""
    configured = images.attributes(images.ids[product])["Config"].get("Env") or ()
    settings = [f"{name}={value}" for name, value in triton.LAUNCH_TOGETHER.items()]
    absent = [text for text in settings if text not in configured]
    yield judge((f"{text} is not set" for text in absent), ", ".join(settings), REPORT_BUG)


def layers(images: Images, product: str) -> Iterator[Verdict]:
    """Require that the image stands on the plan's base, and list the layers that it adds."""
    image, base = images.ids[product], images.base
    stack, below = (images.attributes(i)["RootFS"]["Layers"] for i in (image, base))
    history = images.client.images.get(image).history()
    added = history[: len(history) - len(images.client.images.get(base).history())]
    facts = [{"bytes": step["Size"], "by": _short(step["CreatedBy"])} for step in added if step["Size"]]
    total = sum(fact["bytes"] for fact in facts)
    yield judge(
        [] if stack[: len(below)] == below else [f"the image is not built on {images.plan.base.serving}"],
        "\n".join([f"{size(total)} added", *(f"{size(fact['bytes'])}  {fact['by']}" for fact in facts)]),
        f"the base was rebuilt under the same name: {REBUILD}",
        {"layers": facts},
    )


def unpacked_size(images: Images, product: str) -> Iterator[Verdict]:
    """Require that the image, all of its layers unpacked, is within the limit of its release and base."""
    total = sum(step["Size"] for step in images.client.images.get(images.ids[product]).history())
    limit = images.plan.max_bytes.get(product)
    allowed = f"at most {size(limit)}" if limit else "without a limit"
    yield judge(
        [f"{size(total)} unpacked, {allowed}"] if limit and total > limit else [],
        f"{size(total)} unpacked, {allowed}",
        "the check `layers` lists what was added; raise max_megabytes in bases.yaml for what is worth it",
        {"bytes": total, **({"limit": limit} if limit else {})},
    )


def _short(step: str) -> str:
    """Return a build step on one line, without the shell and the arguments around it."""
    line = " ".join(_STEP.sub("", step).split()).removesuffix(" # buildkit")
    return line[:80] or "imported"
