"""Write ``docs/aws-configuration.md``: ``python docs/source/aws_configuration.py``."""

from __future__ import annotations

from pathlib import Path

from docs.source.markdown_table import markdown_table
from graphgen.runtime.aws_config.attribute import Attribute, effect_text
from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES, BASES, owners
from graphgen.runtime.aws_config.combination_rules import NOTES, RULES
from graphgen.runtime.aws_config.environment import VARIABLES
from graphgen.runtime.aws_config.strict_config import default_text

INTRODUCTION = """\
# Configurations of AWS's libraries

The configurations of NxD Inference (`NeuronConfig` and its parts) and of transformers-neuronx
(`tnx.`) have the names and attributes that AWS documents. They are strict: an unknown name is an
error with the nearest one, a value of another kind is an error, and so is an impossible
combination of values. Hyphens in names are underscores. No attribute is accepted and ignored: each
has an effect on the target, or states why it has none.

```python
from graphgen.runtime.aws.nxdi import NeuronConfig, OnDeviceSamplingConfig

config = NeuronConfig(
    tp_degree=2,
    seq_len=512,
    enable_bucketing=True,
    on_device_sampling_config=OnDeviceSamplingConfig(dynamic=True),
)
```

A configuration can be assigned to until something uses it: an `InferenceConfig` freezes it, and
`copy.deepcopy` makes a copy that can be changed again. Building a model changes no configuration.

`graphgen config FILE` shows every attribute of a `neuron_config.json`: its value, whether it came
from the file, from a default, from other attributes or from a variable, its effect on a target, and
the passes that follow. `graphgen config --list` prints the tables below.
[aws-compatibility.md](aws-compatibility.md) and
[aws-transformers-neuronx.md](aws-transformers-neuronx.md) have the import paths.

## Effects

| effect | meaning |
|---|---|
| compile setting | sets a field of the compile configuration (`graphgen pipeline default`) |
| at run time | changes loading or generation, not the programs |
| neuronx-cc | becomes an argument of the compiler |
| describes the model | states what modules compute; a family must say the same |
| read with | is read together with another attribute |
| no effect | changes nothing, for the reason given; a note says so when it is used |
| refused | is an error, unless its value requests nothing: the feature is not built |

A switch that only changes how a Neuron device computes has no effect on the CPU, and is refused
when a model is compiled for a Neuron target. A switch that changes numbers, tokens or memory on the
CPU is never without effect.
"""

FILES = """\
## neuron_config.json

`compile` and `InferenceConfig.save` write the file that AWS's libraries write, and read theirs:
sorted keys, indented by 2, element types as short names (`bfloat16`), a class as
`{"__module__", "__name__"}`, nested configurations as objects. An attribute whose value is the one
that follows from others goes on following from them after it is read. An unknown key is an error
with the nearest name. A class is looked up among those of this package and those that the program
has imported; reading a file imports nothing else.
"""


def main() -> None:
    """Write the page beside the folder of this file."""
    path = Path(__file__).resolve().parents[1] / "aws-configuration.md"
    path.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page."""
    parts = [
        INTRODUCTION,
        *(_class(owner) for owner in owners()),
        _rules(),
        _notes(),
        _decisions(),
        _variables(),
        FILES,
    ]
    return "\n".join(parts)


def _class(owner: str) -> str:
    """The table of one class."""
    rows = [row for row in ATTRIBUTES if row.owner == owner]
    base = f"Has the attributes of `{BASES[owner]}` too.\n\n" if owner in BASES else ""
    cells = [
        [f"`{row.name}`", _values(row), _default(row), row.doc, *_effects(row)] for row in rows
    ]
    heads = ["attribute", "values", "default", "meaning", "on the CPU", "on Neuron targets"]
    return f"## {owner}\n\n{base}{markdown_table(heads, cells)}"


def _values(row: Attribute) -> str:
    return f"old name of `{row.replaces}`" if row.replaces else row.kind.noun


def _default(row: Attribute) -> str:
    return f"`{default_text(row)}`" if not row.replaces else ""


def _effects(row: Attribute) -> list[str]:
    """The effects on the CPU and on Neuron targets; values that are refused are named."""
    unbuilt = "".join(f"; `{value}` is refused" for value in row.unbuilt)
    neuron = "the same" if row.neuron is None else effect_text(row.neuron)
    served = f"; in `graphgen serve`: {row.served}" if row.served else ""
    return [effect_text(row.cpu) + unbuilt + served, neuron]


def _rules() -> str:
    """Impossible combinations."""
    cells = [[f"`{rule.owner}`", rule.rule, rule.remedy] for rule in RULES]
    return f"## Impossible combinations\n\n{markdown_table(['class', 'rule', 'remedy'], cells)}"


def _notes() -> str:
    """Attributes without effect in some configurations."""
    cells = [[f"`{note.owner}.{note.attributes[0]}`", note.rule] for note in NOTES]
    return (
        "## Attributes without effect in some configurations\n\n"
        "They are accepted with a note.\n\n" + markdown_table(["attribute", "where"], cells)
    )


def _decisions() -> str:
    """The defaults and meanings that the documents contradict each other in."""
    cells = [[f"`{row.owner}.{row.name}`", row.decision] for row in ATTRIBUTES if row.decision]
    return "## Contradictions in AWS's documents\n\n" + markdown_table(
        ["attribute", "decision and reason"], cells
    )


def _variables() -> str:
    """Environment variables."""
    cells = [[f"`{row.name}`", row.doc, effect_text(row.effect)] for row in VARIABLES]
    return (
        "## Environment variables\n\n"
        "`NEURON_LOGICAL_NC_CONFIG` replaces `logical_nc_config`, as in AWS's library, with a\n"
        "note where both are given. It is read when a configuration is made.\n\n"
        + markdown_table(["variable", "AWS's meaning", "effect here"], cells)
    )


if __name__ == "__main__":
    main()
