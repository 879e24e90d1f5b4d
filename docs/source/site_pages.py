"""Put the pages of the site together: what Sphinx reads, in a folder of its own.

Guides are the files of ``docs``, readable without the site. The navigation is that of
``docs/index.md``; to it come the pages of commands (``command_pages.py``), of public names
(``api_pages.py``), of notebooks (``notebook_pages.py``), and files at the root of the
repository.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Final

from docs.source import api_pages, command_pages, notebook_pages

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = "docs"
# Files outside of docs, and the names of their pages.
INCLUDED: Final = {
    "README.md": "about.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/README.md": "benchmarks.md",
}
_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
_LISTED = re.compile(r"^\* \[[^\]]+\]\(([^)#]+)\)", re.MULTILINE)
# The text of a link may be code, or a picture.
_LINK = re.compile(r"(!?)\[((?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]`])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$|(?<!`)`[^`\n]+`(?!`|\]\())", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^\| (GG\d{4}) \|", re.MULTILINE)


def write_pages(folder: Path) -> list[str]:
    """Write all pages and pictures into a new folder.

    Returns:
        The names of the pages, without suffixes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / DOCS, folder, ignore=shutil.ignore_patterns("source", "*.md", "api.txt"))
    # Pages of notebooks show what cells print today.
    executed = {f"{path.stem}.md": notebook_pages.page(path) for path in notebook_pages.notebooks()}
    pages = {path.name: f"{DOCS}/{path.name}" for path in sorted((ROOT / DOCS).glob("*.md"))}
    pages |= {name: file for file, name in INCLUDED.items()}
    made = {name: page_of(file) for name, file in pages.items()}
    made["index.md"] += "\n" + navigation()
    for text in (command_pages, api_pages):
        (folder / text.FOLDER).mkdir()
    commands = command_pages.command_pages()
    commands["index"] += _tree("", [name for name in commands if name != "index"])
    made |= {f"{command_pages.FOLDER}/{name}.md": text for name, text in commands.items()}
    made |= {f"{notebook_pages.FOLDER}/{name}": text for name, text in executed.items()}
    names = api_pages.api_pages().items()
    made |= {f"{api_pages.FOLDER}/{name}.rst": text for name, text in names}
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")
    return [name.rpartition(".")[0] for name in made]


def navigation() -> str:
    """The navigation: sections of ``docs/index.md``, commands, Python names, the project."""
    sections = {
        title: [included(posixpath.normpath(f"{DOCS}/{file}")) for file in _LISTED.findall(body)]
        for title, body in _SECTION.findall((ROOT / DOCS / "index.md").read_text("utf-8"))
    }
    sections["Look up"] += [f"{command_pages.FOLDER}/index", f"{api_pages.FOLDER}/index"]
    listed = {page for pages in sections.values() for page in pages}
    sections["Project"] += ["history.md", *sorted(set(INCLUDED.values()) - listed)]
    return "".join(_tree(title, list(dict.fromkeys(pages))) for title, pages in sections.items())


def _tree(title: str, pages: list[str]) -> str:
    names = "".join(f"{page.removesuffix('.md')}\n" for page in pages)
    caption = f":caption: {title}\n" if title else ""
    return f"```{{toctree}}\n:hidden:\n{caption}\n{names}```\n\n"


def included(file: str) -> str:
    """The page of a file of the repository."""
    name = INCLUDED.get(file) or posixpath.relpath(file, DOCS)
    return re.sub(r"\.ipynb$", ".md", name)


def page_of(file: str) -> str:
    """A file of the repository as a page: links lead to pages, each error code has an anchor."""
    text = (ROOT / file).read_text("utf-8")
    if file == f"{DOCS}/errors.md":
        text = _CODE.sub(r'| <span id="\1">\1</span> |', text)
    text = re.sub("^```gg$", "```text", text, flags=re.MULTILINE)
    parts, folder = _FENCED.split(text), posixpath.dirname(file)
    parts[::2] = [_LINK.sub(lambda found: _link(found, folder), part) for part in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str], folder: str) -> str:
    """A link as the site has it; one to a file that the site lacks is its text."""
    mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if not target or "://" in target:
        return found[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if path not in INCLUDED and not path.startswith(f"{DOCS}/"):
        return text
    return f"{mark}[{text}]({included(path)}{anchor})"
