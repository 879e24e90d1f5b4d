"""Files of request lengths: both forms give the same histogram, and every mistake has its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.lowering.plan.request_lengths import RequestLengths, read_request_lengths

HISTOGRAM = {(5, 3): 4, (9, 1): 1}


def read(tmp_path: Path, text: str) -> RequestLengths:
    path = tmp_path / "lengths"
    path.write_text(text, encoding="utf-8")
    return read_request_lengths(path)


@pytest.mark.parametrize(
    "text",
    [
        "prompt,answer,count\n5,3,4\n9,1,1\n",
        "\ufeffprompt, answer\r\n5,3\r\n\r\n5,3\r\n5,3\r\n5,3\r\n9,1\r\n",
        "count,answer,prompt\n1,1,9\n4,3,5",
        '{"prompt": 5, "answer": 3, "count": 4}\n\n{"answer": 1, "prompt": 9}\n',
    ],
    ids=["csv", "without-counts", "other-order", "json-lines"],
)
def test_every_form_gives_the_same_histogram(tmp_path: Path, text: str):
    assert read(tmp_path, text).counts == HISTOGRAM


def test_numbers_of_a_histogram():
    lengths = RequestLengths(HISTOGRAM)
    assert (lengths.requests, lengths.longest_prompt, lengths.longest_sequence) == (5, 9, 10)
    assert (lengths.mean_prompt, lengths.mean_answer) == (29 / 5, 13 / 5)


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 9), st.integers(1, 9)), st.integers(1, 4), min_size=1, max_size=5
    )
)
def test_calls_are_those_of_each_request_generated_alone(counts: dict[tuple[int, int], int]):
    lengths = RequestLengths(counts)
    prefills, steps = [0] * 20, [0] * 20
    for (prompt, answer), count in counts.items():
        prefills[prompt] += count
        for held in range(prompt, prompt + answer - 1):
            # The token that was chosen last is written, and attended to.
            steps[held + 1] += count
    for made, expected in ((lengths.prefills(), prefills), (lengths.steps(), steps)):
        assert made == expected[: len(made)]
        assert not any(expected[len(made) :])


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", None, "has no requests"),
        ("prompt,answer\n", None, "has no requests"),
        ("5,3\n", 1, "unknown or repeated: 5, 3; missing: prompt, answer"),
        ("prompt,anwser\n5,3\n", 1, "unknown or repeated: anwser; missing: answer"),
        ("prompt,answer,prompt\n5,3,5\n", 1, "unknown or repeated: prompt"),
        ("prompt,answer\n5,3\n5\n", 3, "1 values for 2 columns"),
        ("prompt,answer\n5,0\n", 2, "answer 0 is not"),
        ("prompt,answer\n-5,1\n", 2, "prompt '-5' is not"),
        ("prompt,answer\n1_0,1\n", 2, "prompt '1_0' is not"),
        ("prompt,answer,count\n5,1,2.5\n", 2, "count '2.5' is not"),
        ('{"prompt": 5, "answer": true}\n', 1, "answer True is not"),
        ('{"prompt": 5, "answer": 2}\n{"prompt": 5\n', 2, "not JSON"),
        ('{"prompt": 5, "answer": 2}\n[5, 2]\n', 2, "not a JSON object"),
        ('{"prompt": 5, "answer": 2, "model": "x"}\n', 1, "unknown or repeated: model"),
        ('{"prompt": 5}\n', 1, "missing: answer"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int | None, what: str):
    with pytest.raises(GraphgenError) as raised:
        read(tmp_path, text)
    error = raised.value
    assert error.code == "GG0705"
    assert what in error.what
    assert error.where == str(tmp_path / "lengths") + (f":{line}" if line else "")
    assert "prompt,answer" in error.help


def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(GraphgenError, match="cannot read"):
        read_request_lengths(tmp_path / "none.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GraphgenError, match="cannot read"):
        read_request_lengths(tmp_path / "bytes")
