"""Ask Backscroll and its peers the same questions on the same lines, with the same vectors, within the same budgets.

    python benchmarks/peers/run.py --lines F.lines.jsonl.gz --questions F.questions.jsonl.gz --json OUT.json

Each peer's environment is made beforehand: python benchmarks/peers/setup.py all. The result of each question is kept in
OUT.results.jsonl, and the same command goes on where it was interrupted. Then: table.py OUT.json, plot.py OUT.json PNG.
"""
# ruff: noqa: S603

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conversation import CONTROL, Asked, Ingest
from packing import TOKENS_PER_LINE
from setup import HERE
from systems import SYSTEMS, need_environments

from backscroll.errors import BackscrollError
from backscroll.evaluation.figures import figures
from backscroll.evaluation.replay import Plan
from backscroll.evaluation.results import Result, Results, file_digest
from backscroll.evaluation.run import Data, identity, read_data
from backscroll.settings import open_preset

BASELINE = "backscroll"


def run(data: Data, plan: Plan, names: Sequence[str], results: Results, ingests: Path) -> list[Result]:
    """Ask every question that has no result yet; returns the results of all, in order."""
    for number, (name, questions) in enumerate(data.by_conversation.items(), 1):
        waiting = [one for one in questions if (one.conversation, one.id) not in results]
        if not waiting:
            continue
        # a server of its own, so that what it remembers ends with the conversation
        with served() as url, tempfile.TemporaryDirectory(prefix="peers-") as folder:
            _tell(f"conversation {number} of {len(data.by_conversation)}: taking it in")
            with Asked(data.conversations[name], names, plan, url, Path(folder)) as asked:
                _keep(ingests, asked.ingests)
                for done, question in enumerate(waiting, 1):
                    results.add(asked.ask(question))
                    _tell(f"conversation {number} of {len(data.by_conversation)}: question {done} of {len(waiting)}")
    sys.stderr.write("\n")
    return [results[key] for key in data.keys()]  # noqa: SIM118 - in the order of the questions


@contextmanager
def served() -> Iterator[str]:
    """The address of the embedder's server, while it runs."""
    command = [sys.executable, HERE / "embeddings_server.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            if not url:
                raise BackscrollError("the server of the embedder did not start; what it said is above")
            yield url
        finally:
            server.terminate()


def measured(results: Sequence[Result], plan: Plan, names: Sequence[str], ingests: Path) -> dict[str, Any]:
    """The figures of all systems as JSON values."""
    compared = Plan((*plan.presets, CONTROL, *names), plan.max_tokens)
    latest = {(one["conversation"], one["system"]): one for one in map(json.loads, ingests.read_text().splitlines())}
    per_line = {
        system: 1000 * sum(one["seconds"] for one in of) / sum(one["lines"] for one in of)
        for system in (BASELINE, *names)
        if (of := [one for (_, name), one in latest.items() if name == system])
    }
    found = figures(results, compared, BASELINE if BASELINE in plan.presets else None)
    return {"figures": [asdict(one) for one in found], "ingest_ms_per_line": per_line}


def _keep(path: Path, ingests: Sequence[Ingest]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in ingests)


def _tell(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def _identity(asked: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """What names a run: data, settings and code, ours and that of the adapters, and the pinned versions."""
    sources = sorted([*HERE.glob("*.py"), *(HERE / "requirements").glob("*.txt")])
    return {
        **identity(asked.lines, asked.questions, plan, "local"),
        "systems": asked.systems,
        "tokens_per_line": TOKENS_PER_LINE,
        "limit": asked.limit,
        "peers": {path.name: file_digest(path) for path in sources if path.name not in ("table.py", "plot.py")},
    }


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SYSTEMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(SYSTEMS)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure Backscroll and its peers side by side.")
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True, dest="out", help="where the figures go")
    parser.add_argument("--systems", type=_names, default=list(SYSTEMS), help="with commas between; all by default")
    parser.add_argument("--preset", default="backscroll,membot,pruning", help="of Backscroll, with commas between")
    parser.add_argument("--max-tokens", default="500,1000,2000,4000,8000", help="the budgets")
    parser.add_argument("--limit", type=int, help="take only the first N questions")
    return parser


def main() -> None:
    asked = _parser().parse_args()
    plan = Plan(tuple(asked.preset.split(",")), tuple(map(int, asked.max_tokens.split(","))))
    try:
        for preset in plan.presets:
            open_preset(preset)
        need_environments(asked.systems)
        data = read_data(asked.lines, asked.questions, asked.limit)
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        ingests = asked.out.with_suffix(".ingest.jsonl")
        named = _identity(asked, plan)
        results = run(data, plan, asked.systems, _results(asked.out, named, data), ingests)
    except BackscrollError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: run the same command again to go on")
    made = {"run": named, "left_out": dict(data.left_out), **measured(results, plan, asked.systems, ingests)}
    asked.out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"all figures are in {asked.out}")


def _results(out: Path, named: dict[str, Any], data: Data) -> Results:
    return Results(out.with_suffix(".results.jsonl"), named, data.keys())


if __name__ == "__main__":
    main()
