"""Each edit that makes a module smaller, on a small one: the text that is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphgen.ir import Module
from graphgen.ops import verify
from graphgen.passes.validate import minify as reduce
from graphgen.text import parse, print_module

HEAD = """\
module @m level=logical {
  meta note = "text"
  input %x : f32[4,6]
  input %unread : f32[2]
  state %cache : f32[4,6]
  output %y : f32[4,6]
}

"""
DECODE = """\
func @decode phase=decode {
  arg %x : f32[4,6]
  arg %unread : f32[2]
  arg %cache : f32[4,6]
  %a = negate(%x) : f32[4,6]  # m.py:1 layers.0
  %b = add(%a, %cache) : f32[4,6]  # m.py:2 layers.1
  %c = exponential(%b) : f32[4,6]  # m.py:3 layers.2
  %dead = cosine(%c) : f32[4,6]
  return y = %c
  return cache = %b
}
"""
PREFILL = DECODE.replace("decode", "prefill")


def module(*functions: str) -> Module:
    found = parse(HEAD + "\n".join(functions or (DECODE,)))
    verify(found)
    return found


def left(edit: reduce.Edit, of: Module | None = None) -> list[str] | None:
    """The lines of @decode after an edit, or None where there is nothing to do."""
    before = of or module()
    text = print_module(before)
    found = reduce.edited(before, edit)
    assert print_module(before) == text
    if found is None:
        return None
    verify(found)
    _, _, rest = print_module(found, locs=False).partition("func @decode")
    return [line.strip() for line in rest.splitlines()[1:] if line.startswith("  ")]


ALL = [
    *("arg %x : f32[4,6]", "arg %cache : f32[4,6]", "%a = negate(%x) : f32[4,6]"),
    *("%b = add(%a, %cache) : f32[4,6]", "%c = exponential(%b) : f32[4,6]"),
    *("return y = %c", "return cache = %b"),
]


def test_what_is_not_read_goes():
    assert left(reduce.without_meta) == ALL
    found = reduce.edited(module(), reduce.without_meta)
    assert found is not None
    assert list(found.interface) == ["x", "cache", "y"]
    assert found.meta == {}


def test_programs():
    both = module(PREFILL, DECODE)
    found = reduce.edited(both, reduce.without_programs(["prefill"]))
    assert found is not None
    assert list(found.functions) == ["decode"]
    assert reduce.edited(module(), reduce.without_programs(["decode"])) is None


@pytest.mark.parametrize(
    ("scopes", "lines"),
    [
        (["layers.0"], ["%b = add(%x, %cache) : f32[4,6]", "%c = exponential(%b) : f32[4,6]"]),
        (["layers.2"], ["%a = negate(%x) : f32[4,6]", "%b = add(%a, %cache) : f32[4,6]"]),
        (["layers.1", "layers.2"], ["%a = negate(%x) : f32[4,6]"]),
    ],
)
def test_layers(scopes: list[str], lines: list[str]):
    found = left(reduce.without_layers(scopes))
    assert found is not None
    assert [line for line in found if line.startswith("%")] == lines


def test_layers_that_are_not_there():
    assert left(reduce.without_layers(["layers.7"])) is None


@pytest.mark.parametrize(
    ("names", "returns"),
    [
        (["y"], ["return cache = %b"]),
        # A state that is read stays, as it was given.
        (["cache"], ["return y = %c", "return cache = %cache"]),
        (["other"], None),
    ],
)
def test_outputs(names: list[str], returns: list[str] | None):
    found = left(reduce.without_outputs("decode", names))
    assert (found and [line for line in found if line.startswith("return")]) == returns


def test_the_first_ops_alone_hand_back_what_the_rest_reads():
    assert left(reduce.outputs_at("decode", 1)) == [
        *("arg %x : f32[4,6]", "%a = negate(%x) : f32[4,6]", "return out1 = %a")
    ]
    assert left(reduce.outputs_at("decode", 2)) == [
        *ALL[:4],
        "return cache = %b",
        "return out1 = %b",
    ]
    assert left(reduce.outputs_at("decode", 4)) is None


def test_the_last_ops_alone_are_given_what_they_read():
    assert left(reduce.inputs_at("decode", 2)) == [
        *("arg %x : f32[4,6]", "arg %cache : f32[4,6]", "arg %in1 : f32[4,6]"),
        *("%a = negate(%x) : f32[4,6]", "%b = add(%a, %cache) : f32[4,6]"),
        *("%c = exponential(%in1) : f32[4,6]", "return y = %c", "return cache = %b"),
    ]
    assert left(reduce.inputs_at("decode", 0)) is None


def test_results_as_inputs():
    assert left(reduce.as_inputs("decode", [0])) == [
        *("arg %cache : f32[4,6]", "arg %in1 : f32[4,6]", "%b = add(%in1, %cache) : f32[4,6]"),
        *("%c = exponential(%b) : f32[4,6]", "return y = %c", "return cache = %b"),
    ]
    assert left(reduce.as_inputs("decode", [3])) is None


def test_ops_left_out():
    found = left(reduce.bypassed("decode", [0, 2]))
    assert found == [
        *ALL[:2],
        "%b = add(%x, %cache) : f32[4,6]",
        "return y = %b",
        "return cache = %b",
    ]
    assert left(reduce.bypassed("decode", [3])) is None


REDUCE = """\
func @decode phase=decode {
  arg %x : f32[4,6]
  %t = rms_norm(%x, %w) epsilon=1e-05 : f32[4,6]
  %r = broadcast_in_dim(%t) shape=[4,6] dimensions=[0,1] : f32[4,6]
  return y = %r
}
"""


def test_attributes_become_plain():
    text = REDUCE.replace("arg %x : f32[4,6]", "arg %x : f32[4,6]\n  arg %w : f32[6]")
    of = parse(HEAD.replace("input %unread : f32[2]", "weight %w : f32[6]") + text)
    found = left(reduce.plain_attrs("decode", 0), of)
    assert found is not None
    assert "%t = rms_norm(%x, %w) epsilon=1.0 : f32[4,6]" in found
    once = reduce.edited(of, reduce.plain_attrs("decode", 0))
    assert once is not None
    assert reduce.edited(once, reduce.plain_attrs("decode", 0)) is None
    assert left(reduce.plain_attrs("decode", 0)) is None


def test_other_sizes():
    text = REDUCE.replace("arg %x : f32[4,6]", "arg %x : f32[4,6]\n  arg %w : f32[6]")
    of = parse(HEAD.replace("input %unread : f32[2]", "weight %w : f32[6]") + text)
    assert left(reduce.resized({6: 2}), of) == [
        *("arg %x : f32[4,2]", "arg %w : f32[2]", "%t = rms_norm(%x, %w) epsilon=1e-05 : f32[4,2]"),
        *("%r = broadcast_in_dim(%t) shape=[4,2] dimensions=[0,1] : f32[4,2]", "return y = %r"),
    ]


def test_an_edit_that_does_nothing_changes_nothing():
    nothing: Callable[[Module], bool] = lambda _: False  # noqa: E731
    assert reduce.edited(module(), nothing) is None
