"""Build the site of the documentation, and check it: ``make docs``.

    python -m docs.source.build_site build/site

A warning of Sphinx is an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from docs.source import api_pages
from docs.source.check_site import faults
from docs.source.public_names import public_names
from docs.source.site_pages import ROOT, write_pages
from graphgen.errors import CODES


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build the site, and check it.")
    parser.add_argument("site", type=Path, help="folder to write")
    site: Path = parser.parse_args(arguments).site.resolve()
    pages = site.with_name(f"{site.name}-pages")
    names = write_pages(pages)
    shutil.rmtree(site, ignore_errors=True)
    strict = ("-W", "--keep-going", "-q", "-E", "-a", "-d", f"{pages}/.doctrees")
    command = [sys.executable, "-m", "sphinx", "-b", "html", *strict, "-c", "docs/source"]
    if code := subprocess.run([*command, pages, site], cwd=ROOT, check=False).returncode:
        return code
    found = faults(site, names, places())
    print(*found, f"{site}: {len(names)} pages, {len(found)} faults", sep="\n")
    return 1 if found else 0


def places() -> list[str]:
    """Anchors that the site has to have: of error codes, and of public names with their members."""
    found, address = [f"errors.html#{code}" for code in CODES], ""
    pages = api_pages.pages_of_names()
    for line in public_names().splitlines():
        word = re.sub(r"^(class |enum |  (class|static)method |  )?", "", line)
        name = re.match(r"\w+", word)
        assert name, line
        if not line.startswith(" "):
            owner = name[0]
            address = f"{api_pages.FOLDER}/{pages[owner]}.html#{api_pages.anchor(owner)}"
            found.append(address)
        else:
            found.append(f"{address}.{name[0]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
