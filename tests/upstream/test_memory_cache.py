"""What T5's cross attention reads of a slot: the kernel that fills it, run without a GPU.

It is whole in the patch, so this needs none of upstream's sources.
"""

from __future__ import annotations

import re
from pathlib import Path

from testing import ROOT, patch_programs

PATCH = ROOT / "patches/ft/0530-in-flight-t5.patch"
CHANGED = "src/fastertransformer/layers/attention_layers/DecoderCrossAttentionLayer.cu"
PROGRAM = Path(__file__).parent / "programs/memory_cache/memory_cache.cc"
KERNEL = re.compile(
    r"^template<typename T>\n__global__ void fill_memory_cache\(.*?^}$", re.DOTALL | re.MULTILINE
)


def test_keys_and_values_lie_where_attention_reads_them(tmp_path: Path) -> None:
    found = KERNEL.search(patch_programs.added(PATCH, CHANGED))
    assert found
    (tmp_path / "kernel.inc").write_text(found[0])
    patch_programs.run(patch_programs.compiled(PROGRAM, tmp_path / "memory_cache", tmp_path))
