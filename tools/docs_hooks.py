"""Hooks of mkdocs: pages that live outside of docs/, the generated reference, and links between all of them.

In the repository, pages link to each other and to files as GitHub shows them. In the site, a link to a page leads to
that page, and one to any other file becomes its text.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Final

from cli.text.editor_schema import request_schema

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
# Pages outside of docs/: their place in the repository, and in the site
_PAGES: Final = {
    "README.md": "start.md", "examples/README.md": "examples.md", "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}  # fmt: skip
OUTSIDE: Final = {source: page for source, page in _PAGES.items() if (ROOT / source).is_file()}
_REFERENCE: Final = "reference.md"
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_CODE: Final = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the reference."""
    from mkdocs.structure.files import File

    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, _REFERENCE, content=reference_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - as mkdocs calls it
    """Rewrite the links of a page."""
    site = {path: source for source, path in OUTSIDE.items()}
    name = page.file.src_uri
    if name == _REFERENCE:
        return markdown
    return rewrite_links(markdown, site.get(name, f"docs/{name}"), name, {f.src_uri for f in files})


def rewrite_links(markdown: str, source: str, page: str, pages: set[str]) -> str:
    """The text of ``source`` (its place in the repository) as the ``page`` of a site that has these ``pages``."""

    def rewrite(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        place = normpath(str(PurePosixPath(source).parent / path))
        inside = OUTSIDE.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
        if inside not in pages:
            return match[0] if image else text
        up = "../" * (len(PurePosixPath(page).parts) - 1)
        return f"{image}[{text}]({up}{inside}{mark}{anchor})"

    codes: list[str] = []  # code is no link, and may stand in the text of one: it is put back at the end

    def set_aside(match: re.Match[str]) -> str:
        codes.append(match[0])
        return f"\0{len(codes) - 1}\0"

    text = _LINK.sub(rewrite, _CODE.sub(set_aside, markdown))
    return re.sub(r"\0(\d+)\0", lambda match: codes[int(match[1])], text)


def reference_page() -> str:
    """The settings and messages of a Request, as the models of the code have them."""
    schema = request_schema()
    about = (
        "Generated from the models that read a Request; `acts schema` prints the same as a JSON Schema for editors. "
        "What each means for a run is in the [protocol](protocol.md); [errors.md](errors.md) lists the errors by code."
    )
    lines = ["# Settings and messages", "", about]
    for name, part in {"Request": schema, **schema["$defs"]}.items():
        properties = part.get("properties")
        if not properties:
            continue
        lines += ["", f"## {name}", "", part.get("description", ""), "", "| key | form | meaning |", "|---|---|---|"]
        for key, value in properties.items():
            meaning = str(value.get("description", "")) if isinstance(value, dict) else ""
            lines.append(f"| `{key}` | {_form(value)} | {_cell(meaning)} |")
    return "\n".join([*lines, ""])


def _form(schema: Any) -> str:
    """``string``, ``Approve``, ``"fail" or "wait"``: the form of a value in words."""
    if not isinstance(schema, dict):
        return "any" if schema is True else "none"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return _cell(f"`{schema['const']}`")
    if "enum" in schema:
        return _cell(" or ".join(f"`{value}`" for value in schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_form(part) for part in schema[key]))
    type_ = schema.get("type", "any")
    if type_ == "array" and "items" in schema:
        return f"list of {_form(schema['items'])}"
    return _cell(" or ".join(type_) if isinstance(type_, list) else str(type_))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
