"""Counts names that say nothing about what they hold, by folder: `python -m tests.vague_names`.

A name is counted each time that it is bound: by an assignment, as an argument, a function, a class,
a loop's target, an import's alias. It prints percentages, and with `--names FOLDER` the places. It
fails nothing: the aim is that less than 1% of the names bound anywhere in the tree are vague.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VAGUE = frozenset("found made given own of one kept asked known each some".split())  # noqa: SIM905
AXES = re.compile(r"[A-Z0-9]+")  # `x_BTD` is x with the axes batch, time and width


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a module binds, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def is_vague(name: str) -> bool:
    """Whether a name, without its axes, is made of vague words alone."""
    words = [word for word in name.split("_") if word and not AXES.fullmatch(word)]
    return bool(words) and VAGUE.issuperset(words)


def folder_of(path: Path) -> str:
    """The folder under which a file is counted: two levels of posenc_jax, one of others."""
    parts = path.relative_to(ROOT).parts[:-1]
    return "/".join(parts[: 3 if parts[:2] == ("posenc_jax", "lab") else 2]) or "."


def count() -> tuple[Counter[str], dict[str, list[str]]]:
    """For each folder the number of names bound, and the places of vague ones."""
    total, places = Counter[str](), dict[str, list[str]]()
    for path in sorted(ROOT.glob("**/*.py")):
        if any(part.startswith(".") for part in path.relative_to(ROOT).parts):
            continue
        for name, line in bound(ast.parse(path.read_text("utf-8"))):
            folder = folder_of(path)
            total[folder] += 1
            if is_vague(name):
                places.setdefault(folder, []).append(f"{path.relative_to(ROOT)}:{line}: {name}")
    return total, places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", metavar="FOLDER", help="print the places in this folder")
    folder = parser.parse_args().names
    total, places = count()
    if folder is not None:
        print(
            *(place for name in places if name.startswith(folder) for place in places[name]),
            sep="\n",
        )
        return
    for name in sorted(total):
        vague = len(places.get(name, ()))
        print(f"{name:40} {total[name]:6} names {vague:5} vague {100 * vague / total[name]:6.2f}%")
    vague = sum(map(len, places.values()))
    print(f"{'all':40} {total.total():6} names {vague:5} vague {100 * vague / total.total():6.2f}%")


if __name__ == "__main__":
    main()
