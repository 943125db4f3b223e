"""Makes the documentation's site of the checkout's Markdown: an mkdocs hook, run by ``make docs``.

Laws of this file: the Markdown files stay as GitHub shows them; what the site needs beyond them is made here.
- Pages that lie outside docs/ get a name in the site, and every link is rewritten to it.
- A link to another file of the checkout leads to a copy of it, so that the site is complete on a disk.
- The reference of the Request file, of the commands and of the worker's settings comes from the code.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
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
    "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md",
}  # fmt: skip
COPIES: Final = "files"
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
_SETTING: Final = re.compile(r"^ {4}([A-Z][A-Z_*]+(?:, [A-Z_*]+)*) {2,}(\S.*)$")


def slugify(title: str, separator: str) -> str:
    """The anchor of a heading as GitHub makes it, so that one link serves both."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]+>", "", title).strip().lower())
    return text.replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, the generated ones, and copies of the files that pages link to."""
    for source, name in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    for name, content in _reference().items():
        files.append(File.generated(config, name, content=content))
    for target in sorted(_linked_files(files)):
        files.append(File.generated(config, _copy_of(target), content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page; drawings become text, because their library is on the network."""
    del config, files
    source = _source_of(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        return match[1] + _site_link(match[2], source, folder) + match[3]

    return _LINK.sub(rewrite, markdown).replace("```mermaid", "```text")


def _source_of(page: str) -> str:
    """Where a page lies in the checkout."""
    return next((source for source, name in PAGES.items() if name == page), f"docs/{page}")


def _site_link(link: str, source: str, folder: str) -> str:
    """``link``, as it is written in the file ``source``, for a page in ``folder`` of the site."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if (page := _page_of(target)) is None:
        page = _copy_of(target)
    return posixpath.relpath(page, folder or ".") + mark + anchor


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
    return f"{COPIES}/{target.replace('/.', '/_')}.txt"


def _linked_files(files: Files) -> Iterator[str]:
    """Files of the checkout that are no pages and that a page links to, each once."""
    seen: set[str] = set()
    for file in files.documentation_pages():
        source = _source_of(file.src_uri)
        for match in _LINK.finditer(file.content_string):
            path = match[2].partition("#")[0]
            if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            if target not in seen and _page_of(target) is None and (ROOT / target).is_file():
                seen.add(target)
                yield target


def _reference() -> dict[str, str]:
    return {
        "reference/request.md": request_page(),
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
    }


def request_page() -> str:
    """Every key of a Request file, from the schema that editors use (``acts schema``)."""
    from cli.text.editor_schema import request_schema

    schema = request_schema()
    definitions: Mapping[str, Any] = schema["$defs"]
    lines = [
        "# Request file",
        "",
        "What `acts schema` prints, as tables. [The protocol](../protocol.md) says what it means.",
    ]
    for name, definition in [("Request", schema), *definitions.items()]:
        if not isinstance(definition, dict):
            continue
        properties = definition.get("properties")
        if not properties:
            lines += ["", f"## {name}", "", _cell(definition.get("description", "")), "", _kind(definition)]
            continue
        required = definition.get("required", ())
        lines += ["", f"## {name}", "", _cell(definition.get("description", "")), ""]
        lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        for key, part in properties.items():
            default = "required" if key in required else _default(part)
            lines.append(f"| `{key}` | {_kind(part)} | {default} | {_cell(_description(part))} |")
    return "\n".join(lines) + "\n"


def _default(part: Any) -> str:
    value = part.get("default") if isinstance(part, dict) else None
    return "" if value in (None, {}, []) else f"`{json.dumps(value)}`"


def _description(part: Any) -> str:
    return str(part.get("description", "")) if isinstance(part, dict) else ""


def _kind(part: Any) -> str:
    """The type of a value in a word or two."""
    if not isinstance(part, dict):
        return "any"
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        return f"[{name}](#{slugify(name, '-')})"
    if "enum" in part or "const" in part:
        return " ".join(f"`{json.dumps(value, ensure_ascii=False)}`" for value in part.get("enum", [part.get("const")]))
    if choices := part.get("anyOf") or part.get("oneOf"):
        kinds = [_kind(choice) for choice in choices if choice != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    if part.get("type") == "array":
        return f"list of {_kind(part.get('items', {}))}"
    kind = part.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def commands_page() -> str:
    """Every command with its arguments and options, from the program itself."""
    import typer

    from cli.main import app

    program: Any = typer.main.get_command(app)  # a group of click's, or of the copy that typer brings
    context = program.context_class(program, info_name="acts")
    lines = ["# Commands", "", *(program.help or "").strip().splitlines()]
    for name, command in program.commands.items():
        lines += _command_section(name, command, context)
        below = command.context_class(command, info_name=name, parent=context)
        for part, inner in getattr(command, "commands", {}).items():
            lines += _command_section(f"{name} {part}", inner, below)
    return "\n".join(lines) + "\n"


def _command_section(name: str, command: Any, context: Any) -> list[str]:
    usage = command.collect_usage_pieces(command.context_class(command, info_name=name, parent=context))
    synopsis = " ".join(["acts", name, *usage]).replace("{", "").replace("}", "")
    text, _, examples = (command.help or "").partition("\n\n\b\nExamples:\n")
    lines = ["", f"## {name}", "", f"`{synopsis}`", "", text, ""]
    if examples:
        lines += ["```sh", *(line.strip() for line in examples.splitlines()), "```", ""]
    options = [part for part in command.params if part.name != "help"]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| {_option(part)} | {_cell(getattr(part, 'help', None) or '')} |" for part in options]
    return lines


def _option(part: Any) -> str:
    if part.param_type_name == "argument":
        return f"`{part.metavar or part.name.upper()}`"
    names = ", ".join(f"`{name}`" for name in (*part.opts, *part.secondary_opts))
    return names if part.is_flag else f"{names} {_cell(part.metavar or part.name.upper())}"


def settings_page() -> str:
    """The worker's environment, from the docstring of its program."""
    import worker_settings

    rows = [match for line in (worker_settings.__doc__ or "").splitlines() if (match := _SETTING.match(line))]
    lines = ["# Worker settings", "", "The environment variables that `python -m worker` reads.", ""]
    lines += ["| variable | meaning |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in row[1].split(', '))} | {_cell(row[2])} |" for row in rows]
    return "\n".join(lines) + "\n"
