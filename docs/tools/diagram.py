"""The way of an image as a diagram: from pinned sources to a served answer, each stage with its command."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

# What happens, by which command, and what comes out.
STAGES = (
    ("pin", "invoke lock", "commits, trees, wheels, packages by hash"),
    ("plan", "invoke build --dry-run", "one input key for all that decides"),
    ("patch", "invoke patches", "a series for each component and release"),
    ("compile", "invoke build", "without a network, one SM or several"),
    ("verify", "invoke verify", "machine code, libraries, labels: no GPU"),
    ("smoke", "invoke smoke", "transformers' answers, on a GPU"),
    ("publish", "invoke publish", "what passed; SBOM, provenance, signature"),
    ("serve", "invoke serve", "a checkpoint becomes an endpoint"),
)
_WIDTH, _BOX, _GAP, _MARGIN = 390, 46, 18, 8
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .name { font-weight: 600 }
  .command { font-family: ui-monospace, monospace; font-size: 12px; fill: #00695c }
  .what { font-size: 12px; fill: #52606d }
  rect { fill: #f4f7f7; stroke: #00897b }
  path { stroke: #00897b; fill: none; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb } .command { fill: #80cbc4 } .what { fill: #9aa5b1 }
    rect { fill: #1f2a30; stroke: #4db6ac } path { stroke: #4db6ac }
  }
"""


def svg() -> str:
    """Return the diagram, readable on a screen of 390 pixels, light and dark."""
    height = 2 * _MARGIN + len(STAGES) * _BOX + (len(STAGES) - 1) * _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img"'
        f' aria-label="From pinned sources to a served answer: {", ".join(name for name, _, _ in STAGES)}">',
        f"<style>{_STYLE}</style>",
    ]
    for number, (name, command, what) in enumerate(STAGES):
        top, end = _MARGIN + number * (_BOX + _GAP), _WIDTH - 20
        lines += [
            f'<rect x="{_MARGIN}" y="{top}" width="{_WIDTH - 2 * _MARGIN}" height="{_BOX}" rx="6"/>',
            f'<text class="name" x="20" y="{top + 19}">{escape(name)}</text>',
            f'<text class="command" x="{end}" y="{top + 19}" text-anchor="end">{escape(command)}</text>',
            f'<text class="what" x="20" y="{top + 37}">{escape(what)}</text>',
        ]
        if number + 1 < len(STAGES):
            middle, bottom = _WIDTH // 2, top + _BOX
            lines.append(f'<path d="M{middle} {bottom} v{_GAP} m-4 -5 l4 5 l4 -5"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def write(file: Path) -> None:
    """Write the diagram."""
    file.write_text(svg())
