"""SM architectures: parsing, printing, and which machine code runs on which GPU.

One number has many spellings: machine code `sm_86`, PTX `compute_86`, compute capability `8.6`, our own
options and labels `86`; several SMs in one image are `80,86` in options and labels, `80_86` in cell ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ftbuild.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_ONE = re.compile(r"(?:sm_|compute_)?(\d{2,3})|(\d{1,2})\.(\d)", re.ASCII)
_BETWEEN = re.compile(r",|(?<=\d)_(?=\d)")


class Sm(int):
    """An SM architecture: `Sm(86)` is machine code `sm_86` and compute capability 8.6.

    An int, so that YAML keys, JSON records and image labels hold the plain number.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema(strict=True))

    @classmethod
    def parse(cls, text: str) -> Sm:
        """Return the SM written as `86`, `8.6`, `sm_86` or `compute_86`; ConfigError for anything else."""
        match = _ONE.fullmatch(text.strip())
        if not match:
            raise ConfigError(f"{text!r} is not an SM", hint="for instance 86, 8.6 or sm_86")
        return cls("".join(filter(None, match.groups())))

    @classmethod
    def of_capability(cls, major: int, minor: int) -> Sm:
        """Return the SM of compute capability `major`.`minor`."""
        return cls(10 * major + minor)

    @property
    def code(self) -> str:
        """Machine code as NVIDIA's tools name it: `sm_86`."""
        return f"sm_{int(self)}"

    @property
    def ptx(self) -> str:
        """PTX as NVIDIA's tools name it: `compute_86`."""
        return f"compute_{int(self)}"

    @property
    def capability(self) -> str:
        """Compute capability as NVIDIA lists it: `8.6`."""
        return f"{self // 10}.{self % 10}"

    def runs_on(self, gpu: Sm) -> bool:
        """Return whether machine code for this SM runs on a GPU of SM `gpu`.

        It does on the same major version and the same or a later minor one (CUDA C++ Programming Guide,
        "Binary Compatibility").
        """
        return self // 10 == gpu // 10 and self % 10 <= gpu % 10


# The first that computes in a data type (CUDA C++ Programming Guide, "Arithmetic Instructions").
# Weights of int8 have kernels for tensor cores alone (FT v5.3 fpA_intB_gemm_template.h:441-458).
FIRST = {"fp16": Sm(60), "bf16": Sm(80), "int8": Sm(70)}


# GPUs of Jetson boards. What is said of minor versions is not promised for them (CUDA C++ Programming Guide,
# "Binary Compatibility").
_JETSON = {Sm(53), Sm(62), Sm(72), Sm(87)}


def stand_ins(gpu: Sm, known: Iterable[Sm]) -> str | None:
    """Return a sentence about the SMs among `known` whose machine code runs on a GPU of SM `gpu`, or None."""
    fit = sorted((sm for sm in known if sm.runs_on(gpu)), reverse=True)
    if not fit:
        return None
    options = " or ".join(f"--sm {int(sm)}" for sm in fit)
    text = f"{options}: such machine code runs on {gpu.capability}, a later GPU of the same major version"
    return f"{text}, though NVIDIA does not promise it for Jetson boards" if gpu in _JETSON else text


def parse_sms(text: str) -> tuple[Sm, ...]:
    """Return the SMs of `80,86` or `80_86`, sorted and without repeats; ConfigError for anything else."""
    return tuple(sorted({Sm.parse(part) for part in _BETWEEN.split(text)}))


def sm_list(sms: Iterable[int]) -> str:
    """Return SMs as options and labels take them: `80,86`."""
    return ",".join(str(int(sm)) for sm in sms)


def sm_set_id(sms: Iterable[int]) -> str:
    """Return SMs as cell ids hold them: `80_86`."""
    return "_".join(str(int(sm)) for sm in sms)


def sm_codes(sms: Iterable[Sm]) -> str:
    """Return SMs as messages name them: `sm_80, sm_86`."""
    return ", ".join(sm.code for sm in sms)
