"""The options of `invoke model-repo`, in groups: whose weights, how they compute, what requests may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ftbuild.cli.arguments import Range
from ftbuild.cli.model_artifacts import SignKey, SignLog, publish
from ftbuild.errors import ConfigError

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.models.adoption import Adoption
    from ftbuild.models.config_pbtxt import Limits
    from ftbuild.models.vector_models import Pooling

# Of GPUs, pipeline stages, instances and processes, of rows.
MAX_COUNT = 1024
# An int, as config.pbtxt (max_batch_size of model_config.proto) and the backend hold limits.
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Weights:
    """The options that name the weights: those of `invoke convert`, or another program's."""

    model: Annotated[str | None, "model family, for instance gptneox"] = None
    weights: Annotated[
        Path | None, "what invoke convert wrote: a folder <n>-gpu, or the one that holds it"
    ] = None
    adopt: Annotated[
        Path | None,
        "in place of both: weights that another program converted (FauxPilot, NeMo), or a repository of them",
    ] = None
    ini: Annotated[
        tuple[str, ...], "with --adopt, KEY=VALUE of config.ini that nothing tells, for instance head_num=16"
    ] = ()
    gpus: Annotated[
        int | None,
        Range(1, MAX_COUNT),
        "which weights, by the GPUs that they are split over (default: what is there)",
    ] = None

    def chosen(self, config: Config) -> tuple[str, Path, int | None, Adoption | None]:
        """Return family, folder and GPUs of the weights, and what --adopt concludes, None without it.

        `gpus` is None for what is there. Raises ConfigError where none are named, and for options that
        contradict each other.
        """
        from ftbuild.errors import ConfigError

        if adopted := self._adopted(config):
            return adopted.family, adopted.folder, adopted.gpus, adopted
        if self.model is None or self.weights is None:
            raise ConfigError(
                "which weights?",
                hint="--model FAMILY --weights FOLDER of invoke convert, or --adopt FOLDER of others",
            )
        return self.model, self.weights, self.gpus, None

    def _adopted(self, config: Config) -> Adoption | None:
        from ftbuild.errors import ConfigError
        from ftbuild.models import adoption, repository

        if self.adopt is None:
            if self.ini:
                raise ConfigError("--ini without --adopt", hint="invoke convert writes config.ini by itself")
            return None
        if self.weights is not None:
            raise ConfigError("--weights and --adopt name the same thing", hint="leave one of them out")
        family = repository.served_family(config, self.model) if self.model else None
        given = adoption.parse_options(self.ini)
        return adoption.adopt(self.adopt, config.models, family=family, gpus=self.gpus, options=given)


@dataclass(frozen=True)
class Form:
    """The options about what the server computes with the weights, and what it answers with."""

    pipeline: Annotated[
        int, Range(1, MAX_COUNT), "pipeline stages; the server then needs gpus x pipeline GPUs"
    ] = 1
    dtype: Annotated[str, "what the GPUs compute in: fp16, fp32 or, where the model can, bf16"] = "fp16"
    tokenizer: Annotated[
        Path | None, "folder of the checkpoint, with tokenizer.json or vocab.json and merges.txt"
    ] = None
    int8: Annotated[bool, "keep the weights as int8, half of fp16: gpt, opt, bloom and mpt"] = False
    streamed: Annotated[bool, "answer token by token, over gRPC"] = False
    bare: Annotated[bool, "the model of token ids alone, without ensemble and tokenizer"] = False


@dataclass(frozen=True)
class Requests:
    """The options about what requests may take, and how they are computed together."""

    max_output_len: Annotated[
        int, Range(1, MAX_INT), "tokens that one request may ask for; more are refused"
    ] = 2048
    max_request_seconds: Annotated[
        int,
        Range(0, MAX_INT),
        "seconds after which a batch, or a step of requests in flight, ends the server; 0: never",
    ] = 600
    max_batch_size: Annotated[
        int | None, Range(1, MAX_INT), "rows of requests computed together (default: upstream's)"
    ] = None
    max_batch_tokens: Annotated[
        int,
        Range(1, MAX_INT),
        "tokens of rows, times beams, computed together; requests for more are refused",
    ] = 262_144
    queue_delay: Annotated[
        int, Range(0, MAX_INT), "milliseconds that a request waits for others of its batch"
    ] = 2
    queue_limit: Annotated[
        int,
        Range(0, MAX_INT),
        "requests that may wait for the model; one more is refused with 503; 0: any number",
    ] = 512
    queue_timeout: Annotated[
        int,
        Range(0, MAX_INT),
        "seconds that a request may wait until it is refused with 503; it may ask for less; 0: no limit",
    ] = 0
    priorities: Annotated[
        int,
        Range(0, 16),
        "levels of priority that a request can ask for, 1 the first; without asking it has the last; "
        "0: all are alike",
    ] = 0
    slots: Annotated[
        int | None,
        Range(0, 1024),
        "answers that are generated at once, each from the moment that its request comes; 0: in batches that "
        "start and end together (default: as many as the GPUs' free memory holds, at most 64)",
    ] = None
    session_tokens: Annotated[
        int,
        Range(1, MAX_INT),
        "tokens of prompt and answer that each of these may have; of t5, half of them for each",
    ] = 2048
    cache_tokens: Annotated[
        int | None,
        Range(1, MAX_INT),
        "tokens that all of these may have together, at least those of one; of t5, of answers "
        "(default: as many as three quarters of the GPU's free memory hold)",
    ] = None
    instances: Annotated[
        int,
        Range(1, MAX_COUNT),
        "instances that compute at the same time; those on the same GPUs share the weights",
    ] = 1

    def limits(self, slots: int | None) -> Limits:
        """Return the limits, with as many slots as the release allows.

        Raises ConfigError when the cache holds no session of full length: then, the server does not load.
        """
        from ftbuild.models.config_pbtxt import Limits

        if self.cache_tokens is not None and self.cache_tokens < self.session_tokens:
            raise ConfigError(
                f"--cache-tokens {self.cache_tokens} is less than --session-tokens {self.session_tokens}",
                hint="the cache holds one session of full length at least",
            )
        return Limits(
            output_tokens=self.max_output_len,
            seconds=self.max_request_seconds,
            queue_ms=self.queue_delay,
            batch=self.max_batch_size,
            batch_tokens=self.max_batch_tokens,
            slots=slots,
            slot_tokens=self.session_tokens,
            cache_tokens=self.cache_tokens,
            queue=self.queue_limit,
            queue_seconds=self.queue_timeout,
            priorities=self.priorities,
        )


@dataclass(frozen=True)
class Vectors:
    """The options about the vectors of texts."""

    pooling: Annotated[
        Literal["mean", "cls"] | None,
        "how the vector of a text is made of its tokens' (bert, t5-encoder): mean, or the first one "
        "(default: as the checkpoint says, else mean)",
    ] = None
    unnormalized: Annotated[
        bool,
        "leave vectors (bert, t5-encoder) the length that they have, whatever the checkpoint says",
    ] = False

    def pooled(self) -> Pooling:
        """Return how a vector is made."""
        from ftbuild.models.vector_models import Pooling

        return Pooling(self.pooling, normalized=False if self.unnormalized else None)


@dataclass(frozen=True)
class Pushing:
    """The options that also bring the repository into a registry."""

    push: Annotated[str | None, "oci://HOST/PATH:TAG in a registry, to push it there, too"] = None
    sign_key: SignKey = None
    sign_log: SignLog = True

    def follow(self, folder: Path) -> None:
        """Push the repository if that was asked for, else print what comes next."""
        if self.push:
            publish(folder, self.push, self.sign_key, self.sign_log)
        else:
            print(f"next: invoke serve --model-repo {folder}")
