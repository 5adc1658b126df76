"""The bodies of requests, by OpenAI's reference; what this service cannot honour is refused by name.

A parameter that is sent with the value that it has anyway is fine: clients send many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from ftbuild.front.failures import Failure, unsupported
from ftbuild.front.sampling import Sampling

# OpenAI's own limits.
MOST_STOPS, MOST_INPUTS = 4, 2048
# A request occupies the server so many times: answers to one prompt, and to all of them.
MOST_CHOICES, MOST_ANSWERS = 16, 64
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Token = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
# What changes no answer.
_IGNORED = frozenset(
    {
        "metadata", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "store",
        "user",
    }
)  # fmt: skip
# Parameter -> the values that ask for nothing.
_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}


class StreamOptions(BaseModel):
    """How a stream ends."""

    include_usage: StrictBool = False


class Generation(BaseModel):
    """What both kinds of requests have in common."""

    model_config = ConfigDict(extra="forbid")

    model: str
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    top_k: Annotated[StrictInt, Field(ge=0, le=1024)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0, le=2)] | None = None
    seed: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[StrictInt, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, body: Any) -> Any:
        """Refuse what cannot be honoured by a reason, not as an unknown name."""
        if not isinstance(body, dict):
            return body
        for name, harmless in _NOTHING.items():
            # 0 is no False here, nor 1 a True.
            sent = body.get(name)
            if not any(sent == value and type(sent) is type(value) for value in harmless):
                raise unsupported(name, "not supported by this service")
        return {name: value for name, value in body.items() if name not in _IGNORED and name not in _NOTHING}

    @property
    def stops(self) -> list[str]:
        """The stop sequences; Failure (400) for too many or an empty one."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(found) > MOST_STOPS or not all(found):
            raise Failure(400, f"stop: at most {MOST_STOPS} sequences, none of them empty", param="stop")
        return found

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
        """How tokens are chosen: OpenAI's defaults where nothing is said."""
        names = Sampling.__dataclass_fields__
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Sampling(**given)


class Completion(Generation):
    """The body of /v1/completions; prompts are texts or lists of token ids."""

    prompt: str | list[str] | list[Token] | list[list[Token]]

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts; Failure (400) for none, or too many answers to them."""
        found: Any = self.prompt
        if isinstance(found, str) or (found and isinstance(found[0], int)):
            found = [found]
        if not 0 < len(found) * self.choices <= MOST_ANSWERS:
            raise Failure(400, f"prompt: at least one, and at most {MOST_ANSWERS} answers", param="prompt")
        prompts: list[str] | list[list[int]] = found
        return prompts


class Embeddings(BaseModel):
    """The body of /v1/embeddings; inputs are texts or lists of token ids."""

    model_config = ConfigDict(extra="forbid")

    model: str
    input: str | list[str] | list[Token] | list[list[Token]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: StrictInt | None = None
    user: str | None = None

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """The inputs; Failure (400) for none, or too many."""
        found: Any = self.input
        if isinstance(found, str) or (found and isinstance(found[0], int)):
            found = [found]
        if not 0 < len(found) <= MOST_INPUTS:
            raise Failure(400, f"input: at least one, and at most {MOST_INPUTS}", param="input")
        if self.dimensions is not None:
            raise unsupported("dimensions", "the model's vectors have one length")
        inputs: list[str] | list[list[int]] = found
        return inputs


class Part(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a conversation, text only."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """Return the message as templates know it: one text, and no role that came after them."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text, **({"name": self.name} if self.name else {})}


class Chat(Generation):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None

    @property
    def longest(self) -> int | None:
        """The most tokens of an answer, by its newer or older name."""
        return self.max_completion_tokens or self.max_tokens
