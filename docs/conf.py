"""Configuration of Sphinx for the site: `make site` builds it, and fails on a dead link.

The source is the repository itself, so that a page links to another one, or to a file, as it does on a code host.
The pages are plain Markdown without directives; their order, which Sphinx wants in a page, is here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
ROOT = "docs/index"
READMES = sorted(HERE.parent.glob("integrations/*/README.md"))

CONTENTS = {
    "Start": ("docs/quickstart",),
    "Guides": tuple(
        f"docs/guides/{name}"
        for name in ("agents", "data-analysis", "packages", "network", "images", "kernels", "scaling", "workspace")
    ),
    "Concepts": tuple(
        f"docs/concepts/{name}" for name in ("isolation", "limits", "faults", "images", "templates", "rendering")
    ),
    "Reference": (
        *(f"docs/reference/{name}" for name in ("python", "errors", "cli")),
        "docs/MCP",
        "docs/LANGCHAIN-SHELL",
        "docs/reference/bridge",
        "docs/evals",
        "docs/reference/profiles",
        "docs/reference/system-calls",
        "docs/SANDBOX-NOTES",
    ),
    "Integrations": tuple(f"integrations/{path.parent.name}/README" for path in READMES),
    "Project": (
        "SECURITY",
        "docs/architecture",
        "docs/decisions/README",
        "BENCHMARKS",
        "CHANGELOG",
        "CONTRIBUTING",
    ),
}
project = "kern_sandbox"
author = "The kern-sandbox authors"
version = release = re.findall(
    r'^__version__ = "(.+)"$', (HERE.parent / "src/kern_sandbox/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)[0]

extensions = ["myst_parser"]
root_doc = ROOT
include_patterns = ["docs/**", *(f"{page}.md" for pages in CONTENTS.values() for page in pages)]
exclude_patterns = [".*", "build", "dist", "src", "tests", "**/node_modules"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
suppress_warnings = [
    "misc.highlighting_failure",  # a signature is not a whole program
    "myst.header",  # BENCHMARKS.md begins a level lower: its tables are put in by a program
]

html_theme = "furo"
html_title = f"kern_sandbox {release}"
html_extra_path = ["_site"]
html_css_files = ["../extra.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a8", "color-brand-content": "#5fd3a8"},
}


def with_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page its table of contents, and the index of decisions its pages."""
    if page == ROOT:
        source[0] += "".join(_tree(title, pages) for title, pages in CONTENTS.items())
    elif page == "docs/decisions/README":
        source[0] += _tree("", [f"docs/decisions/{path.stem}" for path in sorted(HERE.glob("decisions/0*.md"))])


def _tree(title: str, pages: Iterable[str]) -> str:
    names = "\n".join(f"/{page}" for page in pages)
    caption = f":caption: {title}\n" if title else ""
    return f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{names}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", with_contents)
