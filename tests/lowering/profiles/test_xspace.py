"""Recordings of profilers: thunks of CPUs, kernels of GPUs, lines of TPUs, traces of Chrome."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.limits import change_limits
from graphgen.lowering.profiles.open_profile import find_recording, has_thunks, read_recording
from graphgen.lowering.profiles.program_times import ProgramTimes, program_times
from graphgen.lowering.profiles.recording import ProfileRecording
from graphgen.lowering.profiles.trace_events import read_trace
from graphgen.lowering.profiles.xspace import looks_like_xspace, read_xspace
from tests.oracles.xspace import Plane, Stat, xspace

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "docs/examples/recurrent.xplane.pb.gz"
TRACED = ROOT / "docs/examples/recurrent.trace.json.gz"
US = 1_000_000


def thunk(op: str, run: int = 1, made: int = 0, **more: Stat) -> dict[str, Stat]:
    return {
        "hlo_op": op,
        "hlo_module": "jit_f",
        "program_id": 7,
        "run_id": run,
        "device_ordinal": 0,
        "_pt": 0,
        "_p": made,
        **more,
    }


def only(recording: ProfileRecording) -> ProgramTimes:
    (found,) = program_times(recording)
    return found


def seconds(times: ProgramTimes) -> dict[str, float]:
    """Microseconds of each op."""
    return {op.name: round(op.seconds * 1e6, 6) for op in times.ops}


def test_thunks_of_a_cpu_have_their_own_time_on_each_thread():
    host = Plane("/host:CPU")
    host.line(
        "tf_XLAPjRtCpuClient/1",
        [
            ("ThunkExecutor::Execute", 0, 100 * US, {}),
            ("while.1", 0, 50 * US, thunk("while.1", made=1)),
            ("add.2", 10 * US, 15 * US, thunk("add.2", made=2)),
            ("add.2", 30 * US, 15 * US, thunk("add.2", made=3)),
            ("end: while.1", 50 * US, 1, {"_ct": 0, "_c": 1}),
            ("dot.3", 60 * US, 5 * US, thunk("dot.3", made=4)),
        ],
        start=5,
    )
    # The product goes on elsewhere.
    host.line("tf_XLAEigen/2", [("end: dot.3", 100 * US, 1, {"_ct": 0, "_c": 4})], start=5)
    times = only(read_xspace(xspace(host)))
    assert times.program == "jit_f(7)"
    assert seconds(times) == {"while.1": 20, "add.2": 30, "dot.3": 40}
    assert {op.name: op.times for op in times.ops} == {"while.1": 1, "add.2": 2, "dot.3": 1}
    assert [op.inside for op in times.ops] == [pytest.approx(30e-6), 0, 0]
    assert times.runs == [pytest.approx(100e-6)]
    assert times.total == pytest.approx(90e-6)


def test_a_loop_whose_body_runs_elsewhere_waits_for_it():
    host = Plane("/host:CPU")
    host.line(
        "one",
        [
            ("while.1", 0, 20 * US, thunk("while.1", made=1)),
            ("add.2", 5 * US, 10 * US, thunk("add.2", made=2)),
        ],
    )
    host.line(
        "two",
        [
            ("dot.3", 25 * US, 40 * US, thunk("dot.3", made=3)),
            ("end: while.1", 70 * US, 1, {"_ct": 0, "_c": 1}),
        ],
    )
    times = only(read_xspace(xspace(host)))
    # 10 before the end on its own thread, 5 until the product begins, 5 after it.
    assert seconds(times) == {"while.1": 20, "add.2": 10, "dot.3": 40}


def test_runs_are_told_apart_by_their_numbers_and_averaged():
    host = Plane("/host:CPU", refer=False)
    host.line(
        "one",
        [
            ("add.2", 0, 10 * US, thunk("add.2", run=1)),
            ("add.2", 100 * US, 30 * US, thunk("add.2", run=2)),
        ],
    )
    times = only(read_xspace(xspace(host)))
    assert [round(run * 1e6) for run in times.runs] == [10, 30]
    assert (seconds(times), times.counted) == ({"add.2": 20}, 2)


def test_lines_of_a_tpu_have_instructions_inside_of_modules():
    device = Plane("/device:TPU:0")
    device.own = device.stats(
        6, {"peak_teraflops_per_second": 275.0, "peak_hbm_bw_gigabytes_per_second": 1200.0}
    )
    device.kind("%fusion.1 = f32[8]{0} fusion(%p), kind=kLoop", "fusion.1")
    device.line("XLA Modules", [("jit_f(9)", 0, 30 * US, {}), ("jit_f(9)", 50 * US, 30 * US, {})])
    fusion = "%fusion.1 = f32[8]{0} fusion(%p), kind=kLoop"
    long = "%dot.2 = f32[8]{0} dot(%p, %q)"
    device.line(
        "XLA Ops",
        [
            *((fusion, 0, 10 * US, {}), (long, 10 * US, 20 * US, {})),
            *((fusion, 50 * US, 10 * US, {}), (long, 60 * US, 20 * US, {})),
        ],
    )
    # Lines of other tools have the same names and are not counted twice.
    device.line("TensorFlow Ops", [(fusion, 0, 10 * US, {"hlo_op": "fusion.1"})])
    recording = read_xspace(xspace(device))
    assert recording.rates is not None
    assert (recording.rates.flops, recording.rates.bandwidth) == (275e12, 1200e9)
    times = only(recording)
    assert (times.program, len(times.runs)) == ("jit_f(9)", 2)
    assert seconds(times) == {"fusion.1": 10, "dot.2": 20}


def test_kernels_of_a_gpu_name_their_instruction():
    device = Plane("/device:GPU:0")
    device.own = device.stats(
        6, {"memory_bandwidth": 900 * 10**9, "peak_teraflops_per_second": 1.0}
    )
    stats: dict[str, Stat] = {"hlo_op": "fusion.1", "hlo_module": "jit_f", "program_id": 3}
    device.line(
        "Stream #1", [("kernel_a", 0, 10 * US, stats), ("kernel_b", 10 * US, 5 * US, stats)]
    )
    recording = read_xspace(xspace(device))
    times = only(recording)
    assert times.program == "jit_f(3)"
    assert recording.rates is not None
    assert recording.rates.bandwidth == 900e9
    # Nothing says which run a kernel is of: each begins with the first of the rarest op.
    assert sum(op.seconds * len(times.runs) for op in times.ops) == pytest.approx(15e-6)


def test_runs_without_numbers_begin_with_the_op_that_ran_least_often():
    rows: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "XLA Ops"}}
    ]
    for run in range(3):
        start = 1000 * run
        rows += [
            {"ph": "X", "pid": 1, "tid": 2, "ts": start, "dur": 4, "name": "copy.1"},
            *(
                {"ph": "X", "pid": 1, "tid": 2, "ts": start + 10 * at, "dur": 5, "name": "add.2"}
                for at in (1, 2)
            ),
        ]
    times = only(read_trace(json.dumps({"traceEvents": [*rows, {}, 3]}).encode()))
    assert len(times.runs) == 3
    assert seconds(times) == {"copy.1": 4, "add.2": 10}
    assert times.runs == [pytest.approx(25e-6)] * 3


def test_both_forms_of_one_recording_have_the_same_times():
    one, other = only(read_recording(RECORDED)), only(read_recording(TRACED))
    assert (one.program, other.program) == ("jit_forward(24)", "jit_forward")
    assert len(one.runs) == 2
    assert other.runs == pytest.approx(one.runs, rel=1e-6)
    assert seconds(other) == pytest.approx(seconds(one), rel=1e-6)
    turns = {op.name: op.times for op in one.ops}
    assert turns["while.6"] == 2
    assert turns["add_tanh_fusion"] == 2 * 16
    assert [one.program] == [name for name in read_recording(RECORDED).modules if "forward" in name]
    # The ops fill a run.
    assert 0.9 * one.seconds < one.total <= one.seconds


def test_the_newest_recording_of_a_folder(tmp_path: Path):
    for time in ("2026_01_02", "2026_01_10"):
        folder = tmp_path / "plugins/profile" / time
        folder.mkdir(parents=True)
        (folder / "h.xplane.pb").write_bytes(b"")
        (folder / "h.trace.json.gz").write_bytes(b"")
    assert find_recording(tmp_path).parent.name == "2026_01_10"
    assert find_recording(tmp_path).name == "h.xplane.pb"
    with pytest.raises(GraphgenError, match="no recording is in the folder"):
        find_recording(tmp_path / "plugins")
    assert find_recording(RECORDED) == RECORDED


@pytest.mark.parametrize(
    ("name", "data", "code", "said"),
    [
        ("x.xplane.pb", b"\x0a\xff\x01", "GG0801", "not a profile of XLA"),
        ("x.xplane.pb", b"", "GG0705", "has no events of HLO instructions"),
        ("x.xplane.pb", xspace(Plane("/host:CPU")), "GG0705", "has no events"),
        ("x.trace.json", b'{"traceEvents": 3}', "GG0705", "it has no list traceEvents"),
        ("x.trace.json", b'{"traceEvents": [', "GG0705", "is not a trace"),
        ("x.trace.json.gz", b"\x1f\x8b\x08junk", "GG0705", "gzip stream is damaged"),
        ("x.trace.json.gz", TRACED.read_bytes()[:-9], "GG0705", "ends too early"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, data: bytes, code: str, said: str):
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(GraphgenError, match=said) as found:
        read_recording(file)
    assert found.value.code == code


def test_what_unpacks_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_LIMITS", "")
    change_limits("profile-bytes=60000")
    with pytest.raises(GraphgenError, match=r"--limits profile-bytes=N"):
        read_recording(TRACED)


def test_files_are_known_by_their_content(tmp_path: Path):
    plain = tmp_path / "somewhere"
    host = Plane("/host:CPU")
    plain.write_bytes(xspace(host))
    assert has_thunks(plain)
    plain.write_bytes(TRACED.read_bytes())
    assert has_thunks(plain)
    plain.write_bytes(b"HloModule m\n")
    assert not has_thunks(plain)
    (inner,) = [
        data for name, data in read_recording(RECORDED).modules.items() if "forward" in name
    ]
    assert not looks_like_xspace(inner)


def test_events_that_overlap_on_a_thread_count_once():
    host = Plane("/host:CPU")
    host.line(
        "one",
        [
            ("add.2", 0, 10 * US, thunk("add.2")),
            ("add.2", 5 * US, 10 * US, thunk("add.2")),
            ("dot.3", -5 * US, -3, thunk("dot.3")),
        ],
    )
    times = only(read_xspace(xspace(host)))
    found = seconds(times)
    assert found["add.2"] == 15
    assert found["dot.3"] == 0
    assert all(a <= b for a, b in pairwise(sorted(found.values())))
