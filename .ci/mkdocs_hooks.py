"""MkDocs hooks: pages of the API and of the results' tables, those from the root, their links."""

import ast
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from turngraph.benchmarks.result_pages import RESULTS, read_tables, table_page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOMS = ("configs", "data", "model", "inference", "training")
FROM_ROOT = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site that are files of the repository's root."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Copy the sources to where they are called ``turngraph``, for mkdocstrings to read."""
    target = ROOT / "build" / "docs" / "turngraph"
    shutil.rmtree(target, ignore_errors=True)
    for path in (*ROOT.glob("*.py"), *(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root, and one for every package with its modules."""
    for page, name in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for name, table in read_tables().items():
        files.append(File.generated(config, f"results/{name}.md", content=table_page(name, table)))
    by_hand = set(re.findall(r"^::: (\S+)", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE))
    packages = sorted({p.parent for room in ROOMS for p in (ROOT / room).rglob("*.py")})
    for package in [ROOT, *packages]:
        name = ".".join(["turngraph", *package.relative_to(ROOT).parts])
        names = sorted(f"{name}.{p.stem}" for p in package.glob("*.py") if p.stem[:2] != "__")
        if modules := [module for module in names if module not in by_hand]:
            about = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
            lines = [f"# {name}", "", about, "", *(f"::: {module}\n" for module in modules)]
            page = f"api/{name.removeprefix('turngraph.')}.md"
            files.append(File.generated(config, page, content="\n".join(lines)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at the site's pages; a link to a file that the site does not hold is its text."""
    name = page.file.src_uri
    folder = ROOT if name in FROM_ROOT else (DOCS / name).parent
    pages = {ROOT / source: target for target, source in FROM_ROOT.items()}

    def shown(link: re.Match[str]) -> str:
        image, text, path, anchor = link.groups(default="")
        file = (folder / path).resolve()
        up = "../" * name.count("/")
        if file in pages:
            return f"{image}[{text}]({up}{pages[file]}{anchor})"
        if file.parent == RESULTS and file.suffix == ".csv":
            return f"[{text}]({up}results/{file.stem}.md)"
        if file.is_relative_to(DOCS):
            return f"{image}[{text}]({up}{file.relative_to(DOCS)}{anchor})"
        return text if file.exists() else link[0]  # what is not there is a warning of MkDocs

    return LINK.sub(shown, markdown)
