"""The process that renders chat templates: a program of its own, with limits of time and memory.

A template is a program from a checkpoint. Jinja2's sandbox keeps it from names, not from time and
memory: one expression can take gigabytes. Each line of standard input is a request in JSON, each
line of standard output its answer.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from jinja2 import Template

# Of the interpreter and Jinja2 together with the text and what a template makes on the way.
_MEMORY = 1 << 29


@lru_cache(maxsize=8)
def _compile(template: str) -> Template:
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


@lru_cache(maxsize=1)
def _marking() -> ModuleType:
    """The module of marked texts, which is read by its path: the package takes long to import."""
    path = Path(__file__).with_name("marked_text.py")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named_values(names: dict[str, object], marks: Sequence[str] | None) -> dict[str, object]:
    """The names of a template, with marked texts of messages and tools where there are marks."""
    if marks is None:
        return names
    module = _marking()
    found = module.Marks(*marks)
    messages = module.marked_messages(names["messages"], found)
    return {**names, "messages": messages, "tools": module.marked_value(names["tools"], found)}


def rendered(template: str, names: dict[str, object], most: int) -> dict[str, object]:
    """The text of a template, or the reason why there is none with its line."""
    try:
        text = _compile(template).render(**names)
    except MemoryError:
        return {"error": "it takes too much memory"}
    except Exception as error:  # a template is a program: it can raise anything
        reason = str(error)[:2000] or type(error).__name__
        return {"error": reason, "line": getattr(error, "lineno", None)}
    if len(text) > most:
        return {"long": len(text)}
    return {"text": text}


def main() -> None:
    """Answer requests until standard input ends; more than the seconds in one ends the process."""
    seconds, most = float(sys.argv[1]), int(sys.argv[2])
    _compile("")
    _marking()
    memory = max(_MEMORY, 8 * most)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of the reader's terminal: the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # Time of this process alone: another load of the machine changes nothing.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        names = named_values(request["names"], request["marks"])
        answer = rendered(request["template"], names, most)
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Text of a template may have halves of surrogate pairs; ASCII keeps them.
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
