"""Makes the documentation's site of the checkout's Markdown: an mkdocs hook, run by ``make docs``.

The Markdown files stay as GitHub shows them. Pages that lie outside docs/ get a name in the site, and every link is
rewritten to it; a link to another file of the checkout leads to a copy, so that the site is complete on a disk.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
# Files of the checkout that are pages of the site under another name
PAGES: Final = {
    "README.md": "index.md", "examples/README.md": "examples.md", "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "threats.md",
}  # fmt: skip
# Pages that mention everything: in a search they come after those that are about it
_LATER: Final = re.compile(
    "reference/|architecture|changelog|comparison|contributing|examples|first-hour|production|protocol|threats"
)
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")


def slugify(title: str, _separator: str = "-") -> str:
    """The anchor of a heading as GitHub makes it: in lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"<[^>]+>|[^\w\- ]", "", title.strip()).lower().replace(" ", "-")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, the generated ones, and copies of the files that pages link to."""
    for source, name in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    pages = {"request": request_page, "commands": commands_page, "settings": settings_page, "metrics": metrics_page}
    for name, make in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    texts = [(_source_of(page.src_uri), page.content_string) for page in files.documentation_pages()]
    targets = {_target(match[2], source) for source, text in texts for match in _LINK.finditer(text)}
    for target in sorted(t for t in targets if t is not None and _page_of(t) is None and (ROOT / t).is_file()):
        files.append(File.generated(config, _copy_of(target), content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page; drawings become text, because their library is on the network."""
    del config, files
    if _LATER.match(page.file.src_uri):
        page.meta["search"] = {"boost": 0.3}
    source, folder = _source_of(page.file.src_uri), posixpath.dirname(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        if (target := _target(match[2], source)) is None:
            return match[0]
        _, mark, anchor = match[2].partition("#")
        place = posixpath.relpath(_page_of(target) or _copy_of(target), folder or ".")
        return f"{match[1]}{place}{mark}{anchor}{match[3]}"

    markdown = _LINK.sub(rewrite, markdown)
    return markdown.replace("```mermaid", "```text")


def _source_of(page: str) -> str:
    """Where a page lies in the checkout."""
    return next((source for source, name in PAGES.items() if name == page), f"docs/{page}")


def _target(link: str, source: str) -> str | None:
    """The file of the checkout that a link leads to; None for an address, or a place in the same file."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def _page_of(target: str) -> str | None:
    """The page or the image of the site for a file or folder of the checkout; None for any other file."""
    if target in PAGES:
        return PAGES[target]
    if target == "docs/README.md":
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return "examples.md" if (ROOT / target).is_dir() else None


def _copy_of(target: str) -> str:
    """The copy of a file; mkdocs leaves out those whose names begin with a dot."""
    return f"files/{target.replace('/.', '/_')}.txt"


def request_page() -> str:
    """Every key of a Request file, from the schema that editors use (``acts schema``)."""
    from acts.cli.text.editor_schema import request_schema

    schema = request_schema()
    about = "What `acts schema` prints, as tables. [The protocol](../protocol.md) says what it means."
    lines = ["# Request file", "", about]
    for name, definition in [("Request", schema), *schema["$defs"].items()]:
        lines += ["", f"## {name}", "", _cell(definition.get("description", "")), ""]
        if "properties" not in definition:
            lines.append(_kind(definition))
            continue
        lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        for key, part in definition["properties"].items():
            value = part.get("default")
            default = "" if value in (None, {}, []) else f"`{json.dumps(value)}`"
            default = "required" if key in definition.get("required", ()) else default
            lines.append(f"| `{key}` | {_kind(part)} | {default} | {_cell(part.get('description', ''))} |")
    return "\n".join(lines) + "\n"


def _kind(part: dict[str, Any]) -> str:
    """The type of a value in a word or two."""
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        return f"[{name}](#{slugify(name)})"
    if "enum" in part or "const" in part:
        return " ".join(f"`{json.dumps(value, ensure_ascii=False)}`" for value in part.get("enum", [part.get("const")]))
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_kind(choice) for choice in part["anyOf"] if choice != {"type": "null"}))
    if part.get("type") == "array":
        return f"list of {_kind(part.get('items', {}))}"
    kind = part.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def commands_page() -> str:
    """Every command with its arguments and options, from the program itself."""
    from acts.cli.main import load_commands

    program: Any = load_commands()  # a group of click's, or of the copy that typer brings
    lines = ["# Commands", "", *(program.help or "").strip().splitlines()]
    for name, command in program.commands.items():
        below = getattr(command, "commands", {})
        for full, part in [(name, command), *((f"{name} {inner}", part) for inner, part in below.items())]:
            context = part.context_class(part, info_name=f"acts {full}", max_content_width=100, terminal_width=100)
            lines += ["", f"## {full}", "", "```text", *str(part.get_help(context)).splitlines(), "```"]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The worker's environment, from the model of its settings."""
    from acts.worker.settings import list_variables

    lines = ["# Worker settings", "", "The environment variables that `python -m acts.worker` reads.", ""]
    lines += ["| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in list_variables().items()]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """What a worker counts beside the SDK's own metrics."""
    from acts.telemetry.metrics import METRICS

    about = "What `ACTS_METRICS` serves, beside the SDK's own: [what to look at](../observability.md#metrics)."
    lines = ["# Metrics", "", about]
    lines += ["", "| metric | kind | labels | what |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.kind} | {m.labels.replace(' ', ', ')} | {m.text} |" for m in METRICS.values()]
    return "\n".join(lines) + "\n"
