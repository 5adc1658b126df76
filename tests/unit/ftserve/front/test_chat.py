"""Chat templates: rendered as the checkpoint means them, and kept from doing anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ftserve.front import chat
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure

MESSAGES = [{"role": "user", "content": "<b>&"}]
CONFIG: dict[str, Any] = {
    "bos_token": {"content": "<s>", "lstrip": False},
    "eos_token": "</s>",
    "chat_template": (
        "{{ bos_token }}{% for m in messages %}\n  {% if m['role'] == 'user' %}\n"
        "[{{ m['content'] | trim }}]{% endif %}\n{% endfor %}{{ messages | tojson }}"
        "{% if add_generation_prompt %}{{ eos_token }}{% endif %}"
    ),
}


def read(folder: Path, **changed: Any) -> chat.ChatTemplate:
    (folder / chat.CONFIG).write_text(json.dumps({**CONFIG, **changed}))
    found = chat.read(folder)
    assert found is not None
    return found


def test_a_template_is_rendered_with_its_tokens_and_without_html(tmp_path: Path) -> None:
    assert read(tmp_path).render(MESSAGES) == '<s>[<b>&][{"role": "user", "content": "<b>&"}]</s>'


def test_a_file_of_its_own_comes_before_the_configuration(tmp_path: Path) -> None:
    (tmp_path / chat.TEMPLATE).write_text("{{ messages[0].content }}")
    assert read(tmp_path).render(MESSAGES) == "<b>&"


def test_of_several_templates_the_default_counts(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    assert read(tmp_path, chat_template=several).render(MESSAGES) == "yes"


def test_without_a_template_there_is_none(tmp_path: Path) -> None:
    assert chat.read(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / chat.CONFIG).write_text("{}")
    assert chat.read(tmp_path) is None
    assert chat.end_token(tmp_path) is None


def test_a_template_that_refuses_says_why_to_the_client(tmp_path: Path) -> None:
    template = read(tmp_path, chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Failure, match="roles must alternate") as refused:
        template.render(MESSAGES)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "hostile",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ none.content.more }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(tmp_path: Path, hostile: str) -> None:
    with pytest.raises(Failure) as refused:
        read(tmp_path, chat_template=hostile).render([{"role": "user", "content": "a secret"}])
    assert "secret" not in refused.value.message


def test_a_template_that_is_no_text_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / chat.TEMPLATE).write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"chat_template\.jinja cannot be read"):
        chat.read(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"chat_template": "{% if %}"}'])
def test_a_broken_file_is_an_error_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / chat.CONFIG).write_text(content)
    with pytest.raises(ConfigError):
        chat.read(tmp_path)


def test_what_marks_an_answer_for_training_changes_no_text(tmp_path: Path) -> None:
    body = "{% generation %}{% set a = m.content %}{{ a }}{% endgeneration %}"
    marked = f"{{% for m in messages %}}{body}!{{% endfor %}}"
    assert read(tmp_path, chat_template=marked).render(MESSAGES) == "<b>&!"


def test_the_files_are_those_of_checkpoints_and_so_are_the_names_of_tokens(tmp_path: Path) -> None:
    """transformers v4.57 tokenization_utils_base.py: tokenizer_config.json, chat_template.jinja, *_token."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**{name: f"<{name}>" for name in names}, "cls_token": "<cls>", "chat_template": "config"})
    )
    found = chat.read(tmp_path)
    assert found is not None
    assert found.render([]) == "config"
    (tmp_path / "chat_template.jinja").write_text("".join(f"{{{{ {n} }}}}" for n in (*names, "cls_token")))
    found = chat.read(tmp_path)
    assert found is not None
    assert found.render([]) == "<bos_token><eos_token><unk_token><pad_token><cls>"
    assert chat.end_token(tmp_path) == "<eos_token>"


def test_a_template_has_what_transformers_gives_it(tmp_path: Path) -> None:
    """Blocks leave no blank lines; loops can be left; the assistant is asked; there are no tools."""
    template = (
        "  {% if add_generation_prompt %}\n"
        "{{ tools is none and documents is none }}\n"
        "  {% endif %}\n"
        "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
        "{{ strftime_now('%Y') | length }}"
    )
    several = [*MESSAGES, *MESSAGES]
    assert read(tmp_path, chat_template=template).render(several) == "True\n<b>&4"


def test_json_in_a_template_is_as_it_is(tmp_path: Path) -> None:
    template = "{{ messages | tojson }}{{ {'é': '<'} | tojson(indent=1) }}"
    made = read(tmp_path, chat_template=template).render([{"role": "user", "content": "ü'"}])
    assert made == '[{"role": "user", "content": "ü\'"}]{\n "é": "<"\n}'


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% if %}", "Expected an expression"),
        ("{% break %}", "'break' outside loop"),
        ("{{ 'a' * }}", "unexpected"),
        ("{% generation %}a", "Unexpected end of template"),
    ],
)
def test_a_template_that_cannot_be_compiled_says_why(tmp_path: Path, template: str, said: str) -> None:
    with pytest.raises(ConfigError, match="the chat template is broken: ") as refused:
        read(tmp_path, chat_template=template)
    assert said in str(refused.value)
    assert "a template of another model, or none" in str(refused.value)


def test_a_template_that_cannot_be_compiled_fills_no_screen(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, chat_template="{% " + "x" * 5000 + " %}")
    assert refused.value.what.startswith("the chat template is broken: Encountered unknown tag 'xxx")
    assert len(refused.value.what) == len("the chat template is broken: ") + 200


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('x' * 1000) }}", "x" * 300),
        ("{{ raise_exception(5) }}", "5"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ nothing.more }}", "UndefinedError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ '%d' | format('a') }}", "TypeError"),
        ("{{ 'a'.encode().decode('utf-16') }}", "UnicodeDecodeError"),
        ("{{ [].pop() }}", "SecurityError"),
        ("{{ {}['a'].b }}", "UndefinedError"),
        ("{{ 'a'.encode('nothing') }}", "LookupError"),
        ("{{ messages[0].content * 10**17 }}", "MemoryError"),
        ("{{ none | xmlattr }}", "AttributeError"),
    ],
)
def test_a_template_that_fails_is_named_with_its_own_words_or_the_kind(
    tmp_path: Path, template: str, said: str
) -> None:
    with pytest.raises(Failure) as refused:
        read(tmp_path, chat_template=template).render(MESSAGES)
    assert refused.value.message == f"the model's chat template does not take these messages: {said}"
    assert refused.value.param == "messages"


@pytest.mark.parametrize("named", [[], [5, "a", {"name": "rag", "template": "x"}], [{"name": "default"}], 5])
def test_templates_without_a_default_are_none(tmp_path: Path, named: Any) -> None:
    (tmp_path / chat.CONFIG).write_text(json.dumps({"chat_template": named}))
    assert chat.read(tmp_path) is None


@pytest.mark.parametrize(
    ("written", "text"),
    [("</s>", "</s>"), ({"content": "</s>", "lstrip": True}, "</s>"), (None, None)],
)
def test_a_token_is_a_text_or_an_object_with_one(tmp_path: Path, written: object, text: str | None) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / chat.CONFIG).write_text(json.dumps({"eos_token": written}))
    assert chat.end_token(tmp_path) == text


@pytest.mark.parametrize("written", [{}, 5, {"content": 5}])
def test_what_is_no_token_is_refused(tmp_path: Path, written: object) -> None:
    (tmp_path / chat.CONFIG).write_text(json.dumps({"eos_token": written, "chat_template": "a"}))
    for reader in (chat.read, chat.end_token):
        with pytest.raises(ConfigError, match="is not a token"):
            reader(tmp_path)


def test_a_template_gets_the_tokens_that_another_file_or_the_class_names(tmp_path: Path) -> None:
    """transformers' special_tokens_map, which apply_chat_template hands to the template."""
    roles = ("bos_token", "eos_token", "unk_token", "sep_token")
    source = "".join(f"{{{{ {role} }}}}" for role in roles) + "{{ additional_special_tokens | join('+') }}"
    (tmp_path / chat.CONFIG).write_text(json.dumps({"chat_template": source}))
    named = {
        "bos_token": {"content": "<b>"},
        "sep_token": "<sep>",
        "additional_special_tokens": ["<x>", "<y>"],
    }
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    found = chat.read(tmp_path)
    assert found is not None
    assert found.render([]) == "<b><|endoftext|><|endoftext|><sep><x>+<y>"
    assert chat.end_token(tmp_path) == "<|endoftext|>"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "tokenizer_config.json is not a JSON object"),
        (b"{", "tokenizer_config.json cannot be read: JSONDecodeError"),
        (b"\xff", "tokenizer_config.json cannot be read: UnicodeDecodeError"),
        (b"[" * 100_000, "tokenizer_config.json cannot be read: RecursionError"),
    ],
)
def test_a_configuration_that_is_none_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    for reader in (chat.read, chat.end_token):
        with pytest.raises(ConfigError, match=said) as refused:
            reader(tmp_path)
        assert str(tmp_path) in str(refused.value)
