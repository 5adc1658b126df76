"""The bodies of requests, by OpenAI's reference; what this service cannot honour is refused by name.

A parameter that is sent with the value that it has anyway is fine: clients send many of them, also those of
other servers. What is null is as good as not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ftserve.front import limits
from ftserve.front.bodies import PARTS, TEXT
from ftserve.front.failures import Failure, unsupported
from ftserve.front.fields import (
    Body,
    EndTokens,
    Input,
    Length,
    LengthOrNone,
    Name,
    Number,
    Row,
    Stops,
    Text,
    form,
)
from ftserve.front.generation import Rates, Wish
from ftserve.front.sampling import Sampling


class StreamOptions(Body):
    """How a stream ends."""

    # Padding against observers who count bytes: a wish about a stream's form that answers here do not have.
    _ignored = frozenset({"include_obfuscation"})
    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {"continuous_usage_stats": (False,)}

    include_usage: StrictBool = False


def _every_token_as_top_k(value: Any) -> Any:
    """Return OpenAI-compatible servers' -1, all tokens, as the 0 that it is here."""
    return 0 if value == -1 and not isinstance(value, bool) else value


def _none_for_false(value: Any) -> Any:
    """Return that no log-probabilities are wanted for a false: the form of chats."""
    return None if value is False else value


class Generation(Body):
    """What both kinds of requests have in common."""

    # What changes no answer.
    _ignored = frozenset(
        {
            "cache_prompt", "cache_salt", "metadata", "parallel_tool_calls", "priority", "prompt_cache_key",
            "prompt_cache_retention", "request_id", "safety_identifier", "service_tier", "store", "user",
        }
    )  # fmt: skip
    # OpenAI's, then vLLM's, SGLang's and llama.cpp's.
    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "best_of": (1,),
        "logit_bias": ({},),
        "modalities": (["text"],),
        "reasoning_effort": ("none",),
        "response_format": ({"type": "text"},),
        "verbosity": ("medium",),
        "allowed_token_ids": ([],),
        "bad_words": ([],),
        "detokenize": (True,),
        "dynatemp_range": (0,),
        "grammar": ("",),
        "include_reasoning": (False, True),
        "include_stop_str_in_output": (False,),
        "length_penalty": (1,),
        "logits_processors": ([],),
        "lora_path": ("",),
        "min_p": (0,),
        "mirostat": (0,),
        "no_stop_trim": (False,),
        "prompt_logprobs": (0,),
        "repeat_penalty": (1,),
        "return_token_ids": (False,),
        "return_tokens_as_token_ids": (False,),
        "separate_reasoning": (False, True),
        "skip_special_tokens": (True,),
        "spaces_between_special_tokens": (False, True),
        "truncate_prompt_tokens": (),
        "typical_p": (1,),
        "use_beam_search": (False,),
        "vllm_xargs": ({},),
        **dict.fromkeys(
            (
                "bad_words_list", "cache_control", "ebnf", "guided_choice", "guided_decoding_backend",
                "guided_grammar", "guided_json", "guided_regex", "guided_whitespace_pattern", "json_schema",
                "kv_transfer_params", "regex", "structural_tag", "structured_outputs",
                "thinking_token_budget",
            ),
            (),
        ),
    }  # fmt: skip

    model: Name | None = None
    max_tokens: Length | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    top_k: Annotated[StrictInt, Field(ge=0, le=1024), BeforeValidator(_every_token_as_top_k)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0, le=2)] | None = None
    seed: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stops | None = None
    # vLLM's names.
    stop_token_ids: EndTokens | None = None
    min_tokens: Annotated[StrictInt, Field(ge=0, le=limits.LONGEST_ANSWER)] | None = None
    ignore_eos: StrictBool | None = None
    n: Annotated[StrictInt, Field(ge=1, le=limits.MAX_CHOICES)] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> list[str]:
        """The stop sequences."""
        return [self.stop] if isinstance(self.stop, str) and self.stop else list(self.stop or [])

    def wish(self, param: str, longest: int | None, default: int | None = None) -> Wish:
        """Return what is wished of an answer to `param`; Failure (400) for wishes that exclude another."""
        minimum = self.min_tokens or 0
        if longest is not None and minimum > longest:
            raise Failure(400, "min_tokens: more than max_tokens", param="min_tokens")
        if longest is None and default is not None and minimum > default:
            words = f"min_tokens: more than the {default} tokens of an answer without max_tokens"
            raise Failure(400, words, param="min_tokens")
        ends = tuple(self.stop_token_ids or ())
        return Wish(
            param, longest, self.sampling, self.stops, default, ends, minimum, endless=bool(self.ignore_eos)
        )

    @property
    def echoes(self) -> bool:
        """Whether the text of an answer begins with its prompt."""
        return False

    @property
    def rates(self) -> Rates | None:
        """Which tokens are to be rated, if any."""
        return None

    @property
    def choices(self) -> int:
        """The number of answers to each prompt."""
        return self.n or 1

    @property
    def streams(self) -> bool:
        """Whether the answer comes piece by piece."""
        return bool(self.stream)

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen: OpenAI's defaults for what is not given."""
        names = Sampling.__dataclass_fields__
        options = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Sampling(**options)


class Completion(Generation):
    """The body of /v1/completions; prompts are texts or lists of token ids."""

    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Generation._nothing,
        "add_special_tokens": (True,),
        "functions": ([],),
        "prompt_embeds": (),
        "suffix": ("",),
        "tool_choice": ("none",),
        "tools": ([],),
        "top_logprobs": (0,),
    }

    max_tokens: LengthOrNone | None = None
    prompt: Input
    echo: StrictBool | None = None
    logprobs: Annotated[
        Annotated[StrictInt, Field(ge=0, le=limits.MAX_TOP)] | None, BeforeValidator(_none_for_false)
    ] = None

    @model_validator(mode="after")
    def _prompt_or_answer(self) -> Completion:
        if self.max_tokens == 0 and not self.echo:
            raise PydanticCustomError("form", "at least 1, or 0 together with echo", {"name": "max_tokens"})
        return self

    @property
    def echoes(self) -> bool:
        """Whether the text of an answer begins with its prompt."""
        return bool(self.echo)

    @property
    def rates(self) -> Rates | None:
        """Which tokens are to be rated."""
        return None if self.logprobs is None else Rates("logprobs", self.logprobs, bool(self.echo))

    @model_validator(mode="before")
    @classmethod
    def _of_old_clients(cls, body: Any) -> Any:
        """Ignore `logprobs` of clients that name no model: editors' plugins send it without need."""
        if isinstance(body, dict) and body.get("model") is None:
            return {name: value for name, value in body.items() if name != "logprobs"}
        return body

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts; Failure (400) for none, or too many answers to them."""
        values: list[str] | list[list[int]] = _several(self.prompt)
        if not 0 < len(values) * self.choices <= limits.MAX_ANSWERS:
            raise Failure(
                400, f"prompt: at least one, and at most {limits.MAX_ANSWERS} answers", param="prompt"
            )
        return values


class OldCompletion(Completion):
    """The body of /v1/engines/NAME/completions, the oldest form of the API, whose clients are as old."""

    _ignored = Completion._ignored | {"logprobs"}


class Embeddings(Body):
    """The body of /v1/embeddings; inputs are texts or lists of token ids."""

    _ignored = frozenset({"priority", "request_id", "user"})
    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "add_special_tokens": (True,),
        "normalize": (),
        "truncate_prompt_tokens": (),
    }

    model: Name | None = None
    input: Input
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Length | None = None

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """The inputs; Failure (400) for none, or too many."""
        values: list[str] | list[list[int]] = _several(self.input)
        if not 0 < len(values) <= limits.MAX_INPUTS:
            raise Failure(400, f"input: at least one, and at most {limits.MAX_INPUTS}", param="input")
        if self.dimensions is not None:
            raise unsupported("dimensions", "the model's embeddings have a fixed number of dimensions")
        return values


class Part(BaseModel):
    """A part of a message; what else it holds is about how clients keep it."""

    type: Literal["text"]
    text: Text


Parts = Annotated[list[Part], Field(fail_fast=True, max_length=limits.MAX_PARTS)]


class Message(Body):
    """A message of a conversation, text only.

    Clients send the messages of answers back as they got them, with all that these could have had: a field
    that is null or empty says nothing, whatever its name.
    """

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[Text, Tag(TEXT)] | Annotated[Parts, Tag(PARTS)],
        Discriminator(
            lambda value: PARTS if value == [] else form(value),
            custom_error_type="form",
            custom_error_message="it must be a text, or a list of parts of the type text",
        ),
    ]
    name: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_empty(cls, message: Any) -> Any:
        """Leave out the empty fields of an answer; the content may be empty."""
        if not isinstance(message, dict):
            return message
        return {
            name: value
            for name, value in message.items()
            if name in cls.model_fields or value not in ("", [], {})
        }

    def for_template(self) -> dict[str, str]:
        """Return the message as templates know it: one text, and no role that came after them."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text, **({"name": self.name} if self.name else {})}


Messages = Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=limits.MAX_MESSAGES)]


class Tokenize(Body):
    """The body of /tokenize, vLLM's path: a text, or the messages of a conversation."""

    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "add_generation_prompt": (True,),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
        "tools": ([],),
    }

    model: Name | None = None
    prompt: Text | None = None
    messages: Messages | None = None
    add_special_tokens: StrictBool | None = None
    return_token_strs: StrictBool | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Tokenize:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError("form", "either a prompt, or messages")
        return self


class Detokenize(Body):
    """The body of /detokenize, vLLM's path."""

    model: Name | None = None
    tokens: Row


class Chat(Generation):
    """The body of /v1/chat/completions."""

    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Generation._nothing,
        "add_generation_prompt": (True,),
        "add_special_tokens": (False,),
        "audio": (),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
        "documents": ([],),
        "echo": (False,),
        "function_call": ("none",),
        "functions": ([],),
        "mm_processor_kwargs": ({},),
        "prediction": (),
        "suffix": ("",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "web_search_options": (),
    }

    messages: Messages
    max_completion_tokens: Length | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=limits.MAX_CHAT_TOP)] | None = None

    @model_validator(mode="after")
    def _best_ones_of_some(self) -> Chat:
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError("form", "only together with logprobs", {"name": "top_logprobs"})
        return self

    @property
    def rates(self) -> Rates | None:
        """Which tokens are to be rated, if any."""
        return Rates("logprobs", self.top_logprobs or 0) if self.logprobs else None

    @property
    def longest(self) -> int | None:
        """The maximum tokens of an answer, by its newer or older name."""
        return self.max_completion_tokens or self.max_tokens


def _several(value: Any) -> Any:
    """Return a list of texts or of rows of token ids."""
    return [value] if isinstance(value, str) or (value and isinstance(value[0], int)) else value
