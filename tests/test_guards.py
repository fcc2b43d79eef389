"""What must not drift: limits of the code, the ways of imports, and what the pages say about it."""

import ast
import builtins
import dataclasses
import gzip
import importlib
import inspect
import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "backscroll"
REQUIREMENTS = sorted([*ROOT.glob("requirements/*.txt"), *ROOT.glob("benchmarks/peers/requirements/*.txt")])

MAX_BODY_LINES = 40
MAX_PARAMETERS = 7
MAX_SETTINGS = 20
HEAVY = {"numpy", "onnxruntime", "tokenizers", "apsw", "httpx", "click", "rich"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


# What the code is made of


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text("utf-8"), str(path)) for name, path in MODULES.items()}


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the package, with `file:line name` to find it by."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{MODULES[name].relative_to(ROOT)}:{node.lineno} {node.name}", node


def body_lines(function: Function) -> int:
    has_docstring = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if has_docstring else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - first_line(body[0]) + 1


def first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def parameters(function: Function) -> list[str]:
    arguments = function.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    gathered = [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [name for name in named + gathered if name not in ("self", "cls")]


def imported_modules(tree: ast.AST) -> set[str]:
    """The modules of ours that the tree's import statements name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in names]
        else:
            continue
        found.update(name for name in names if name.split(".")[0] == "backscroll")
    return found


def broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything, and does not end by raising it again."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or is_broad_name(kind) for kind in caught)


def is_broad_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("Exception", "BaseException")


def suppresses_all(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "suppress" and any(is_broad_name(argument) for argument in node.args)


def test_no_function_is_longer_than_the_guide():
    long = {place: body_lines(node) for place, node in functions() if body_lines(node) > MAX_BODY_LINES}
    assert long == {}


def test_no_function_takes_more_parameters_than_the_guide():
    many = {place: len(parameters(node)) for place, node in functions() if len(parameters(node)) > MAX_PARAMETERS}
    assert many == {}


def test_settings_are_few():
    settings = importlib.import_module("backscroll.settings").Settings
    assert len(dataclasses.fields(settings)) <= MAX_SETTINGS


def test_no_except_is_broad_but_one_at_the_outermost_ring_of_the_server():
    found = [
        f"{MODULES[name].relative_to(ROOT)}:{node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ExceptHandler) and broad(node))
        or (isinstance(node, ast.Call) and suppresses_all(node))
    ]
    in_server = [place for place in found if place.startswith("src/backscroll/server")]
    assert [place for place in found if place not in in_server] == []
    assert len(in_server) <= 1


# Which module may import which


def layers() -> list[list[str]]:
    """The rings of the import contracts, outermost first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    [rings] = [contract for contract in contracts if contract["id"] == "rings"]
    return [re.findall(r"\w+", layer) for layer in rings["layers"]]


def top(module: str) -> str:
    """The name that the module has in the rings: `stores` for `backscroll.stores.sqlite`, '' for the package."""
    return ".".join(module.split(".")[1:2])


def test_no_function_imports_a_module_of_ours():
    hidden = {place: imported_modules(node) for place, node in functions() if imported_modules(node)}
    assert hidden == {}


def test_no_module_imports_itself_by_way_of_others():
    graph = {name: imported_modules(tree) - {name} for name, tree in TREES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_module_is_in_exactly_one_ring():
    named = sorted(itertools.chain.from_iterable(layers()))
    assert named == sorted(set(named)), "a module is named twice"
    assert {top(module) for module in MODULES} - {""} <= set(named), "a module has no ring"


def test_the_edges_reach_the_stages_through_the_facade_only():
    edges = {"cli", "server", "evaluation", "integrations"}
    stages = next(place for place, layer in enumerate(layers()) if "window" in layer)
    allowed = {"", "api", "asynchronous", "wiring", "memory", "explain", "reply"}
    allowed |= {*itertools.chain.from_iterable(layers()[stages + 1 :])}
    wrong = {
        name: sorted(reached)
        for name, tree in TREES.items()
        if top(name) in edges
        and (reached := {top(module) for module in imported_modules(tree)} - allowed - {top(name)})
        and not (top(name) == "cli" and reached <= edges)
    }
    assert wrong == {}


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, backscroll; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "backscroll" in loaded
    assert loaded & HEAVY == set()


# The tree of errors


def error_classes() -> dict[str, type[BaseException]]:
    module = importlib.import_module("backscroll.errors")
    members = inspect.getmembers(module, inspect.isclass)
    return {name: cls for name, cls in members if cls.__module__ == module.__name__}


def drawn_tree(docstring: str) -> dict[str, tuple[str | None, str | None]]:
    """Name -> (parent, builtin) as drawn: a deeper name belongs to the last one that stands further left."""
    drawn: dict[str, tuple[str | None, str | None]] = {}
    above: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        entry = re.match(r"[│├└─\s]*(?P<name>\w+Error)\b(?:\s+\((?P<builtin>\w+)\))?", line)
        if entry and (drawn or entry["name"] == "BackscrollError"):
            column = entry.start("name")
            above = [(left, name) for left, name in above if left < column]
            drawn[entry["name"]] = (above[-1][1] if above else None, entry["builtin"])
            above.append((column, entry["name"]))
        elif drawn:
            break
    return drawn


def is_builtin(cls: type) -> bool:
    return getattr(builtins, cls.__name__, None) is cls


def test_the_tree_drawn_in_the_docstring_is_the_tree_of_classes():
    classes = error_classes()
    built = {}
    for name, cls in classes.items():
        parents = [base.__name__ for base in cls.__bases__ if base.__name__ in classes]
        outside = [base.__name__ for base in cls.__bases__ if is_builtin(base) and base is not Exception]
        assert len(parents) <= 1
        assert len(outside) <= 1
        built[name] = (next(iter(parents), None), next(iter(outside), None))
    assert drawn_tree(importlib.import_module("backscroll.errors").__doc__ or "") == built


def test_every_leaf_is_an_error_of_ours_and_a_builtin():
    classes = error_classes()
    base = classes["BackscrollError"]
    leaves = [cls for cls in classes.values() if not cls.__subclasses__()]
    assert len(leaves) > 1
    assert all(issubclass(cls, base) for cls in classes.values())
    plain = {Exception, BaseException, object}
    assert [cls for cls in leaves if not [b for b in cls.__mro__ if is_builtin(b) and b not in plain]] == []


# What the pages say


def attributes_of(cls: type) -> set[str]:
    """The attributes that a class's own docstring describes."""
    _, _, described = (cls.__doc__ or "").partition("Attributes:\n")
    return set(re.findall(r"^ {8}(\w+): ", described, re.MULTILINE))


TOLD = {  # what an error is made of where that is not its text alone
    "BudgetError": (2, 1),
    "ImportFileError": ("chat.jsonl", 1, "this is not JSON"),
    "EmbedderMismatchError": ("local", "hashing", "chat.db"),
    "CutOffReplyError": ("the reply was cut off", "length"),
}


def test_the_page_of_errors_has_the_tree_and_of_each_its_attributes_and_status():
    status_of = importlib.import_module("backscroll.server.problems").status_of
    text = page("docs/errors.md")
    tree = drawn_tree(importlib.import_module("backscroll.errors").__doc__ or "")
    assert drawn_tree(text.partition("```text\n")[2]) == tree
    lines = re.findall(r"^\| `\w+Error`.*", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    classes = error_classes()
    assert [f"`{name}`" for name in tree if name != "BackscrollError"] == [row[0] for row in rows]
    for name, when, attributes, status, advice in rows:
        cls = classes[name.strip("`")]
        shown = set(re.findall(r"\w+", attributes))
        known = set().union(*map(attributes_of, cls.__mro__[:-1]))
        assert attributes_of(cls) <= shown <= known, name
        assert int(status) == status_of(cls(*TOLD.get(cls.__name__, ("it failed",)))), name
        assert when and advice, name


def page(name: str) -> str:
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    return path.read_text("utf-8")


def docs() -> str:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert pages, "docs/*.md are missing"
    return "\n".join(path.read_text("utf-8") for path in pages)


def code_in(text: str) -> str:
    """What stands in fences and between backticks."""
    fenced = re.findall(r"^ *```.*?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))
    return "\n".join(fenced + inline)


def unnamed(names: list[str], text: str) -> list[str]:
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def test_the_public_names_are_the_documented_ones():
    package = importlib.import_module("backscroll")
    assert len(package.__all__) == len(set(package.__all__))
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    code = code_in(page("README.md") + "\n" + docs())
    used = set(re.findall(r"\bbackscroll\.([A-Za-z_]\w*)", code))
    for names in re.findall(r"^\W*from backscroll import (?:\(([^)]*)\)|(.*)$)", code, re.MULTILINE):
        used.update(re.findall(r"\w+", re.sub(r" as \w+|#.*", "", "".join(names))))
    submodules = {top(module) for module in MODULES}
    assert used - submodules - set(package.__all__) - {"db"} == set(), "used in the pages, not public"
    assert unnamed(list(package.__all__), code) == [], "public, not in the pages"


def test_the_docs_name_every_command():
    click = importlib.import_module("click")
    cli = importlib.import_module("backscroll.cli")
    groups = [value for value in vars(cli).values() if isinstance(value, click.Group)]
    commands = {f"backscroll {name}" for group in groups for name in group.commands}
    assert commands
    assert unnamed(sorted(commands), code_in(docs())) == []


def test_the_docs_name_every_setting():
    settings = importlib.import_module("backscroll.settings").Settings
    assert unnamed([field.name for field in dataclasses.fields(settings)], code_in(docs())) == []


def test_the_docs_name_every_error():
    assert unnamed(list(error_classes()), code_in(docs())) == []


def entries(block: str) -> dict[Path, str]:
    """The paths of a tree drawn by indentation or with lines, each with what is said of it."""
    found: dict[Path, str] = {}
    above: list[tuple[int, Path]] = []
    for raw in block.splitlines():
        line = raw.translate(dict.fromkeys(map(ord, "│├└─"), " "))
        entry = re.match(r"\s*(?P<path>[\w./-]*[\w-]/|[\w-]+\.[\w.]+)(?:\s{2,}(?P<about>.*))?$", line.rstrip())
        if entry:
            column = entry.start("path")
            above = [(left, path) for left, path in above if left < column]
            path = (above[-1][1] if above else Path()) / entry["path"]
            above.append((column, path))
            found[path] = entry["about"] or ""
        elif found:  # what is said goes on
            found[path] += " " + line.strip()
    return found


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__" and not path.name.startswith(".")}


def test_the_tree_in_the_readme_is_the_tree_on_disk():
    section = re.search(r"^#+ The tree\s*$.*?^```text\n(.*?)^```", page("README.md"), re.DOTALL | re.MULTILINE)
    assert section, "README.md has no ```text block under a heading 'The tree'"
    tree = entries(section[1])
    assert [str(path) for path in tree if not (ROOT / path).exists()] == []
    assert Path("src/backscroll") in {path.parent for path in tree}, "the package's files are not listed"
    for path, about in tree.items():
        listed = {child.name for child in tree if child.parent == path}
        if (ROOT / path).is_dir() and listed:
            assert listed == on_disk(ROOT / path), f"{path}/ lists something else than there is"
        elif (ROOT / path).is_dir() and (ROOT / path).is_relative_to(PACKAGE):
            files = {file.stem for file in (ROOT / path).glob("*.py")} - {"__init__"}
            assert unnamed(sorted(files), about) == [], f"{path}/ says nothing of some of its files"


# What is shipped


def pins(path: Path) -> dict[str, set[str]]:
    """Name -> what it is pinned to; more than one where Pythons need different versions."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_requirements_are_pinned_by_version_and_hash_and_name_no_address(path):
    text = path.read_text("utf-8")
    assert "://" not in text
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert lines
    pinned = re.compile(r"[\w.-]+==\S+( ;[^\\]+?)?( +--hash=sha256:[0-9a-f]{64})+")
    assert [line for line in lines if not pinned.fullmatch(line.strip())] == []


def test_every_dependency_is_pinned_and_what_runs_is_what_is_tested():
    project = tomllib.loads(page("pyproject.toml"))["project"]
    run, dev = (pins(ROOT / "requirements" / f"{name}.txt") for name in ("run", "dev"))
    name_of = re.compile(r"[\w.-]+")
    assert {normal(name_of.match(asked)[0]) for asked in project["dependencies"]} <= set(run)
    assert {normal(name_of.match(asked)[0]) for asked in project["optional-dependencies"]["dev"]} <= set(dev)
    assert {name: versions for name, versions in run.items() if dev.get(name) != versions} == {}


# Written in two halves each, so that this file does not name them itself.
FOREIGN = [
    *(
        re.escape("".join(halves))
        for halves in [
            ("pypi", ".org"),
            ("pypi", ".python"),
            ("python", "hosted"),
            ("npm", "js.org"),
            ("ana", "conda.org"),
            ("download.", "pytorch"),
            ("proxy.", "golang"),
            ("dev", "pi."),
            ("j", "frog"),
            ("--extra-", "index-url"),
            ("--index", "-url"),
        ]
    ),
    r"(?<![\w.~*-])/" + r"(?:root|work|home|Users|workspace)/\w",
    r"\b[A-Z]:\\+" + r"Users\b",
]


def shipped() -> list[Path]:
    """The files of the project: what git tracks or would, and without git all but hidden folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        every = [path for path in ROOT.rglob("*") if "__pycache__" not in path.parts]
        return [p for p in every if p.is_file() and not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]
    return [ROOT / name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_one_machine():
    foreign = re.compile("|".join(FOREIGN), re.IGNORECASE)
    found = {}
    for path in shipped():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        match = foreign.search(data.decode("latin-1"))
        if match:
            found[str(path.relative_to(ROOT))] = match[0]
    assert found == {}


def json_lines(name: str) -> list[dict]:
    return [json.loads(line) for line in page(f"examples/{name}").splitlines()]


def test_the_sample_conversation_is_in_the_common_line_form():
    places = set()
    for line in json_lines("support_chat.jsonl"):
        assert {"conversation", "thread", "index", "speaker", "role", "text", "time", "id"} <= set(line)
        assert line["text"] or line["message"].get("tool_calls")
        places.add((line["conversation"], line["thread"], line["index"]))
    threads: dict[tuple[str, str], list[int]] = {}
    for conversation, thread, index in places:
        threads.setdefault((conversation, thread), []).append(index)
    assert all(sorted(indexes) == list(range(len(indexes))) for indexes in threads.values())
    assert len(places) == len(json_lines("support_chat.jsonl"))


def test_the_sample_questions_point_at_lines_of_the_same_conversation():
    lines = {(line["conversation"], line["id"]) for line in json_lines("support_chat.jsonl")}
    for question in json_lines("support_chat.questions.jsonl"):
        assert {"conversation", "question", "answer", "category", "evidence", "unanswerable"} <= set(question)
        assert bool(question["evidence"]) != question["unanswerable"]
        assert {(question["conversation"], evidence) for evidence in question["evidence"]} <= lines
