"""Tables of blocks of the caller: shared prefixes, chunks side by side, and wrong tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.accuracy_checks import check_accuracy_logits
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.session.session import Session
from tests.oracles.applications import open_application, open_reference, write_checkpoint
from tests.runtime.aws_nxdi.conftest import Checkpoint

BLOCK, BLOCKS = 4, 24
PAGED = {"is_block_kv_layout": True, "pa_block_size": BLOCK, "pa_num_blocks": BLOCKS}
SIZES = {
    "seq_len": 48,
    "enable_bucketing": True,
    "context_encoding_buckets": [8, 16],
    "token_generation_buckets": [24, 48],
}
PREFIX = {**PAGED, **SIZES, "max_context_length": 16, "is_prefix_caching": True}
CHUNKS = {
    **PAGED,
    **SIZES,
    "max_context_length": 16,
    "batch_size": 1,
    "chunked_prefill_config": {"max_num_seqs": 4},
}
TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
OTHER = [*TEXT[:8], 21, 22, 23]


def close(given: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(given), wanted, atol=3e-5)


def slot(blocks: Sequence[int], position: int) -> int:
    return blocks[position // BLOCK] * BLOCK + position % BLOCK


def prefix_call(
    texts: Sequence[Sequence[int]],
    tables: Sequence[Sequence[int]],
    computed: Sequence[int],
    *,
    whole: bool = True,
) -> dict[str, Any]:
    """A call as vLLM makes it: prompts with their prefix, slots of new tokens, table padded by 0.

    ``whole=False`` leaves the tokens in the cache out of ``input_ids``.
    """
    rows = zip(texts, computed, strict=True)
    begins = [0 if whole and len(text) > held + 1 else held for text, held in rows]
    parts = [text[begin:] for text, begin in zip(texts, begins, strict=True)]
    width = max(map(len, parts))
    made: dict[str, Any] = {
        "input_ids": np.zeros((len(texts), width), np.int64),
        "position_ids": np.zeros((len(texts), width), np.int64),
        "slot_mapping": np.full((len(texts), 64), -1, np.int64),
        "block_table": np.zeros((len(texts), 16), np.int64),
        "full_context_lens": np.array([[len(text)] for text in texts]),
        "computed_context_lens": np.array([[held] for held in computed]),
    }
    for row, (part, begin) in enumerate(zip(parts, begins, strict=True)):
        made["input_ids"][row, : len(part)] = part
        made["position_ids"][row, : len(part)] = np.arange(begin, begin + len(part))
        new = [slot(tables[row], at) for at in range(computed[row], len(texts[row]))]
        made["slot_mapping"][row, : len(new)] = new
        made["block_table"][row, : len(tables[row])] = tables[row]
    return made


def chunk_call(
    texts: Sequence[Sequence[int]], tables: Sequence[Sequence[int]], computed: Sequence[int]
) -> dict[str, Any]:
    """A call in the layout of chunked prefill: new tokens of all sequences in one row."""
    rows = list(zip(texts, tables, computed, strict=True))
    width = max(map(len, tables))
    return {
        "input_ids": np.array([[token for text, _, held in rows for token in text[held:]]]),
        "position_ids": np.array([[at for text, _, held in rows for at in range(held, len(text))]]),
        "slot_mapping": np.array(
            [slot(table, at) for text, table, held in rows for at in range(held, len(text))]
        ),
        "block_table": np.array([[*table, *[0] * (width - len(table))] for table in tables]),
        "full_context_lens": np.array([len(text) for text in texts]),
        "computed_context_lens": np.array(computed),
    }


class Launches:
    """The tokens of each launch, padding included."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, ...]] = []

    def before_launch(self, session: Session, program: str, inputs: Mapping[str, Any]) -> None:
        self.sizes.append(inputs["tokens"].shape)

    def after_launch(self, session: Session, program: str) -> None:
        pass


@pytest.fixture(scope="module")
def prefix(llama: Checkpoint) -> Any:
    return open_application(llama.path, **PREFIX)


@pytest.fixture(scope="module")
def chunked(llama: Checkpoint) -> Any:
    return open_application(llama.path, **CHUNKS)


def check_shared_prefix(model: Any, llama: Checkpoint) -> None:
    """Two sequences with two blocks in common, then steps of both."""
    model.reset_kv_cache()
    tables = [[7, 3, 11, 20], [7, 3, 2, 0]]
    seen = Launches()
    model.running().session.observers.append(seen)
    out = model.forward(**prefix_call([TEXT], tables[:1], [0]), seq_ids=np.array([1]))
    close(out.logits[0, 0], llama.logits(TEXT))
    first, seen.sizes = seen.sizes, []
    out = model.forward(**prefix_call([OTHER], tables[1:], [8]), seq_ids=np.array([0]))
    close(out.logits[0, 0], llama.logits(OTHER))
    # Of eleven tokens three are computed, in the smaller program.
    assert [size[1] for size in first] == [16]
    assert [size[1] for size in seen.sizes] == [8]
    model.running().session.observers.remove(seen)
    texts = [list(OTHER), list(TEXT)]
    for token in range(40, 45):
        for text in texts:
            text.append(token)
        held = [len(text) - 1 for text in texts]
        out = model.forward(**prefix_call(texts, tables[::-1], held), seq_ids=np.array([0, 1]))
        for row, text in enumerate(texts):
            close(out.logits[row, 0], llama.logits(text))


def test_a_shared_prefix_is_computed_once(prefix: Any, llama: Checkpoint):
    check_shared_prefix(prefix, llama)


@pytest.mark.slow
def test_a_shared_prefix_on_two_ranks(llama: Checkpoint):
    check_shared_prefix(open_application(llama.path, **PREFIX, tp_degree=2), llama)


def test_the_caller_s_slots_are_written_and_read(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    one, other = [7, 3, 11], [2, 9, 1]
    prefix.forward(**prefix_call([TEXT, OTHER], [one, other], [0, 0]))
    # The rows of a call are those of its tables, whatever rows they had before.
    texts = [[*OTHER, 33], [*TEXT, 34]]
    out = prefix.forward(**prefix_call(texts, [other, one], [11, 11]))
    for row, text in enumerate(texts):
        close(out.logits[row, 0], llama.logits(text))
    # What another sequence has in the blocks is read.
    out = prefix.forward(**prefix_call([[*TEXT, 35]], [other], [11]))
    close(out.logits[0, 0], llama.logits([*OTHER, 35]))


def test_prompts_in_parts_and_beyond_the_context_programs(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    text = [(7 * at) % 290 + 3 for at in range(40)]
    table = [5, 1, 9, 22, 13, 0, 17, 4, 8, 2, 3]
    for held, end in ((0, 6), (6, 31), (31, 39), (39, 40)):
        call = prefix_call([text[:end]], [table], [held], whole=held != 6)
        out = prefix.forward(**call)
        close(out.logits[0, 0], llama.logits(text[:end]))


def test_a_table_of_the_prefix_alone_and_masks_do(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    call = prefix_call([TEXT, OTHER], [[7, 3, 11], [2, 9, 1]], [0, 0])
    out = prefix.forward(**call, attention_mask=np.ones((2, 11), np.int64))
    close(out.logits[1, 0], llama.logits(OTHER))
    call = prefix_call([[*OTHER, 40, 41]], [[7, 3, 5, 6]], [8])
    call["block_table"] = np.array([[7, 3, -1]])
    out = prefix.forward(**call, attention_mask=np.ones((1, 13), np.int64))
    close(out.logits[0, 0], llama.logits([*OTHER, 40, 41]))


def test_a_sequence_reads_what_an_earlier_one_of_the_call_writes(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    texts = [TEXT, OTHER, [50, 51]]
    out = prefix.forward(**prefix_call(texts, [[7, 3, 11], [7, 3, 2], [0]], [0, 8, 0]))
    for row, text in enumerate(texts):
        close(out.logits[row, 0], llama.logits(text))


def test_a_sequence_reads_what_a_later_one_of_the_call_overwrites(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    prefix.forward(**prefix_call([TEXT], [[7, 3, 11]], [0]))
    # Both have one token, so that they would run at once.
    call = prefix_call([[*TEXT, 33], [60]], [[7, 3, 11], [7]], [11, 0])
    out = prefix.forward(**call, attention_mask=np.array([[1] * 11, [1, *[0] * 10]]))
    close(out.logits[0, 0], llama.logits([*TEXT, 33]))
    close(out.logits[1, 0], llama.logits([60]))


def check_chunks(model: Any, llama: Checkpoint) -> None:
    """Chunks of several sequences, some of which decode, as ``generate_with_chunked_prefill``."""
    model.reset_kv_cache()
    texts = [TEXT, [30, 31], [*TEXT[:4], 60, 61, 62], [70]]
    tables = [[7, 3, 11, 20], [2, 9], [7, 1, 12], [0, 15]]
    out = model.forward(**chunk_call([TEXT[:4], [30]], tables[:2], [0, 0]))
    assert out.logits.shape == (1, 2, 300)
    close(out.logits[0, 0], llama.logits(TEXT[:4]))
    close(out.logits[0, 1], llama.logits([30]))
    # A chunk, a token, a sequence that shares a block, and a prompt of one token.
    out = model.forward(**chunk_call(texts, tables, [4, 1, 4, 0]), seq_ids=np.array([0]))
    for row, text in enumerate(texts):
        close(out.logits[0, row], llama.logits(text))
    # One sequence of the table rests.
    grown = [[*text, 80] for text in texts]
    grown[1] = texts[1]
    out = model.forward(**chunk_call(grown, tables, list(map(len, texts))))
    assert not out.logits[0, 1].any()
    for row in (0, 2, 3):
        close(out.logits[0, row], llama.logits(grown[row]))


def test_chunks_side_by_side(chunked: Any, llama: Checkpoint):
    check_chunks(chunked, llama)


@pytest.mark.slow
def test_chunks_on_two_ranks(llama: Checkpoint):
    check_chunks(open_application(llama.path, **CHUNKS, tp_degree=2), llama)


def refusal(model: Any, call: Mapping[str, Any], code: str = "GG0402") -> str:
    """The error of a call, which launches nothing and changes no row."""
    session = model.running().session
    before, lengths = session.changes, session.lengths.copy()
    with pytest.raises(GraphgenError) as caught:
        model.forward(**call)
    assert caught.value.code == code
    assert session.changes == before
    np.testing.assert_array_equal(session.lengths, lengths)
    return caught.value.what


def changed(call: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """A call with other values: arrays, or index and value of one element."""
    made = {name: np.copy(value) for name, value in call.items()}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            made[name][value[0]] = value[1]
        else:
            made[name] = value
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block_table": ((1, 2), 24)}, "block_table of row 1 has block 24; the cache has blocks"),
        ({"block_table": ((1, 0), -2)}, "block_table of row 1 has block -2"),
        ({"slot_mapping": ((0, 3), 96)}, "slot_mapping of row 0 has slot 96 for a token"),
        ({"slot_mapping": ((0, 3), 30)}, "slot 30 for position 3, whose slot is 31: block 7"),
        ({"slot_mapping": ((0, 4), 40)}, "slot 40 for position 4, whose slot is 12: block 3 of"),
        ({"slot_mapping": ((0, 10), -1)}, "row 0 has 10 slots, and full_context_lens 11"),
        ({"slot_mapping": ((0, 4), -1)}, "slot_mapping of row 0 has -1 between slots"),
        ({"block_table": ((1, 1), 2)}, "slot_mapping of row 1 has slot 36 for position 4"),
        ({"full_context_lens": ((1, 0), 12)}, "row 1 end at column 12 by its full_context_lens"),
        ({"full_context_lens": ((1, 0), 0)}, "full_context_lens of row 1 is 0, computed"),
        ({"full_context_lens": ((1, 0), 10)}, "position_ids of row 1 go on to 10"),
        ({"computed_context_lens": ((0, 0), -1)}, "computed_context_lens -1"),
        ({"computed_context_lens": ((0, 0), 11)}, "full_context_lens of row 0 is 11, computed"),
        ({"computed_context_lens": ((0, 0), 4)}, "slot 28 of its position 0 was not written"),
        ({"position_ids": ((1, 5), 9)}, "position_ids of row 1 has 9 for its token 5"),
        ({"attention_mask": np.ones((2, 8), int)}, "attention_mask of row 0 has 8 tokens, and"),
        ({"full_context_lens": np.array([11])}, "block_table has 2 rows, full_context_lens 1"),
        ({"slot_mapping": np.arange(22)}, r"slot_mapping is [22]"),
        ({"block_table": np.arange(2)}, "block_table is int64 [2], not integers with 2"),
        ({"position_ids": np.zeros((2, 3), int)}, "position_ids is [2, 3], input_ids [2, 11]"),
        ({"block_table": None}, "slot_mapping of forward without block_table"),
        ({"position_ids": None}, "of forward without position_ids"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(prefix: Any, arguments: dict[str, Any], said: str):
    prefix.reset_kv_cache()
    call = prefix_call([TEXT, OTHER], [[7, 3, 11], [2, 9, 1]], [0, 0])
    assert said in refusal(prefix, changed(call, **arguments))


def test_a_first_call_that_is_refused_leaves_plain_sequences(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    prefix.forward(np.array([TEXT[:5]]))
    call = prefix_call([OTHER], [[7, 3, 11]], [0])
    refusal(prefix, {**call, "input_ids": np.full_like(call["input_ids"], 9999)}, "GG0706")
    refusal(prefix, {**call, "adapter_ids": ["a"]}, "GG0705")
    out = prefix.forward(np.array([[TEXT[5]]]), position_ids=np.array([[5]]))
    close(out.logits[0, 0], llama.logits(TEXT[:6]))
    prefix.reset_kv_cache()


def test_slots_of_a_call_that_failed_are_no_prefix(prefix: Any, monkeypatch: pytest.MonkeyPatch):
    prefix.reset_kv_cache()
    prefix.forward(**prefix_call([TEXT], [[7, 3, 11]], [0]))

    def failing(*given: object, **named: object) -> object:
        raise RuntimeError("lost")

    session = prefix.running().session
    monkeypatch.setattr(session, "step", failing, raising=True)
    with pytest.raises(RuntimeError, match="lost"):
        prefix.forward(**prefix_call([OTHER], [[7, 3, 11]], [0]))
    monkeypatch.undo()
    more = prefix_call([TEXT], [[7, 3, 11]], [8])
    assert "slot 28 of its position 0 was not written" in refusal(prefix, more)


def test_what_follows_the_last_token_is_not_read(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    call = prefix_call([TEXT], [[7, 3, 11, 24, -9]], [0])
    close(prefix.forward(**call).logits[0, 0], llama.logits(TEXT))
    prefix.reset_kv_cache()
    more = changed(prefix_call([TEXT], [[7, 3, 11]], [0]), full_context_lens=((0, 0), 9))
    more["slot_mapping"] = np.where(
        np.arange(more["slot_mapping"].shape[1]) < 9, more["slot_mapping"], -1
    )
    assert "position_ids of row 0 go on to 9" in refusal(prefix, more)


def test_tables_that_contradict_themselves_are_refused(prefix: Any):
    prefix.reset_kv_cache()
    both = prefix_call([TEXT, OTHER], [[7, 3, 11], [2, 9, 11]], [0, 0])
    assert "slot_mapping of row 0 and of row 1 both have slot 44" in refusal(prefix, both)
    twice = prefix_call([TEXT], [[7, 3, 7]], [0])
    assert "block 7 twice for its 11 tokens: [7, 3, 7]" in refusal(prefix, twice)
    long = prefix_call([list(range(3, 52))], [list(range(13))], [0])
    assert "a sequence of 49 tokens" in refusal(prefix, long, "GG0701")
    # A prefix has no slots to take the blocks from.
    prefix.forward(**prefix_call([TEXT], [[7, 3, 11]], [0]))
    call = changed(prefix_call([OTHER], [[7, 3, 2]], [8]), block_table=np.array([[7, -1, 2]]))
    assert "no block for position 4" in refusal(prefix, call)
    # More than the blocks hold: what nobody has written.
    call = prefix_call([[*TEXT, 1, 2]], [[7, 3, 11, 4]], [12])
    assert "slot 47 of its position 11 was not written" in refusal(prefix, call)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"slot_mapping": ((9,), 3)}, "slot_mapping of sequence 0 has slot 3 for position 9"),
        ({"full_context_lens": ((1,), 1)}, "leave 12 new tokens, and slot_mapping has 13 slots"),
        ({"full_context_lens": ((1,), 4)}, "sequence 1 end at column 15 by its"),
        ({"position_ids": ((0, 12), 3)}, "position_ids of sequence 1 has 3 for its token 1"),
        ({"slot_mapping": np.arange(12)}, "slot_mapping [12]"),
        ({"block_table": ((1, 0), 99)}, "block_table of sequence 1 has block 99"),
        ({"full_context_lens": ((1,), -1)}, "full_context_lens of sequence 1 is -1"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(chunked: Any, arguments: dict[str, Any], said: str):
    chunked.reset_kv_cache()
    call = chunk_call([TEXT, [30, 31]], [[7, 3, 11], [2]], [0, 0])
    assert said in refusal(chunked, changed(call, **arguments))


def test_more_sequences_than_max_num_seqs_are_refused(chunked: Any):
    chunked.reset_kv_cache()
    call = chunk_call([[at] for at in range(5)], [[at] for at in range(5)], [0] * 5)
    assert "block_table has 5 rows; the programs were compiled for 4" in refusal(chunked, call)


def test_programs_without_prefix_caching_take_no_table(llama: Checkpoint, compiled: Path):
    model = NeuronLlamaForCausalLM(llama.path, llama.config()).load(compiled)
    call = prefix_call([TEXT], [[7, 3, 11]], [0])
    assert "slot_mapping of forward needs is_prefix_caching" in refusal(model, call, "GG0903")


@pytest.mark.parametrize("kind", ["prefix", "chunked"])
def test_generate_finds_blocks_of_its_own(
    kind: str, request: pytest.FixtureRequest, llama: Checkpoint
):
    model: Any = request.getfixturevalue(kind)
    model.reset_kv_cache()
    call = prefix_call([TEXT], [[7, 3, 11]], [0])
    if kind == "chunked":
        call = chunk_call([TEXT], [[7, 3, 11]], [0])
    model.forward(**call)
    # The blocks of the caller are not taken in silence.
    assert "forward without block_table" in refusal(model, {"input_ids": np.array([[5, 6]])})
    ids = torch.tensor([[5, 6, 7], [0, 9, 10], [0, 0, 12]])
    given = {"attention_mask": (ids != 0).long(), "max_new_tokens": 12, "do_sample": False}
    end = {"eos_token_id": None, "pad_token_id": 0}
    made = HuggingFaceGenerationAdapter(model).generate(ids, **given, **end)
    for row, size in enumerate((3, 2, 1)):
        alone = llama.model.generate(
            ids[row : row + 1, 3 - size :], max_new_tokens=12, do_sample=False, **end
        )
        assert made[row, 3 - size :].tolist() == alone[0].tolist()
    # What generate has put into the blocks is no prefix of the caller's.
    held = prefix_call([OTHER], [[7, 3, 2]], [8])
    if kind == "chunked":
        held = chunk_call([OTHER], [[7, 3, 2]], [8])
    assert "was not written since the last reset()" in refusal(model, held)
    out = model.forward(**call)
    close(out.logits[0, 0], llama.logits(TEXT))


def test_checks_of_an_application_leave_the_caller_s_tables(prefix: Any, llama: Checkpoint):
    # The same block in two rows, which the rows of a check must not have.
    prefix.forward(**prefix_call([TEXT, OTHER], [[7, 3, 11], [7, 3, 2]], [0, 8]))
    inputs = {"input_ids": np.array([[5, 6, 7], [9, 10, 11]]), "attention_mask": np.ones((2, 3))}
    found = check_accuracy_logits(prefix, inputs=inputs, num_tokens_to_check=4)
    assert [len(row) for row in found] == [4, 4]


def test_tokens_of_the_device_and_hidden_states(llama: Checkpoint):
    sampling: dict[str, Any] = {"on_device_sampling_config": {"do_sample": True, "dynamic": True}}
    model = open_application(llama.path, **CHUNKS, **sampling, output_logits=True)
    texts, tables = [TEXT, [30, 31], [70]], [[7, 3, 11], [2], [0]]
    params = np.array([[1, 1.0, 1.0], [1, 1.0, 1.0], [1, 1.0, 1.0]], np.float32)
    call = chunk_call(texts, tables, [0, 0, 0])
    out = model.forward(**call, sampling_params=params)
    assert out.tokens.tolist() == [int(llama.logits(text).argmax()) for text in texts]
    call = changed(chunk_call([*texts[:1], [30, 31, 5], texts[2]], tables, [11, 2, 1]))
    out = model.forward(**call, sampling_params=params[:1])
    assert out.tokens.shape == (3,)
    # vLLM gives the rows of max_num_seqs, whatever the number of sequences.
    rows = model.running().session.rows
    again = model.forward(**call, sampling_params=np.ones((rows, 3), np.float32))
    assert again.tokens.shape == (3,)
    assert out.tokens[1] == int(llama.logits([30, 31, 5]).argmax())
    out = model.forward(**call, output_hidden_states=True)
    assert out.hidden_states[-1].shape[:2] == (1, 1)
    with torch.no_grad():
        wanted = llama.model(torch.tensor([[30, 31, 5]]), output_hidden_states=True).hidden_states
    for one, other in zip(out.hidden_states, wanted, strict=True):
        close(one[0, 0], other[0, -1].numpy())


def test_embeddings_of_a_suffix(prefix: Any, llama: Checkpoint):
    prefix.reset_kv_cache()
    prefix.forward(**prefix_call([TEXT], [[7, 3, 11]], [0]))
    call = prefix_call([OTHER], [[7, 3, 2]], [8])
    with torch.no_grad():
        embeds = llama.model.get_input_embeddings()(torch.tensor(call.pop("input_ids"))).numpy()
    out = prefix.forward(inputs_embeds=embeds, **call)
    close(out.logits[0, 0], llama.logits(OTHER))


@pytest.mark.slow
def test_a_compiled_folder_takes_tables(llama: Checkpoint, tmp_path: Path):
    options = {**PREFIX, "target": "trn2", "logical_nc_config": 1}
    config = llama.config(**options)
    NeuronLlamaForCausalLM(llama.path, config).compile(tmp_path / "made")
    found = list(tmp_path.glob("made/hlo/context_encoding_model/*/model/graph.hlo"))
    # Prompts of 8 and 16 tokens, and chunks of both over 24 and 48 slots.
    assert len(found) == 6
    model = NeuronLlamaForCausalLM(llama.path, config).load(tmp_path / "made")
    check_shared_prefix(model, llama)
    # New weights hold nothing of the old ones' blocks.
    model.load_weights(tmp_path / "made")
    held = prefix_call([OTHER], [[7, 3, 2]], [8])
    assert "was not written" in refusal(model, held)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["deepseek_v3", "gemma3_text", "gpt_oss", "llama4_text"])
def test_a_prefix_of_another_form_of_attention(family: str, tmp_path: Path):
    model = open_application(write_checkpoint(tmp_path / "model", family), family, **PREFIX)
    reference = open_reference(tmp_path / "model")
    model.forward(**prefix_call([TEXT], [[7, 3, 11]], [0]))
    out = model.forward(**prefix_call([OTHER], [[7, 3, 2]], [8]))
    with torch.no_grad():
        wanted = reference(torch.tensor([OTHER])).logits[0, -1].numpy()
    close(out.logits[0, 0], wanted)
