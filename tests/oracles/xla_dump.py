"""A small dump folder as XLA writes it."""

from __future__ import annotations

from pathlib import Path

NAME = "module_0003.jit_step"
_LAYER = 'metadata={op_name="jit(step)/%s"}'
BEFORE = f"""HloModule jit_step, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}

ENTRY main {{
  w = f32[16,16] parameter(0), {_LAYER % "w"}
  x = f32[16,16] parameter(1), {_LAYER % "x"}
  d = f32[16,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {_LAYER % "dot"}
  n = f32[16,16] negate(d), {_LAYER % "neg"}
  m = f32[16,16] negate(n), {_LAYER % "neg"}
  t = f32[16,16] tanh(m), {_LAYER % "tanh"}
  ROOT s = f32[16,16] subtract(w, t), {_LAYER % "sub"}
}}
"""
SIMPLER = BEFORE.replace("tanh(m)", "tanh(d)")
SIMPLER = "\n".join([line for line in SIMPLER.splitlines() if "negate" not in line]) + "\n"
AFTER = f"""HloModule jit_step, is_scheduled=true, \
input_output_alias={{ {{}}: (0, {{}}, may-alias) }}

fused {{
  p = f32[16,16] parameter(0)
  q = f32[16,16] parameter(1)
  t.1 = f32[16,16] tanh(q), {_LAYER % "tanh"}
  ROOT s.1 = f32[16,16] subtract(p, t.1), {_LAYER % "sub"}
}}

ENTRY main {{
  w = f32[16,16] parameter(0), {_LAYER % "w"}
  x = f32[16,16] parameter(1), {_LAYER % "x"}
  d = f32[16,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {_LAYER % "dot"}
  ROOT f = f32[16,16] fusion(w, d), kind=kLoop, calls=fused, {_LAYER % "sub"}
}}
"""
ALLOCATIONS = """BufferAssignment:
allocation 0: size 1024, parameter 0, shape |f32[16,16]| at ShapeIndex {}, maybe-live-out:
 value: <1 w @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <4 f @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 1: size 1024, parameter 1, shape |f32[16,16]| at ShapeIndex {}:
 value: <2 x @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 2: size 1024, preallocated-temp:
 value: <3 d @0> (size=1024,offset=0): f32[16,16]{1,0}
"""
RANGES = """HloLiveRange (max 4):
  InstructionSequence:
    0:w
    1:x
    2:d
    3:f
  BufferLiveRange:
    w{}:0-3
    x{}:0-4
    d{}:2-3
    f{}:3-4
  Live ranges at 3 (peak):
    d{}: 1024 bytes (cumulative: 1024 bytes)
    f{}: 1024 bytes (cumulative: 2048 bytes)
    w{}: 1024 bytes (cumulative: 3072 bytes)
    x{}: 1024 bytes (cumulative: 4096 bytes)
  Stack trace breakdown for peak usage: 4 096 bytes
"""
REPORT = (
    "Memory Space: default (color=0)\nTotal bytes: 3072 (3.0KiB)\n  cumulative_size;       size\n"
)
_PROGRAM = {
    "before_optimizations.txt": BEFORE,
    "0000.start.after_pipeline-start.before_algsimp.txt": BEFORE,
    "0001.simplification.after_algsimp.before_pipeline-end.txt": SIMPLER,
    "0002.late.passes.after_fusion.before_scheduling.txt": AFTER.replace(", is_scheduled=true", ""),
    "cpu_after_optimizations.txt": AFTER,
    "cpu_after_optimizations-buffer-assignment.txt": ALLOCATIONS,
    "cpu_after_optimizations-buffer-assignment-values.txt": "\nTotal bytes used: 3072 (3.0KiB)\n",
    "cpu_after_optimizations-live-range.txt": RANGES,
    "cpu_after_optimizations-memory-usage-report.txt": REPORT,
    "debug_options": 'xla_dump_to: "d"\nxla_dump_hlo_pass_re: ".*"\nxla_cpu_flag: 3\n',
    "kernel.ir-with-opt.ll": "; ModuleID = 'kernel'\n",
    "obj-file.kernel.o": "\x7fELF",
    "sm_8.0_gpu.thunk_sequence.txt": "000: kGemm\td\n001: kKernel\tf, x=1\n",
}
SMALL = """HloModule jit_convert_element_type
ENTRY main {
  x = s32[4] parameter(0)
  ROOT c = f32[4] convert(x)
}
"""


def write_dump(folder: Path) -> Path:
    """Write the folder: one program, two small ones, and a file of no kind."""
    folder.mkdir(parents=True)
    for ending, text in _PROGRAM.items():
        (folder / f"{NAME}.{ending}").write_text(text)
    for number in (1, 2):
        stem = f"module_000{number}.jit_convert_element_type"
        (folder / f"{stem}.before_optimizations.txt").write_text(SMALL)
    (folder / "notes.txt").write_text("of no kind\n")
    return folder
