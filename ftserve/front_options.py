"""The OpenAI front beside a server (ftserve/front): its options, the same on every platform."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ftbuild import triton
from ftbuild.config.holes import HolesConfig
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, ensemble, vector_models
from ftbuild.registry import reference
from ftserve import tokenizers
from ftserve.front import errors, origins, settings
from ftserve.image_choice import Image
from ftserve.requirements import Needs

# Where a repository has the tokenizer, with the chat template of the checkpoint.
TOKENIZER = tokenizers.TEXTS
# The port in the container; 8000 to 8002 are the server's.
PORT = settings.PORT
HEALTH = "/health"
# Where the container has it, and the file with API keys.
INSIDE, KEYS_FOLDER, KEYS = "/tokenizer", "/keys", "/keys/api-keys"
# Python, its libraries, a tokenizer and some hundred requests.
MEMORY_MEBIBYTES, PROCESSES = 1024, 512
LONGEST_NAME = 200
# A server with this hole is ended by calls that are cancelled (holes.yaml).
_CANCELLED_CALLS = "FTBUILD-2026-7"


@dataclass(frozen=True)
class FrontOptions:
    """A user's choices: the image, what clients call the model, a file with API keys, and the context.

    The context is the maximum tokens of prompt and answer; None: what the weights say. `origins` are those of
    web pages that may ask.
    """

    image: str
    model: str | None = None
    keys: Path | None = None
    context: int | None = None
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Front:
    """A front to start: `image`, and what clients call the `model`.

    `end_id` is the token that ends an answer, `context` the context length; both None where the weights do
    not say. `keys` is a file of this machine with API keys; None: no authentication, unless the platform
    brings keys. `embeds`: the model returns embeddings. `tokenizer` is where the repository has it.
    `cancels`: the calls of clients that leave are cancelled; None: the front decides by the server's version.
    """

    image: str
    model: str
    end_id: int | None = None
    context: int | None = None
    keys: Path | None = None
    embeds: bool = False
    tokenizer: str = TOKENIZER
    origins: tuple[str, ...] = ()
    cancels: bool | None = None

    def command(self, host: str, *, keys: bool = False) -> list[str]:
        """Return the command line of the container, for a server on `host`; `keys`: it has a file of them."""
        options = [
            f"--triton={host}:{triton.GRPC_PORT}",
            f"--tokenizer={INSIDE}",
            f"--name={self.model}",
            # In the container: the platform decides about access.
            "--listen=0.0.0.0",
            f"--port={PORT}",
        ]
        options += [f"--triton-model={ensemble.ENSEMBLE}"] if self.embeds else []
        options += [f"--end-id={self.end_id}"] if self.end_id is not None else []
        options += [f"--context={self.context}"] if self.context is not None else []
        options += [f"--origin={origin}" for origin in self.origins]
        options += [f"--cancel-calls={'yes' if self.cancels else 'no'}"] if self.cancels is not None else []
        options += [f"--api-key-file={KEYS}"] if keys else []
        return ["python3", "-m", "ftserve.front", *options]


def survives_cancelling(image: Image, holes: HolesConfig) -> bool | None:
    """Return whether cancelled calls leave an image's server alive, by the patches that it was compiled with.

    None where no label names them: the image was not built by ftbuild, or is not here.
    """
    hole = holes.holes.get(_CANCELLED_CALLS)
    if hole is None or image.patches is None:
        return None
    return not image.patches.isdisjoint(hole.cured_by)


def find(options: FrontOptions, name: str, models: Path | None, needs: Needs) -> Front:
    """Return the front for the server `name` of the repository `models` (None: elsewhere).

    Raises ConfigError when the repository has no tokenizer, or an option is wrong.
    """
    try:
        named = tuple(origins.read(each, "--openai-origin") for each in options.origins)
    except errors.ConfigError as wrong:  # the front's own, as it is a package by itself
        raise ConfigError(wrong.what, hint=wrong.hint) from None
    return replace(_front(options, name, models, needs), origins=named)


def _front(options: FrontOptions, name: str, models: Path | None, needs: Needs) -> Front:
    reference.check_image(options.image)
    model = options.model or name
    if not model.isprintable() or len(model) > LONGEST_NAME:
        raise ConfigError(f"--openai-model {model[:80]!r} is not a name", hint="printable characters")
    if options.keys is not None and not options.keys.is_file():
        raise ConfigError(
            "the file with API keys does not exist", where=str(options.keys), hint="one key a line"
        )
    keys = options.keys.resolve() if options.keys else None
    if models is None:
        return Front(options.image, model, context=options.context, keys=keys)
    tokenizer = next((place for place in tokenizers.places() if (models / place).is_dir()), None)
    if tokenizer is None:
        raise ConfigError(
            "the OpenAI front needs a tokenizer, and the model repository has none",
            where=str(models / TOKENIZER),
            hint="invoke model-repo --tokenizer DIR; where a family has no models for text, start "
            "`python -m ftserve.front --tokenizer DIR` by hand",
        )
    if tokenizer != TOKENIZER:
        longest = _smaller(options.context, vector_models.longest_text(models))
        return Front(options.image, model, None, longest, keys, embeds=True, tokenizer=tokenizer)
    weights = next((each for each in needs.weights if each.model == config_pbtxt.MODEL and each.exists), None)
    if weights is None:
        return Front(options.image, model, context=options.context, keys=keys)
    model_config = config_ini.read(models / weights.folder)
    context = config_ini.context(model_config)
    # Without a table of positions the backend computes any, whatever the model has been trained with.
    if options.context is not None and not any(key in model_config.values for key in config_ini.POSITIONS):
        context = options.context
    return Front(
        options.image, model, model_config.number("end_id"), _smaller(options.context, context), keys
    )


def _smaller(context: int | None, known: int | None) -> int | None:
    """Return the requested context length; ConfigError when it is more than the `known` one."""
    if context is not None and known is not None and context > known:
        raise ConfigError(
            f"--openai-context {context} is more than the {known} tokens that the weights are for",
            hint=f"at most {known}",
        )
    return known if context is None else context
