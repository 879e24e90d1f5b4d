"""Inputs of forward: padding, positions, rows of the cache."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.forward_inputs import RowInput, read_rows

EMPTY = np.zeros(4, np.int32)


def rows(*arguments: object, lengths: object = EMPTY) -> list[RowInput]:
    return read_rows(*arguments, lengths=np.asarray(lengths, np.int32))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "positions", [None, [[0, 1, 2, 1], [1, 0, 1, 2]], [[0, 1, 2, -1], [-1, 0, 1, 2]]]
)
def test_prompts_are_padded_on_either_side(positions: object):
    made = rows([[5, 6, 7, 0], [0, 5, 6, 7]], [[1, 1, 1, 0], [0, 1, 1, 1]], positions)
    assert [row.tokens for row in made] == [(5, 6, 7), (5, 6, 7)]
    assert [(row.row, row.start) for row in made] == [(0, 0), (1, 0)]


def test_without_a_mask_positions_tell_tokens_from_padding():
    made = rows([[5, 6, 7, 9, 9], [9, 9, 5, 6, 7], [9, 9, 9, 9, 5]], None,
                [[0, 1, 2, 1, 1], [1, 1, 0, 1, 2], [1, 1, 1, 1, 0]])  # fmt: skip
    assert [row.tokens for row in made] == [(5, 6, 7), (5, 6, 7), (5,)]


def test_a_prompt_of_one_token_is_not_taken_for_two():
    assert rows([[5, 0, 0]], [[1, 0, 0]], [[0, 1, 1]]) == [RowInput(0, 0, (5,))]
    with pytest.raises(GraphgenError, match="of one token or of two") as error:
        rows([[5, 0, 0]], None, [[0, 1, 1]])
    assert error.value.help == "give attention_mask"


def test_rows_go_where_seq_ids_say():
    made = rows([[5], [6]], None, [[3], [0]], [2, 1], lengths=[0, 9, 3, 0])
    assert made == [RowInput(2, 3, (5,)), RowInput(1, 0, (6,), line=1)]


def test_a_single_token_without_positions_continues_its_row():
    assert rows([[5]], lengths=[3, 0, 0, 0]) == [RowInput(0, 3, (5,))]
    assert rows([[5]]) == [RowInput(0, 0, (5,))]
    # As transformers pads on the left: the mask covers the padding too.
    assert rows([[5]], [[0, 0, 1, 1, 1]], lengths=[2, 0, 0, 0]) == [RowInput(0, 2, (5,))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([5, 6],), "input_ids is int64 [2], not integers with 2 dimensions"),
        (([[5.5]],), "input_ids is float64 [1, 1], not integers"),
        (([[5]] * 5,), "input_ids has 5 rows and seq_ids 5; the programs"),
        (([[5], [6]], None, None, [1, 1]), "seq_ids [1, 1] are not different numbers from 0 to 3"),
        (([[5]], None, None, [4]), "seq_ids [4] are not different numbers from 0 to 3"),
        (([[5]], None, None, [-1]), "seq_ids [-1] are not different numbers"),
        (([[5, 6]], None, [[0]]), "position_ids is [1, 1], input_ids [1, 2]"),
        (([[5, 6]], [[1]]), "attention_mask is [1, 1], input_ids [1, 2]"),
        (([[5, 6, 7]], [[1, 0, 1]]), "attention_mask of seq_id 0 has padding between tokens"),
        (([[5, 6]], [[1, 1, 1]]), "has tokens after the end of input_ids"),
        (([[5]], None, [[1]]), "the tokens of seq_id 0 start at position 1; the row holds 0"),
        (([[5]], [[1, 1, 1]], [[1]]), "attention_mask of seq_id 0 has 3 tokens"),
        (([[5, 6]], None, [[4, 5]]), "start at position 4; the row holds 0 tokens"),
        (([[5, 6]], None, [[0, 0]]), "position_ids of seq_id 0 has 2 times 0: [0, 0]"),
        (([[5, 6]], [[1, 1]], [[0, 2]]), "position_ids of seq_id 0 do not count up: [0, 2]"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(arguments: tuple[object, ...], message: str):
    with pytest.raises(GraphgenError) as error:
        rows(*arguments)
    assert error.value.code == "GG0402"
    assert message in error.value.what


def test_a_row_without_a_token_is_refused():
    with pytest.raises(GraphgenError, match="the row of seq_id 0 has no token") as error:
        rows([[5, 6]], [[0, 0]])
    assert error.value.code == "GG0702"


def test_several_tokens_continue_a_sequence():
    assert rows([[5, 6, 9]], [[1, 1, 0]], [[3, 4, 1]], lengths=[3, 0, 0, 0]) == [
        RowInput(0, 3, (5, 6))
    ]
    assert rows([[5, 6]], None, [[2, 3]], lengths=[3, 0, 0, 0]) == [RowInput(0, 2, (5, 6))]
