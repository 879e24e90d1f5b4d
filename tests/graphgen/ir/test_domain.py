"""Domains of interface rows: their forms, text, bounds, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from graphgen.analysis import fingerprint
from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.exec.bind import bind_module
from graphgen.ir import (
    Domain,
    DomainLike,
    Entry,
    Function,
    Module,
    Role,
    as_domain,
    dtype,
    entry,
    symbol,
    tensor,
)
from graphgen.ir.clone import clone_module
from graphgen.ir.domain import check_domain, hull, parse_domain
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.programs.specialize import Specialize
from graphgen.text import parse, print_module

C = symbol("C")

FORMS = {
    "[0,31]": (0, 31),
    "[-1,C-1]": (-1, C - 1),
    "[C,2*C+1]": (C, 2 * C + 1),
    "[0.0,0.5]": (0.0, 0.5),
    "[-1e-07,1e+20]": (-1e-7, 1e20),
    "{-4,0,3}": {3, 0, -4},
    "{0.25,2}": {2, 0.25},
    "[2,9]": range(2, 10),
    "{0,2,4}": range(0, 5, 2),
    "[0,7]": (np.int64(0), np.int32(7)),
}


@pytest.mark.parametrize(("text", "given"), FORMS.items())
def test_each_form_prints_and_is_read_back(text: str, given: DomainLike):
    made = as_domain(given)
    assert made.text == text
    assert parse_domain(text) == made
    assert pickle.loads(pickle.dumps(made)) == made


WRONG = [(3, 1), (0, 1, 2), set[int](), range(0), "0..3", 5, (0, float("nan")), (0, float("inf"))]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_what_is_not_a_domain_is_refused(given: object):
    with pytest.raises(GraphgenError) as caught:
        as_domain(given)
    assert caught.value.code == "GG0108"


@pytest.mark.parametrize("text", ["[0]", "[0,1,2]", "{}", "[0,B**2]", "0,1", "[5,2]", "{C,1}"])
def test_text_that_is_not_a_domain_is_refused(text: str):
    with pytest.raises(GraphgenError) as caught:
        parse_domain(text)
    assert caught.value.code == "GG0108"


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("s8", (0, 128)),
        ("u8", {-1, 4}),
        ("s32", (0.0, 1.5)),
        ("pred", (0, 2)),
        ("c64", (0, 1)),
        ("f16", (0, 1e6)),
    ],
)
def test_a_type_has_the_values_of_its_domain(kind: str, given: DomainLike):
    with pytest.raises(GraphgenError) as caught:
        check_domain(as_domain(given), dtype(kind))
    assert caught.value.code == "GG0108"


def test_sizes_replace_symbols_and_others_stay():
    assert Domain(-1, C - 1).bind({"C": 8, "B": 2}) == Domain(-1, 7)
    assert Domain(0, C + symbol("R")).bind({"R": 3}) == Domain(0, C + 3)
    assert Domain(0, C).ends(dtype("s16")) == (0, 2**15 - 1)
    assert Domain(0, C).holds(10**6)
    assert not Domain(0, C).holds(-1)


def test_a_bound_row_has_ends_that_its_type_has():
    given = entry(Role.INPUT, "at", tensor(dtype("s8"), (symbol("B"),)), Domain(-1, C + -1))
    bound = given.bind({"C": 16, "B": 2}).domain
    assert bound == Domain(-1, 15)
    # More slots than an index can name.
    assert given.bind({"C": 1000, "B": 2}).domain == Domain(-1, 127)
    few = entry(Role.INPUT, "at", tensor(dtype("s8"), (2,)), Domain.of({0, 3}))
    assert few.bind({}).domain == Domain.of({0, 3})


def test_the_hull_of_domains():
    assert hull([Domain(0, 3), Domain.of({7, 9})]) == Domain(0, 9)
    assert hull([Domain(0, C), Domain(0, C)]) == Domain(0, C)
    assert hull([Domain(0, C), Domain(0, 4)]) is None
    assert hull([Domain(0, 3), None]) is None


def indexed() -> Module:
    module = Module("m")
    with Builder(module.add(Function("main", phase="main")), module) as b:
        at = b.input("at", dtype("s32"), (symbol("B"),), domain=(0, symbol("N") - 1))
        table = b.weight("table", dtype("f32"), (symbol("N"), 4))
        mode = b.state("mode", dtype("s8"), (2,), domain={0, 3})
        b.set_state(mode, mode)
        b.output("y", b.op("embedding", table, at))
    return module


def test_a_row_keeps_its_domain_in_text_copies_and_bound_modules():
    module = indexed()
    text = print_module(module)
    assert "  input %at : s32[B] domain=[0,N-1]\n" in text
    assert "  state %mode : s8[2] domain={0,3}\n" in text
    for copy in (parse(text), clone_module(module), pickle.loads(pickle.dumps(module))):
        assert copy.interface == module.interface
        assert print_module(copy) == text
    verify(module)
    bound = bind_module(module, {"B": 2, "N": 5})
    assert bound.interface["at"].domain == Domain(0, 4)


def test_a_row_has_its_domain_beside_all_else():
    types = "f32[2,8] as f32[2,4] pack=@p unpack=@u"
    line = f"  state %c : {types} last=4 domain=[0.0,1.0] sharding={{-,tp}}"
    read = parse(f"module @m level=logical mesh=tp:2 {{\n{line}\n}}\n")
    assert f"{line}\n" in print_module(read)


def test_the_fingerprint_depends_on_the_domain():
    module, other = indexed(), indexed()
    other.interface["at"] = replace(other.interface["at"], domain=None)
    assert fingerprint(module) != fingerprint(other)


def test_programs_agree_on_the_domain_of_an_input():
    module = indexed()
    with Builder(module.add(Function("second", phase="main")), module) as b:
        b.input("at", dtype("s32"), (symbol("B"),))
        with pytest.raises(GraphgenError, match=r"domain \[0,3\] here and \[0,N-1\] elsewhere"):
            b.input("at", dtype("s32"), (symbol("B"),), domain=(0, 3))


def test_the_builder_names_the_line_of_a_wrong_domain():
    module = Module("m")
    b = Builder(module.add(Function("main", phase="main")), module)
    with pytest.raises(GraphgenError, match="300 in the domain") as caught:
        b.input("x", dtype("u8"), (4,), domain=(0, 300))
    assert (caught.value.code, "test_domain.py" in caught.value.where) == ("GG0108", True)


def test_the_text_names_the_line_of_a_wrong_domain():
    with pytest.raises(GraphgenError, match=r"m\.gg:2:27") as caught:
        parse("module @m level=logical {\n  input %x : u8[4] domain=[0,300]\n}\n", "m.gg")
    assert caught.value.code == "GG0108"


def test_the_verifier_refuses_a_domain_of_an_output():
    module = indexed()
    row = module.interface["y"]
    module.interface["y"] = Entry(Role.OUTPUT, "y", row.logical, row.physical, domain=Domain(0, 1))
    with pytest.raises(GraphgenError, match="the output y has a domain") as caught:
        verify(module)
    assert caught.value.code == "GG0108"


def test_a_model_states_the_ranges_of_its_inputs():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    found = {row.name: row.domain for row in module.entries(Role.INPUT)}
    texts = {name: domain.text for name, domain in found.items() if domain is not None}
    assert texts == {"positions": "[-1,C-1]", "lengths": "[0,C]", "seq_ids": "[0,R]"}
    run_pipeline(module, [Specialize(batch=(2,), context=(8,), tokens=(8,))])
    (decode,) = [f for f in module.programs() if f.phase == "decode"]
    positions = module.interface["positions"].bind(decode.dims)
    assert positions.domain == Domain(-1, 7)
