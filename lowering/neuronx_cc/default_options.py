"""Options that every program gets: by phase, sizes and number formats, and by family.

They are those of NxD Inference (``models/model_wrapper.py``), with one difference: what a family
adds is merged, so that it takes nothing away. There a family's text replaces all defaults, and
logical cores, tiling factor, long context and 8-bit floats are lost with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphgen.lowering.neuronx_cc.command_line import CommandLine, OptionLayer, missing
from graphgen.lowering.neuronx_cc.option_text import read_options

# Sequences from here on have no strided DMA in prefill programs with logical cores of two.
VERY_LONG = 128 * 1024
# Sequences from here on get the options of long contexts.
LONG = 32 * 1024
# Phases with too little work between collectives to tile it: a token, or several steps a launch.
_NOT_TILED = ("decode", "steps")


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that the options of a program depend on.

    Attributes:
        phase: of the program, such as ``prefill``.
        target: such as ``trn2``.
        lnc: physical cores of a logical one.
        longest: positions of a sequence.
        long_context: the options of long contexts are wanted.
        eight_bit_floats: weights or caches hold 8-bit floats.
        family: the model type of the configuration, such as ``mixtral``.
        shared_layers: layers of the program that call one function.
    """

    phase: str
    target: str
    lnc: int
    longest: int
    long_context: bool = False
    eight_bit_floats: bool = False
    family: str = ""
    shared_layers: int = 0


def default_layers(at: Situation) -> list[OptionLayer]:
    """The layers of options of a program, in the order in which they are merged."""
    family = _OF_FAMILY.get(at.family, "")
    rows = [(origin, text(at)) for origin, text in _RULES]
    rows.append((f"family {at.family}", family))
    return [OptionLayer(origin, text) for origin, text in rows if text]


def _tensorizer(at: Situation) -> str:
    factor = 1 if at.phase in _NOT_TILED else 2
    # Merging in a later layer keeps the place of an option, so the order is the published one.
    strided = "" if _unstrided(at) else " --vectorize-strided-dma"
    return (
        "--tensorizer-options='--enable-ccop-compute-overlap "
        f"--cc-pipeline-tiling-factor={factor}{strided}'"
    )


def _unstrided(at: Situation) -> bool:
    return at.phase == "prefill" and at.lnc == 2 and at.longest >= VERY_LONG


def _verified(inner: str = "") -> str:
    return f"--internal-hlo2tensorizer-options='{inner}'"


# Modular flow: repeated parts with at least that number of multiplications are compiled once.
_MODULES = "--modular-flow-mac-threshold=10"
_RULES: tuple[tuple[str, Callable[[Situation], str]], ...] = (
    ("every program", lambda at: "--auto-cast=none --model-type=transformer"),
    (
        "long contexts",
        lambda at: (
            "--internal-disable-fma-on-ios --disable-mixed-precision-accumulation"
            if at.long_context
            else ""
        ),
    ),
    ("collectives by phase", _tensorizer),
    ("logical cores", lambda at: f"--lnc={at.lnc}"),
    ("level by phase", lambda at: "-O1" if at.phase == "prefill" else "-O2"),
    # Options that let layers be compiled once: the level and the threshold of prefill programs.
    ("shared layers", lambda at: "-O1" if at.shared_layers > 1 else ""),
    ("target", lambda at: f"--target={at.target}"),
    (
        "prefill programs",
        lambda at: _verified(_MODULES) if at.phase == "prefill" else "",
    ),
    (
        "shared layers",
        lambda at: _verified(_MODULES) if at.shared_layers > 1 else "",
    ),
    (
        "8-bit floats",
        lambda at: (
            _verified("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3") if at.eight_bit_floats else ""
        ),
    ),
    ("every program", lambda at: _verified("--verify-hlo=true")),
)

# Options that NxD Inference's model classes of a family add to the defaults.
_OF_FAMILY: Mapping[str, str] = dict.fromkeys(
    ("mixtral", "dbrx"),
    "--enable-mixed-precision-accumulation --internal-enable-dge-levels vector_dynamic_offsets",
)
# The defaults kept in the fixed texts of NxD Inference's model classes: one level and
# one tiling factor for all phases, no logical cores.
_FIXED = (
    "--auto-cast=none --model-type=transformer -O1 --tensorizer-options="
    "'--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=2 --vectorize-strided-dma' "
    "--internal-hlo2tensorizer-options='--verify-hlo=true'"
)
_FIXED_FAMILIES = (
    *("qwen2", "mixtral", "dbrx", "gemma3", "gemma3_text", "mllama", "pixtral", "whisper"),
    *("qwen2_vl", "qwen3_vl"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """An option that NxD Inference drops for a family and this compiler keeps.

    Attributes:
        option: as on the command line, with its list.
        origin: the layer that gives it here.
        why: the explanation.
    """

    option: str
    origin: str
    why: str


def differences(at: Situation, command: CommandLine) -> list[Difference]:
    """The options of a program that NxD Inference's class of the family drops."""
    if at.family not in _FIXED_FAMILIES:
        return []
    fixed = read_options(f"{_FIXED} {_OF_FAMILY.get(at.family, '')} --target={at.target}")
    why = (
        f"NxD Inference's class of {at.family} returns a fixed text in place of the defaults, "
        "which drops it; here families add to the defaults"
    )
    found: list[Difference] = []
    for item in missing(command, fixed):
        inside = item.option.inside
        text = f"{inside}='{item.text}'" if inside else item.text
        found.append(Difference(text, item.origin, why))
    return found
