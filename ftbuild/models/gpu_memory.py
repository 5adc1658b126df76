"""Memory that a served model takes on each of its GPUs, as FasterTransformer allocates it.

The rules are formulas in models.yaml (`gpu_memory`), with their places upstream; nothing is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ftbuild.config.checkpoints import Converter
from ftbuild.config.families import Allocations, GpuMemory, Int8, ModelsConfig
from ftbuild.models import formula, weights

DATA_TYPES = ("fp32", "fp16", "bf16")
# What int8 weights are computed with in; their scales are of this type, too (FT v5.3 DenseWeight.h:38).
COMPUTES_INT8 = "fp16"
WORD_BYTES = 4
# CUBLAS_WORKSPACE_SIZE (FT v5.3 cuda_utils.h:39), for each instance.
CUBLAS_BYTES = 2**25
# CUDA's context, machine code, NCCL, what the driver keeps. Measured: a server with a model of a few MB holds
# 1,596 MiB of an H200 (22.12 for SM 90, driver 580, NVML), cuBLAS's workspace among them. Others differ.
RESERVE_BYTES = 1564 * 2**20
# Of the memory that is free once the weights are loaded, what slots and their cache may take, and the number
# of slots at most (patches/ft/0550, slotsThatFit and cacheTokensThatFit). The instance that computes them has
# a workspace of cuBLAS, too.
SLOTS_SHARE = (3, 4)
MAX_SLOTS = 64
SLOT_TOKENS = 2048
# FT pads the vocabulary of fp16 so that each GPU's share is a multiple of this (FT v5.3 GptJ.cc:265-269).
VOCABULARY_MULTIPLE: Mapping[str, int] = MappingProxyType({"fp16": 8})


@dataclass(frozen=True)
class Load:
    """The largest batch to be computed at once: rows of prompts, beams of each, tokens in and out.

    An embedding is not a token: `output_len` of an embedding family is 0.
    """

    batch: int = 1
    beams: int = 1
    input_len: int = 512
    output_len: int = 512


@dataclass(frozen=True)
class Footprint:
    """Bytes on each GPU. `loading` is what the largest weight takes in addition while it is converted.

    `slot` is what one row takes of in-flight batching; 0: the model has no slots.
    """

    weights: int
    cache: int
    buffers: int
    loading: int
    reserve: int = RESERVE_BYTES
    slot: int = 0

    @property
    def total(self) -> int:
        """Bytes at the worst moment: while the last weight is loaded, or during the request."""
        return self.weights + self.reserve + max(self.loading, self.cache + self.buffers)

    def slots(self, memory: int) -> int:
        """Return how many rows of full length the server computes at once on GPUs of `memory` bytes.

        0 where none fits: requests are then computed in batches.
        """
        free = max(0, memory - self.weights - self.reserve - 2 * CUBLAS_BYTES)
        share, of = SLOTS_SHARE
        return min(MAX_SLOTS, free // of * share // self.slot) if self.slot else 0


def rules(models: ModelsConfig, family: str) -> GpuMemory | None:
    """Return the rules for a family, or for the one as which it is served; None where none are known."""
    described = models.families.get(family)
    if described and described.served_as and not described.gpu_memory:
        described = models.families.get(described.served_as)
    return described.gpu_memory if described else None


def on_gpu(models: ModelsConfig, family: str, converter: Converter) -> Converter:
    """Return the converter with the weight files that a GPU gets.

    These are not those that a Python model reads, nor those that nothing reads.
    """
    vectors, allocated = models.families[family].vectors, rules(models, family)
    elsewhere = {*(vectors.files if vectors else ()), *(allocated.unread if allocated else ())}
    return weights.part(converter, [name for name in converter.files if name not in elsewhere])


def footprint(
    converter: Converter,
    allocated: GpuMemory,
    facts: Mapping[str, int],
    gpus: int,
    data_type: str,
    load: Load,
    int8: Int8 | None = None,
    slot_tokens: int = 0,
) -> Footprint:
    """Return the memory of a model split over `gpus` GPUs that computes `load` in `data_type`.

    `int8` keeps its weights at one byte each. `slot_tokens` are those of prompt and answer in a slot; 0: the
    model has none. Raises ConfigError when the facts are those of no model (see `weights.expected`).
    """
    item = weights.ITEM_BYTES[data_type]
    numbers = {**facts, **_request_facts(facts["vocabulary"], gpus, data_type, load)}
    kept = [name for name in converter.files if int8 is None or name not in int8.files]
    files = weights.expected(weights.part(converter, kept), facts, gpus, data_type)
    first_gpu = weights.of_one_gpu(converter, facts, gpus, data_type)
    if int8:
        quantized = weights.part(converter, int8.files)
        first_gpu -= weights.of_one_gpu(quantized, facts, gpus, data_type) * (item - 1) // item
        first_gpu += item * _values(int8.scales, numbers, gpus)
    # A file of another type is converted on the GPU (FT v5.3 memory_utils.cu:352-361); one that becomes int8
    # is quantized before (:442-470).
    converted = converter.dtypes[0] != data_type
    largest = max(files.values()) // item * weights.ITEM_BYTES[converter.dtypes[0]]
    return Footprint(
        weights=first_gpu + item * _values(allocated.weights, numbers, gpus),
        cache=item * _values(allocated.cache, numbers, gpus),
        buffers=item * _values(allocated.buffers, numbers, gpus)
        + WORD_BYTES * _values(allocated.words, numbers, gpus)
        + CUBLAS_BYTES,
        loading=largest if converted else 0,
        slot=_slot(allocated, facts, gpus, data_type, slot_tokens) if slot_tokens else 0,
    )


def _slot(allocated: GpuMemory, facts: Mapping[str, int], gpus: int, data_type: str, tokens: int) -> int:
    """Return the bytes of a slot on each GPU: keys and values, logits and what sampling has of them.

    As patches/ft/0550 counts them (bytesOfSlot, bytesOfTokens). Prompt and answer have half of the tokens
    each, which counts where an encoder reads the prompt (patches/ft/0530, T5InFlight::sizes).
    """
    load = Load(1, 1, tokens // 2, tokens - tokens // 2)
    row = _request_facts(facts["vocabulary"], gpus, data_type, load)
    cache = weights.ITEM_BYTES[data_type] * _values(allocated.cache, {**facts, **row}, gpus)
    return cache + 8 * WORD_BYTES * row["padded_vocabulary"]


def _request_facts(vocabulary: int, gpus: int, data_type: str, load: Load) -> dict[str, int]:
    multiple = VOCABULARY_MULTIPLE.get(data_type, 1)
    padded = math.ceil(math.ceil(vocabulary / gpus) / multiple) * multiple * gpus
    return {
        "batch": load.batch,
        "beams": load.beams,
        "rows": load.batch * load.beams,
        "input": load.input_len,
        "output": load.output_len,
        "length": load.input_len + load.output_len,
        "padded_vocabulary": padded,
        "padding": int(padded != vocabulary),
    }


def _values(allocations: Allocations, numbers: Mapping[str, int], gpus: int) -> int:
    return sum(
        math.ceil(formula.value(size, numbers.__getitem__) / (gpus if f"{{{weights.GPUS}}}" in name else 1))
        for name, size in allocations.items()
    )
