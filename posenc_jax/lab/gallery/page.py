"""The page of all cards: one HTML file without external resources, and an index in Markdown."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import facts, option_lines, summary
from posenc_jax.lab.gallery import measure
from posenc_jax.lab.report.webpage import folded, html_page, inline, pairs

FAMILIES = {
    "input": "At the input",
    "positions": "Positions shown",
    "rotary": "Rotary",
    "by_layer": "By layer",
    "bias": "Bias",
    "content": "By content",
    "none": "No positions",
}
OWN_CSS = Path(__file__).with_name("page.css").read_text("utf-8")


def html(drawn: Mapping[str, str]) -> str:
    """Returns the page of these methods; `drawn` is name -> SVG of the card."""
    found = families(drawn)
    articles = (_article(card(name), drawn[name]) for own in found.values() for name in own)
    rules, articles = _classed("".join(articles))
    title = f"Positional encodings: {len(drawn)} cards"
    body = f"""<header>
<h1>{title}</h1>
{"".join(f"<p>{escape(line)}</p>" for line in how_to_read())}
</header>
<nav aria-label="methods">{"".join(_links(kind, own) for kind, own in found.items())}</nav>
<main>
{articles}
</main>"""
    return html_page(title, body, allowed="img-src data:", style=OWN_CSS + rules)


def families(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the kinds that occur, in the order of FAMILIES, each with its methods."""
    names = list(names)
    found = {kind: [name for name in names if card(name).kind == kind] for kind in FAMILIES}
    return {kind: own for kind, own in found.items() if own}


def _classed(body: str) -> tuple[str, str]:
    """Returns the rules for all style attributes, and the body with classes in their place.

    The page is then two thirds as large.
    """
    styles = list(dict.fromkeys(re.findall(r' style="([^"]*)"', body)))
    number = {style: i for i, style in enumerate(styles)}
    body = re.sub(r' style="([^"]*)"', lambda m: f' class="s{number[m.group(1)]}"', body)
    return "".join(f".s{i} {{ {style} }}\n" for i, style in enumerate(styles)), body


def how_to_read() -> list[str]:
    """Returns what a reader must know of all cards, in paragraphs."""
    return [
        "All methods are measured in one setting. Tokens are vectors of mean 0 and variance 1. The "
        "projections of queries and keys are identities. A head has "
        f"{measure.HEAD} channels ({measure.HEADS} heads; one head for methods at the input). "
        "Parameters are not trained: curves are means of "
        f"{measure.INITS} random draws. Parameters that would start at zero are drawn with "
        f"standard deviation {measure.AWAKE}.",
        "The expected score is the attention logit between two tokens of the same content, the "
        "mean over contents, by distance. Its spread is over all absolute positions. The dotted "
        f"line at {measure.HEAD**0.5:g} is the score without positions. What position adds is the "
        "logit at random content minus the logit of the content alone.",
        "A heatmap of 40,000 positions has fewer pixels than positions. One heatmap shows the mean "
        "over the positions of each pixel, the next one their range. So a wave shorter than a "
        "pixel has a mean near zero and a large range. With one position for each pixel it would "
        "look like a long wave, which does not exist.",
    ]


def readme(names: Iterable[str]) -> str:
    """Returns the index of the cards in Markdown."""
    lines = [
        "# Gallery",
        "Made by `python scripts/gallery.py`. `index.html` has all cards on one page, with their "
        "options; it opens without a network.",
        *how_to_read(),
    ]
    for kind, own in families(names).items():
        lines.append(f"## {FAMILIES[kind]}")
        for name in own:
            lines += [f"### {name}", summary(card(name)), f"![{name}]({name}.png)"]
    return "\n\n".join(lines) + "\n"


def _links(kind: str, names: Iterable[str]) -> str:
    links = "".join(f'<a href="#{name}">{escape(name)}</a>' for name in names)
    return f"<h2>{escape(FAMILIES[kind])}</h2>{links}"


def _article(method: Card, svg: str) -> str:
    options = "".join(f"<li>{escape(line)}</li>" for line in option_lines(method))
    return (
        f'<article id="{method.name}"><h2>{escape(method.name)}</h2>'
        f"<p>{escape(summary(method))}</p>{pairs(facts(method).items())}"
        f"<figure>{inline(method.name, svg, f'the card of {method.name}')}</figure>"
        f"{folded('Options', f'<ul>{options}</ul>') if options else ''}</article>\n"
    )
