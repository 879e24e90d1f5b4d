"""Pictures as SVG and PNG: an empty figure, and its bytes. matplotlib is loaded on first use."""

# matplotlib's arguments carry no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import PurePath
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = (".svg", ".png")
INSTALL = "pip install 'matplotlib>=3.10,<4', or graphgen-compiler[plot]"
# Colors that stay apart for color-blind readers (Okabe and Ito), by what they stand for.
COLORS = {
    "compute": "#0072b2",
    "memory": "#e69f00",
    "link": "#cc79a7",
    "weights": "#0072b2",
    "caches": "#009e73",
    "inputs": "#56b4e9",
    "temporaries": "#e69f00",
    "programs": "#999999",
    "free": "#eeeeee",
    "limit": "#d55e00",
}
_STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Text stays text, and equal figures are equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "graphgen",
}


def check_picture(name: str) -> None:
    """Refuse a picture before any work is done for it.

    Raises:
        GraphgenError: GG0704 for a name of another form, GG0705 without matplotlib.
    """
    if PurePath(name).suffix.lower() not in FORMS:
        raise GraphgenError(
            "GG0704", f"'{name}' is not the name of a picture file", help="end it with .svg or .png"
        )
    if not _installed():
        what = "pictures need matplotlib, which is not installed"
        raise GraphgenError("GG0705", what, help=INSTALL)


def _installed() -> bool:
    try:
        return find_spec("matplotlib") is not None
    except ValueError:
        # Python's word for a module that was made unavailable.
        return False


def picture(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> bytes:
    """The bytes of a figure, in the form that the end of the file's name says.

    Args:
        name: of the file, which is not written.
        inches: width and height.
        draw: fills the empty figure.
    """
    check_picture(name)
    import matplotlib
    from matplotlib.figure import Figure

    form = PurePath(name).suffix.lower().removeprefix(".")
    out = BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(inches, layout="constrained")
        draw(figure)
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(out, format=form, dpi=120, metadata=metadata)
    return out.getvalue()
