"""What the pages and the examples show is what happens: their code runs, their links lead somewhere."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backscroll.server.app import create_app
from backscroll.server.settings import ServerSettings
from backscroll.settings import PRESETS, Settings

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*([README] if README.is_file() else []), *DOCS]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
LEAST_LIKENESS = {"text output": 1.0, "text like": 0.7}  # what an embedder finds is not the same on every CPU
NOT_THE_SAME = re.compile(r"-?\b[01]\.\d\d\b")  # similarities: in the last digit they differ from CPU to CPU


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """Of every fenced block: its line, what stands behind the fence, and what is in it."""
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        yield text.count("\n", 0, found.start()) + 2, found["info"].strip(), found["body"]


def is_run(page: Path, info: str) -> bool:
    """All Python of the README runs, and what is marked so elsewhere."""
    return info == ("python" if page == README else "python run")


def run_page(page: Path) -> list[tuple[str, str, str]]:
    """Run a page's code, block by block, in one namespace; (how to compare, what is shown, what was printed)."""
    compared = []
    namespace = {"__name__": "__main__"}
    printed = ""
    for line, info, body in blocks(page):
        if is_run(page, info):
            code = compile("\n" * (line - 1) + body, str(page), "exec")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(code, namespace)
            printed = said.getvalue()
        elif info in LEAST_LIKENESS:
            compared.append((info, body, printed))
    for value in namespace.values():
        if hasattr(value, "store") and hasattr(value, "close"):
            value.close()
    return compared


def plain(text: str) -> str:
    return NOT_THE_SAME.sub("#", "\n".join(line.rstrip() for line in text.strip().splitlines()))


def slug(heading: str) -> str:
    """A heading as the anchor that leads to it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


WITH_CODE = [page for page in PAGES if any(is_run(page, info) for _, info, _ in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for info, shown, printed in run_page(page):
        likeness = difflib.SequenceMatcher(None, plain(shown), plain(printed), autojunk=False).ratio()
        assert likeness >= LEAST_LIKENESS[info], f"printed:\n{printed}\nshown:\n{shown}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs_alone_without_a_key_and_leaves_nothing_behind(example, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", "-W", "ignore:open_binary:DeprecationWarning", str(example)]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) > 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", to.read_text("utf-8")), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page.name}: {target}"


def test_every_page_is_in_the_index():
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text("utf-8")))
    assert listed == {page.name for page in DOCS} - {"index.md"}


def commands_shown(page: Path) -> Iterator[tuple[int, list[str]]]:
    """The arguments of every `backscroll …` in a console block; a line may go on behind a backslash."""
    for line, info, body in blocks(page):
        if info.split()[:1] == ["console"]:
            for shown in re.findall(r"^\$ (?:[\w./]*/)?backscroll (.*)$", body.replace("\\\n", " "), re.MULTILINE):
                yield line, shown.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_is_there_with_its_options(page):
    cli = importlib.import_module("backscroll.cli")
    click = importlib.import_module("click")
    for line, (name, *arguments) in commands_shown(page):
        if name.startswith("-"):
            continue
        assert name in cli.main.commands, f"{page.name}:{line}: backscroll {name}"
        _, command, _ = cli.main.resolve_command(click.Context(cli.main), [name])
        while isinstance(command, click.Group):
            name, *arguments = arguments
            assert name in command.commands, f"{page.name}:{line}: backscroll … {name}"
            command = command.commands[name]
        while isinstance(command, click.Group):
            assert arguments[:1] and arguments[0] in command.commands, f"{page.name}:{line}: backscroll {name}"
            command, arguments = command.commands[arguments[0]], arguments[1:]
        options = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        given = {one.partition("=")[0] for one in arguments if re.match(r"--?[a-z]", one)}
        assert given - options - {"--help", "-h"} == set(), f"{page.name}:{line}: backscroll {name}"


def shown_value(value: object) -> str:
    return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_the_settings_page_has_the_values_of_the_presets():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / "docs" / "settings.md").read_text("utf-8"), re.MULTILINE)
    split = {name: [cell.strip(" *`") for cell in cells.split("|")] for name, cells in rows}
    table = {name: cells for name, cells in split.items() if len(cells) == len(PRESETS)}
    for field in dataclasses.fields(Settings):
        values = [shown_value(getattr(preset, field.name)) for preset in PRESETS.values()]
        assert table[field.name] == values, field.name


def test_the_server_page_names_every_setting_and_route():
    page = (ROOT / "docs" / "server.md").read_text("utf-8")
    named = set(re.findall(r"`([^`\n]+)`", page))
    assert {field.name for field in dataclasses.fields(ServerSettings)} - named == set()
    paths = create_app(None, ServerSettings()).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert len(routes) > 10
    assert routes - named == set()


def test_the_storage_page_names_every_table_and_column():
    schema = (ROOT / "src" / "backscroll" / "stores" / "schema.sql").read_text("utf-8")
    page = (ROOT / "docs" / "storage.md").read_text("utf-8")
    for table, body in re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", schema, re.DOTALL | re.MULTILINE):
        section = re.search(rf"^### `{table}`.*?(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
        assert section, table
        for column in re.findall(r"^  ([a-z_]+) +(?:INTEGER|TEXT|BLOB|REAL)", body, re.MULTILINE):
            assert f"`{column}`" in section[0], f"{table}.{column}"


def test_every_test_that_a_page_names_is_there():
    tests = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "tests").glob("test_*.py")))
    named = {name for page in DOCS for name in re.findall(r"`(test_\w+)`", page.read_text("utf-8"))}
    assert named
    assert sorted(named - set(re.findall(r"def (test_\w+)", tests))) == []
