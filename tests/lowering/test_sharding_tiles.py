"""Arrays cut by HLO's shardings, and put together again."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding
from graphgen.lowering.hlo_text.sharding_tiles import cut, joined

WHOLE = np.arange(30, dtype=np.int32).reshape(5, 6)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("{replicated}", (5, 6)),
        ("{devices=[4,1]<=[4]}", (2, 6)),
        ("{devices=[2,2]<=[4]}", (3, 3)),
        ("{devices=[2,2]<=[2,2]T(1,0)}", (3, 3)),
        ("{devices=[1,2,2]<=[4] last_tile_dim_replicate}", (5, 3)),
        ("{devices=[2,1,2]<=[4] last_tile_dims={replicated}}", (3, 6)),
        ("{devices=[1,4]3,1,0,2}", (5, 2)),
    ],
)
def test_parts_are_the_whole_again(text: str, sizes: tuple[int, ...]):
    sharding = parse_sharding(text)
    parts = cut(WHOLE, sharding, 4)
    assert {part.shape for part in parts} == {sizes}
    np.testing.assert_array_equal(joined(parts, sharding, WHOLE.shape), WHOLE)


def test_each_device_has_its_own_part():
    parts = cut(WHOLE, parse_sharding("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"), 4)
    assert [int(part[0, 0]) for part in parts] == [0, 3, 0, 3]
    parts = cut(WHOLE, parse_sharding("{devices=[4,1]<=[4]}"), 4)
    # Four parts of two rows: the third is filled up, the fourth is empty.
    assert [part[:, 1].tolist() for part in parts] == [[1, 7], [13, 19], [25, 0], [0, 0]]


@pytest.mark.parametrize(
    "text", ["{maximal device=0}", "{manual}", "{devices=[2,1]<=[2]}", "{devices=[4]<=[4]}"]
)
def test_shardings_that_give_no_parts_are_named(text: str):
    with pytest.raises(GraphgenError, match="does not give each of 4 devices a part") as caught:
        cut(WHOLE, parse_sharding(text), 4)
    assert caught.value.code == "GG0205"


def test_parts_of_other_sizes_are_named():
    parts = [np.zeros((5, 6), np.int32)] * 4
    with pytest.raises(GraphgenError, match=r"a part has shape \[5, 6\], .* makes \[2, 6\]"):
        joined(parts, parse_sharding("{devices=[4,1]<=[4]}"), (5, 6))
