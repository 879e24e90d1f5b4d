"""Completion in zsh from the first Tab on."""

from __future__ import annotations

from typing import cast

# zsh reads the file as the body of a function when Tab is first pressed: defining the completion
# there offers nothing that first time.
_FIRST_TAB = """
if [[ "$funcstack[1]" == "_%(prog_name)s" ]]; then
  %(complete_func)s "$@"
fi
"""


def complete_at_first_tab() -> None:
    """Let the script that typer gives zsh complete when it is loaded, too."""
    from typer import _completion_shared as shared

    known = "_completion_scripts"
    scripts = cast(dict[str, str], getattr(shared, known, {}))
    script = scripts.get("zsh", "")
    if script and "funcstack" not in script:
        scripts["zsh"] = script.rstrip("\n") + "\n" + _FIRST_TAB
