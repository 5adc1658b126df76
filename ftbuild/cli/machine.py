"""Commands on this machine: diagnosis, and the demo."""

from __future__ import annotations

from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, ROOT, CaBundle, ConfigFolder, Format, Progress, work_folder


@command()
def doctor(config: ConfigFolder = CONFIG, format: Format = "human") -> int:  # noqa: A002
    """Check this machine: engine, buildx, disk, memory, GPU, registries and sources."""
    from ftbuild.config import loader
    from ftbuild.doctor import machine
    from ftbuild.text import screen

    checks = machine.checks(loader.load(config), work_folder())
    screen.show(machine.render(checks, format))
    return machine.exit_code(checks)


@command("demo")
def demo_command(ca: CaBundle = None, progress: Progress = "auto") -> int:
    """Run the main job on the sample stack, from lock to a server that answers."""
    from ftbuild.cli import demo

    return demo.run(ROOT, work_folder(), ca=ca, progress=progress)
