"""The page of an experiment in docs/: Markdown and figures, made from stored runs."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import comparison, drawing, tables
from posenc_jax.lab.report.markdown import Part, escape, folded, render
from posenc_jax.lab.report.sections import Picture, Section
from posenc_jax.lab.runs import StoredRun

INITIALS = ("dna",)  # pages whose title is an abbreviation


def write(
    path: Path,
    runs: Sequence[StoredRun],
    said: Sequence[str],
    sections: Sequence[Section],
    archive: Path,
) -> None:
    """Writes the page; its figures and tables go to the folder of the same name.

    Args:
      path: of the page, which ends in ".md".
      runs: finished runs of one experiment.
      said: what they show, sentences made from their numbers; several are a list.
      sections: in order.
      archive: the file that holds these runs; the page links to it and has its SHA-256.

    Raises:
      ValueError: a run is given twice.
    """
    names = comparison.names([run.path.resolve() for run in runs])
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    for picture in _pictures(sections):
        with drawing.styled(picture.name):
            picture.draw().savefig(folder / f"{picture.name}.png", dpi=150)
    tables.save(folder / "tables", sections)
    title = path.stem.replace("_", " ").capitalize()
    title = title.upper() if path.stem in INITIALS else title
    shown = render(said, str) if len(said) == 1 else [*(f"- {escape(line)}" for line in said), ""]
    lines = [f"# {title}", "", *shown, *_origin(runs, names, folder.name, archive)]
    lines += render(sections, lambda name: f"{folder.name}/{name}.png")
    path.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


def _pictures(parts: Sequence[Part]) -> Iterator[Picture]:
    for part in parts:
        if isinstance(part, Section):
            yield from _pictures(part.parts)
        elif isinstance(part, Picture):
            yield part


def linked(archive: Path) -> str:
    """Returns a link to an archive in results/ from a page in docs/, with the file's SHA-256."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f"[results/{archive.name}](../results/{archive.name}) (SHA-256 `{digest}`)"


def _origin(
    runs: Sequence[StoredRun], names: Sequence[str], folder: str, archive: Path
) -> list[str]:
    """When, where and how the runs were made, and their settings."""
    every = lambda name: dict.fromkeys(str(run.environment[name]) for run in runs)
    each = lambda name: ", ".join(every(name))
    commits = re.sub(r"([0-9a-f]{10})[0-9a-f]{30}", r"\1", each("commit"))  # "-dirty" stays
    cores = f"{' or '.join(every('cpus'))} core{'s' if list(every('cpus')) != ['1'] else ''}"
    if all("processor" in run.environment for run in runs):  # older runs do not tell it
        cores += f" of {each('processor')}"
    days = sorted({run.environment["started"][:10] for run in runs})
    commands = [re.sub(r" --workdir=\S+", "", run.environment["command"]) for run in runs]
    by = f"by `{commands[0]}`" if len(runs) == 1 else f"in {len(runs)} runs"
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
            own = [f"{field}: {value}" for field, value in config.items() if field not in said]
            if own != before:
                content += ["", *own]
            before = own
            content += [f"# {name}", command]
        content += ["```", ""]
    return [
        f"Measured {' to '.join([days[0], *days[1:][-1:]])} {by} at commit {commits}, "
        f"Python {each('python')}, JAX {each('jax')} on {each('device')}, {cores}. "
        f"{linked(archive)} has the runs: config, every record, summary; "
        f"`python scripts/experiment_page.py results/{archive.name}` makes this page from it. "
        f"`docs/{folder}/tables` has the tables as CSV and LaTeX.",
        "",
        *folded("Settings", content),
    ]
