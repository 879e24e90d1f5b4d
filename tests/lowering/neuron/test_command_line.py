"""Options of neuronx-cc: read, merged by rule, and the defaults that NxD Inference publishes."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.neuronx_cc.command_line import OptionLayer, merge
from graphgen.lowering.neuronx_cc.default_options import Situation, default_layers, differences
from graphgen.lowering.neuronx_cc.option_text import read_options


def merged(*layers: str):
    return merge(OptionLayer(f"layer {number}", text) for number, text in enumerate(layers))


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("-O1 --a=1", "-O2", "-O2 --a=1"),
        ("--lnc=2", "--logical-nc-config 1", "--lnc=1"),
        ("--lnc=2", "-lnc=1", "--lnc=1"),
        ("--disable-x", "--enable-x", "--enable-x"),
        ("--auto-cast=none", "--auto-cast-type=fp16", "--auto-cast=none --auto-cast-type=fp16"),
        ("--dge a b --x", "--y", "--dge a b --x --y"),
        (
            "--tensorizer-options='--a --b=1' -O1",
            "--tensorizer-options '--b=2 --c'",
            "--tensorizer-options='--a --b=2 --c' -O1",
        ),
        # An option of a list is another one than that of the command line.
        ("--tensorizer-options='--a=1'", "--a=2", "--tensorizer-options='--a=1' --a=2"),
        ("--json='{\"a\": 1}'", "", "--json='{\"a\": 1}'"),
    ],
)
def test_later_layers_replace_options_and_drop_none(before: str, after: str, text: str):
    command = merged(before, after)
    assert command.text == text
    # The text says the same when it is read again.
    assert merged(command.text).words == command.words


def test_an_option_keeps_its_origin_and_what_it_replaced():
    command = merged("-O1 --lnc=2", "-O2", "-O3 --lnc=2")
    level, cores = command.options
    assert (level.text, level.origin) == ("-O3", "layer 2")
    assert level.replaced == (("-O1", "layer 0"), ("-O2", "layer 1"))
    assert (cores.origin, cores.replaced) == ("layer 0", ())


@pytest.mark.parametrize("text", ["--a 'b", "value --a", "--tensorizer-options='x --a'"])
def test_a_text_that_is_no_list_of_options_is_refused(text: str):
    with pytest.raises(GraphgenError) as caught:
        merged("-O2", text)
    assert caught.value.code == "GG0705"


# The published argument lists of NxD Inference (`get_neuron_args`), by phase.
PUBLISHED = {
    ("prefill", 2, 8192): (
        "--auto-cast=none --model-type=transformer --tensorizer-options="
        "'--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=2 --vectorize-strided-dma' "
        "--lnc=2 -O1 --target=trn2 --internal-hlo2tensorizer-options="
        "'--modular-flow-mac-threshold=10 --verify-hlo=true'"
    ),
    ("decode", 2, 8192): (
        "--auto-cast=none --model-type=transformer --tensorizer-options="
        "'--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=1 --vectorize-strided-dma' "
        "--lnc=2 -O2 --target=trn2 --internal-hlo2tensorizer-options='--verify-hlo=true'"
    ),
    ("verify", 1, 8192): (
        "--auto-cast=none --model-type=transformer --tensorizer-options="
        "'--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=2 --vectorize-strided-dma' "
        "--lnc=1 -O2 --target=trn2 --internal-hlo2tensorizer-options='--verify-hlo=true'"
    ),
    ("prefill", 2, 131072): (
        "--auto-cast=none --model-type=transformer --internal-disable-fma-on-ios "
        "--disable-mixed-precision-accumulation --tensorizer-options="
        "'--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=2' "
        "--lnc=2 -O1 --target=trn2 --internal-hlo2tensorizer-options="
        "'--modular-flow-mac-threshold=10 --experimental-unsafe-fp8e4m3fn-as-fp8e4m3 "
        "--verify-hlo=true'"
    ),
}


@pytest.mark.parametrize("key", PUBLISHED, ids=str)
def test_defaults_are_the_published_lists(key: tuple[str, int, int]):
    phase, lnc, longest = key
    long = longest >= 32768
    at = Situation(phase, "trn2", lnc, longest, long_context=long, eight_bit_floats=long)
    assert merge(default_layers(at)).text == PUBLISHED[key]


def test_a_family_adds_to_the_defaults_and_drops_none_of_them():
    at = Situation("decode", "trn2", 2, 4096, eight_bit_floats=True, family="mixtral")
    command = merge(default_layers(at))
    assert "--lnc=2" in command.words
    assert command.text.endswith(
        "--enable-mixed-precision-accumulation --internal-enable-dge-levels=vector_dynamic_offsets"
    )
    dropped = {item.option: item.origin for item in differences(at, command)}
    assert dropped == {
        "--lnc=2": "logical cores",
        "--internal-hlo2tensorizer-options='--experimental-unsafe-fp8e4m3fn-as-fp8e4m3'": (
            "8-bit floats"
        ),
    }
    assert not differences(Situation("decode", "trn2", 2, 4096, family="llama"), command)


def test_options_of_a_list_stand_for_themselves():
    found = read_options("--internal-backend-options='--a=1 --b'")
    assert [(item.inside, item.name, item.value) for item in found] == [
        ("--internal-backend-options", "--a", "1"),
        ("--internal-backend-options", "--b", ""),
    ]
