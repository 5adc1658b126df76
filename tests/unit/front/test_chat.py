"""Chat templates: rendered as the checkpoint means them, and kept from doing anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError
from ftbuild.front import chat
from ftbuild.front.failures import Failure

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
