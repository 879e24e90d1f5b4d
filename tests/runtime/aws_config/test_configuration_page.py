"""docs/aws-configuration.md names every attribute and variable, and its program runs."""

from __future__ import annotations

import re
from pathlib import Path

from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES
from graphgen.runtime.aws_config.environment import VARIABLES

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_has_every_attribute_and_variable():
    text = (DOCS / "aws-configuration.md").read_text(encoding="utf-8")
    assert [row.name for row in ATTRIBUTES if f"`{row.name}`" not in text] == []
    assert [row.name for row in VARIABLES if f"`{row.name}`" not in text] == []


def test_the_program_of_the_page_runs():
    text = (DOCS / "aws-configuration.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(program, "aws-configuration.md", "exec"), space)
    assert str(space["config"]).startswith("NeuronConfig(")
