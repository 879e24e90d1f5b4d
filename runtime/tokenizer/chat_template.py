"""Render a conversation to one prompt with a model's own Jinja2 chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from jinja2 import Template


def render_chat(
    template: str | None,
    messages: Sequence[Mapping[str, str]],
    *,
    bos_token: str | None,
    eos_token: str | None,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt text of a conversation, equal to Hugging Face's ``apply_chat_template``.

    The template is untrusted code from a checkpoint: it runs in Jinja2's immutable sandbox.

    Args:
        template: the Jinja2 text.
        messages: the turns, each with the keys ``role`` and ``content``.
        bos_token: the template's ``bos_token``; undefined in the template if None.
        eos_token: the template's ``eos_token``; undefined in the template if None.
        add_generation_prompt: end the prompt with the beginning of the model's answer.

    Raises:
        GraphgenError: GG0603 if the template is missing or fails.
    """
    if template is None:
        raise GraphgenError("GG0603", "the model has no chat template", help="give a plain prompt")
    tokens = {"bos_token": bos_token, "eos_token": eos_token}
    try:
        return _compile(template).render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **{name: token for name, token in tokens.items() if token is not None},
        )
    except Exception as error:  # a template is a program: it can raise anything
        line = getattr(error, "lineno", None)
        at = f" at its line {line}" if line is not None else ""
        reason = str(error) or type(error).__name__
        raise GraphgenError("GG0603", f"the chat template fails{at}: {reason}") from error


@lru_cache(maxsize=8)
def _compile(template: str) -> Template:
    # Only here: a run without chat does not need Jinja2.
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Replace ``{% generation %}``, the mark of text to train on, by its body."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    # Jinja2 leaves the types of these two dictionaries open.
    filters = cast("dict[str, object]", environment.filters)  # pyright: ignore[reportUnknownMemberType]
    names = cast("dict[str, object]", environment.globals)  # pyright: ignore[reportUnknownMemberType]
    filters["tojson"] = _to_json
    names["raise_exception"] = _raise_exception
    names["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja2's own filter escapes HTML, which a prompt must not have.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    # Local time without a zone, as Hugging Face gives it to the template.
    return datetime.now().strftime(form)
