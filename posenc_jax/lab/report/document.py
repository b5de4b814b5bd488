"""The page of an experiment: a short one in docs/ and the whole one of the site, from stored runs.

The page in docs/ leaves out what is folded, tables longer than a screen, and the settings of the
runs. The whole page has all of them.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report import comparison, tables, vector
from posenc_jax.lab.report.markdown import Part, escape, folded, render
from posenc_jax.lab.report.sections import Grid, Picture, Section
from posenc_jax.lab.runs import StoredRun

INITIALS = ("dna",)  # pages whose title is an abbreviation
ROWS = 40  # of a table that fits a screen


def write(
    path: Path,
    runs: Sequence[StoredRun],
    said: Sequence[str],
    sections: Sequence[Section],
    archive: Path,
) -> None:
    """Writes the page in docs/; its figures go to the folder of the same name.

    Args:
      path: of the page, which ends in ".md".
      runs: finished runs of one experiment.
      said: what they show, sentences made from their numbers; several are a list.
      sections: in order.
      archive: the file that holds these runs; the page links to it and has its SHA-256.
    """
    name, folder = path.stem, path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.png"), *folder.glob("*.svg")]:
        old.unlink()
    brief = shortened(sections)
    for picture in pictures(brief):
        write_text(folder / f"{picture.name}.svg", vector.file(picture.name, picture.draw))
    lines = [*_head(name, said), *render(brief, lambda figure: f"{name}/{figure}.svg")]
    count = len(tables.named(sections))
    every = {1: "the table", 2: "both tables"}.get(count, f"all {count} tables")
    lines += [
        "## How it was measured", "",
        f"{_measured(runs)} {linked(archive)} has the runs: config, every record, summary; "
        f"`python scripts/experiment_page.py results/{archive.name}` makes this page from them. "
        f"`make site` builds build/site/results/{name}.html, which has {every} (also as "
        "CSV and LaTeX), every seed, and the settings and commands of the runs.",
    ]  # fmt: skip
    path.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


def whole(
    name: str,
    runs: Sequence[StoredRun],
    said: Sequence[str],
    sections: Sequence[Section],
    figure: Callable[[str], str],
) -> str:
    """Returns the page of the site, with everything.

    Args:
      name, runs, said, sections: as of `write`.
      figure: returns the path of a figure, relative to the page, from its name.

    Raises:
      ValueError: a run is given twice.
    """
    files = [f"[{table}.{end}]({name}/{table}.{end})"
             for table in tables.named(sections) for end in ("csv", "tex")]  # fmt: skip
    lines = [
        *_head(name, said),
        *render(sections, figure),
        "## How it was measured",
        "",
        _measured(runs),
        "",
        *_settings(runs),
        *folded("Tables as files", [", ".join(files), ""]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def shortened(parts: Sequence[Part]) -> list[Part]:
    """Returns the parts without folded sections and long tables; a section that is then empty is
    left out.
    """
    short: list[Part] = []
    for part in parts:
        if isinstance(part, Grid) and len(part.rows) > ROWS:
            short.append(f"The table of {len(part.rows)} rows is on the site.")
        elif not isinstance(part, Section):
            short.append(part)
        elif not part.folded and (inner := shortened(part.parts)):
            short.append(part._replace(parts=inner))
    return short


def pictures(parts: Sequence[Part]) -> Iterator[Picture]:
    """Yields the figures of parts, in order."""
    for part in parts:
        if isinstance(part, Section):
            yield from pictures(part.parts)
        elif isinstance(part, Picture):
            yield part


def _head(name: str, said: Sequence[str]) -> list[str]:
    title = name.replace("_", " ")
    title = title.upper() if name in INITIALS else title.capitalize()
    shown = render(said, str) if len(said) == 1 else [*(f"- {escape(line)}" for line in said), ""]
    return [f"# {title}", "", *shown]


def linked(archive: Path) -> str:
    """Returns a link to an archive in results/ from a page in docs/, with the file's SHA-256."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f"[results/{archive.name}](../results/{archive.name}) (SHA-256 `{digest}`)"


def _measured(runs: Sequence[StoredRun]) -> str:
    """When, where and how the runs were made."""
    every = lambda name: dict.fromkeys(str(run.environment[name]) for run in runs)
    joined = lambda name: ", ".join(every(name))
    commits = re.sub(r"([0-9a-f]{10})[0-9a-f]{30}", r"\1", joined("commit"))  # "-dirty" stays
    cores = f"{' or '.join(every('cpus'))} core{'s' if list(every('cpus')) != ['1'] else ''}"
    if all("processor" in run.environment for run in runs):  # older runs do not tell it
        cores += f" of {joined('processor')}"
    days = sorted({run.environment["started"][:10] for run in runs})
    by = f"by `{_command(runs[0])}`" if len(runs) == 1 else f"in {len(runs)} runs"
    return (
        f"Measured {' to '.join([days[0], *days[1:][-1:]])} {by} at commit {commits}, "
        f"Python {joined('python')}, JAX {joined('jax')} on {joined('device')}, {cores}."
    )


def _settings(runs: Sequence[StoredRun]) -> list[str]:
    """The fields that all runs share; of several runs the other fields, and their commands."""
    names = comparison.names([run.path.resolve() for run in runs])
    commands = [_command(run) for run in runs]
    configs = [
        {field: value for field, value in dotted(run.config).items() if field[:6] != "wandb."}
        for run in runs
    ]
    fields = {field: value for config in reversed(configs) for field, value in config.items()}
    # A run from before a field existed had what is its default now.
    same = lambda config, field, value: (
        config[field] == value if field in config else not field.startswith(("task.", "encoding."))
    )
    shared = [
        field
        for field, value in fields.items()
        if all(same(config, field, value) for config in configs)
    ]
    content = ["```", *(f"{field}: {fields[field]}" for field in shared), "```", ""]
    if len(runs) > 1:
        content += ["Runs, each group after the settings that it has in common:", "", "```"]
        before: list[str] = []
        for name, command, config in zip(names, commands, configs, strict=True):
            said = {*shared, *re.findall(r"--config\.([\w.]+)=", command)}
            differing = [
                f"{field}: {value}" for field, value in config.items() if field not in said
            ]
            if differing != before:
                content += ["", *differing]
            before = differing
            content += [f"# {name}", command]
        content += ["```", ""]
    return folded("Settings", content)


def _command(run: StoredRun) -> str:
    return re.sub(r" --workdir=\S+", "", run.environment["command"])
