"""The examples in the passes' documentation are true: ``Given:`` becomes ``Result:``."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import graphgen.passes
from graphgen.config.compile_config import CompileConfig
from graphgen.ops import verify
from graphgen.passes.core import PASSES, Pass, parse_pipeline, run_pipeline
from graphgen.passes.core.options import options_of
from graphgen.passes.core.registry import PIPELINES
from graphgen.passes.inspect.catalog import page_of
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

for _module in pkgutil.walk_packages(graphgen.passes.__path__, "graphgen.passes."):
    importlib.import_module(_module.name)

OURS = {name: cls for name, cls in PASSES.items() if cls.__module__.startswith("graphgen.passes.")}


def example(cls: type[Pass]) -> tuple[str, list[Pass], str]:
    """Text before, passes, text after; passes and options stand in brackets behind ``Result``."""
    page = page_of(cls)
    assert page.given, f"{cls.name} shows no module before (Given:)"
    assert page.result, f"{cls.name} shows no module after (Result:)"
    named = page.passes
    if not named or not re.match(rf"{cls.name}(\W|$)", named[0]):
        named.insert(0, cls.name)
    return page.given, [item for text in named for item in parse_pipeline(text)], page.result


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


@pytest.mark.parametrize("name", [*OURS, *PIPELINES])
def test_every_option_is_documented(name: str):
    cls = (OURS | PIPELINES)[name]
    documented = {key for key, text in page_of(cls).options.items() if text}
    assert documented == set(options_of(cls))


def test_the_default_pipeline_is_made_of_documented_passes():
    assert {item.name for item in default(CompileConfig(tp=2))} <= set(OURS)
