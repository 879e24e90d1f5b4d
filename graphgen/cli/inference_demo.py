"""The console script ``inference_demo``, with the flags of NxD Inference's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby

from graphgen.cli.command_errors import BROKEN_PIPE, USER_ERROR, report_defect
from graphgen.cli.console import abandon_stdout, write_error, write_stdout
from graphgen.errors import GraphgenError
from graphgen.version import __version__

_HELP = """Compile a model, load it, answer prompts, and measure.

Usage: {usage}

Each flag sets an attribute of NeuronConfig or a setting of the run; what is not built yet is
refused by name. The devices of AWS are not needed: programs run on the CPU.

Example:
  inference_demo --model-type llama --task-type causal-lm run --model-path model \\
      --compiled-model-path compiled --batch-size 1 --seq-len 256 --max-context-length 128 \\
      --enable-bucketing --prompt "What is gravity?" --benchmark

With --skip-compile the same command answers from the compiled folder.
"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:] if words is None else words))


def run(words: Sequence[str]) -> int:
    """Run a command line without the program's name.

    Returns:
        The exit status: 0, 1 for a mistake of the user, 70 for a defect.
    """
    try:
        if not words or "--help" in words or "-h" in words:
            write_stdout(_help())
        elif "--version" in words:
            write_stdout(f"inference_demo of graphgen {__version__}\n")
        else:
            _run(words)
    except GraphgenError as error:
        write_error(error)
        return USER_ERROR
    except BrokenPipeError:
        abandon_stdout()
        return BROKEN_PIPE
    except Exception as error:
        return report_defect(error)
    return 0


def _run(words: Sequence[str]) -> None:
    # Imported here: --help and mistakes of the grammar need no model classes.
    from graphgen.cli.demo_arguments import read_arguments

    given = read_arguments(words)
    from graphgen.cli.demo_settings import check_arguments

    check_arguments(given)
    from graphgen.cli.demo_settings import check_adapter_flags

    check_adapter_flags(given)
    from graphgen.cli.demo_draft import check_draft_flags

    check_draft_flags(given)
    from graphgen.cli.demo_run import run_demo

    run_demo(given)


def _help() -> str:
    """The help, with every flag by topic."""
    from graphgen.cli.demo_arguments import USAGE
    from graphgen.runtime.aws_config.demo_flags import CHOICES, DEMO_FLAGS, DemoFlag

    lines = [_HELP.format(usage=USAGE)]

    def shown(row: DemoFlag) -> str:
        flag = row.flag if row.form != "negatable" else f"{row.flag}, --no-{row.flag[2:]}"
        words = {"value": " X", "list": " X ...", "repeated": " X", "file": " FILE"}
        return flag + words.get(row.form, "")

    for group, rows in groupby((*CHOICES, *DEMO_FLAGS.values()), lambda row: row.group):
        lines.append(f"{group}:")
        lines += [f"  {shown(row):<48} {row.help}" for row in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
