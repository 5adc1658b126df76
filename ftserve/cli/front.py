"""The command that builds the image of the OpenAI front."""

from __future__ import annotations

from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, BaseName, CaBundle, ConfigFolder, Progress, Rebuild, work_folder


@command("serve.front")
def front(
    config: ConfigFolder = CONFIG,
    base: BaseName = None,
    ca: CaBundle = None,
    progress: Progress = "auto",
    rebuild: Rebuild = False,
) -> int:
    """Build the image of the OpenAI front, which serves every release; `invoke serve --openai` takes it."""
    from ftbuild.build.run import BuildOptions
    from ftbuild.cli.selection import Selection, plans
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftbuild.host.paths import ca_bundle, cache_folder
    from ftserve import front_image

    loaded = loader.load(config)
    planned = plans(loaded, Selection(config, base=[base or front_image.default_base(loaded)]))
    options = BuildOptions(
        cache_folder(), work_folder(), ca=ca_bundle(ca), progress=progress, rebuild=rebuild
    )
    # The newest release of the base; its front is for all.
    name = front_image.ensure(daemon.connect(), loaded, planned[-1], options)
    print(f"built {name}, which is now {front_image.moving_tag(loaded)}")
    return 0
