"""Random bits and the states after them, to the last bit as XLA's."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from tests.oracles import xla_hlo

# The counter overflows on the way.
STATES = {2: [3, 2**64 - 2], 3: [5, 2**64 - 1, 2**64 - 1]}
SHAPES = ("", "4", "5,7,3", "2,3", "1,1")


@pytest.mark.parametrize("kind", ["u64", "f32", "bf16", "f64", "u8"])
@pytest.mark.parametrize(
    ("algorithm", "words"), [("three_fry", 2), ("philox", 2), ("philox", 3), ("default", 2)]
)
@pytest.mark.one_in(2)
def test_bits_are_those_of_xla(kind: str, algorithm: str, words: int):
    ops = [
        f"  r{i} = (u64[{words}], {kind}[{dims}]) rng-bit-generator(s), algorithm=rng_{algorithm}"
        for i, dims in enumerate(SHAPES)
    ]
    parts = [
        f"  p{i}.{j} = {type_} get-tuple-element(r{i}), index={j}"
        for i, dims in enumerate(SHAPES)
        for j, type_ in enumerate((f"u64[{words}]", f"{kind}[{dims}]"))
    ]
    names = [part.split()[0] for part in parts]
    types = ", ".join([part.split()[2] for part in parts])
    root = f"  ROOT out = ({types}) tuple({', '.join(names)})"
    body = "\n".join([f"  s = u64[{words}] parameter(0)", *ops, *parts, root])
    proto = parse_hlo_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    state = np.array(STATES[words], np.uint64)
    module = read_hlo(parse_hlo_text(print_hlo_text(proto)))
    (theirs,) = xla_hlo.run(proto, [[state]])
    ours = evaluate(module.programs()[0], {"s": state}, module=module)
    for one, other in zip(ours.values(), theirs, strict=True):
        # XLA on a CPU calls bits of any type unsigned.
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
