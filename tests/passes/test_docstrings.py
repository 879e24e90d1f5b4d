"""The examples in the passes' documentation are true: ``Given:`` becomes ``Result:``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import passes
from graphgen.ops import verify
from graphgen.text import parse, print_module
from passes.core import PASSES, Pass, parse_pipeline, run_pipeline
from passes.pipelines import Buckets, default

for _module in pkgutil.walk_packages(passes.__path__, "passes."):
    importlib.import_module(_module.name)

OURS = {name: cls for name, cls in PASSES.items() if cls.__module__.startswith("passes.")}
SECTION = re.compile(
    r"^Given:\n(?P<given>(?:    .*\n|\n)+)"
    r"^Result(?: \((?P<how>[^)]*)\))?:\n(?P<result>(?:    .*\n?|\n)+)",
    re.MULTILINE,
)


def example(cls: type[Pass]) -> tuple[str, list[Pass], str]:
    """Text before, passes, text after; passes and options stand in brackets behind ``Result``."""
    doc = inspect.cleandoc(cls.__doc__ or "") + "\n"
    found = SECTION.search(doc)
    assert found, f"{cls.name} shows no module before (Given:) and after (Result:)"
    named = re.findall(r"``(.*?)``", found["how"] or "")
    if not named or not re.match(rf"{cls.name}(\W|$)", named[0]):
        named.insert(0, cls.name)
    return (
        inspect.cleandoc(found["given"]),
        [item for text in named for item in parse_pipeline(text)],
        inspect.cleandoc(found["result"]),
    )


@pytest.mark.parametrize("name", OURS)
def test_given_becomes_result(name: str):
    given, pipeline, result = example(OURS[name])
    module = parse(given)
    verify(module)
    run_pipeline(module, pipeline)
    wanted = parse(result)
    verify(wanted)
    assert print_module(module, locs=False) == print_module(wanted, locs=False)


@pytest.mark.parametrize("name", OURS)
def test_the_example_changes_something(name: str):
    given, _, result = example(OURS[name])
    assert given != result


@pytest.mark.parametrize("name", OURS)
def test_every_option_is_documented(name: str):
    cls = OURS[name]
    doc = cls.__doc__ or ""
    fields = [field for field in cls.__dataclass_fields__ if field in cls.__annotations__]
    options = [field for field in fields if not field.startswith("_")]
    options = [o for o in options if "ClassVar" not in str(cls.__annotations__[o])]
    missing = [
        option for option in options if not re.search(rf"^ +{option}[,:]", doc, re.MULTILINE)
    ]
    assert missing == []


def test_the_default_pipeline_is_made_of_documented_passes():
    assert {item.name for item in default(Buckets(), tp=2)} <= set(OURS)
