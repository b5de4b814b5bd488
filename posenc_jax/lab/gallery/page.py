"""The gallery as one HTML file that needs nothing but itself, and as an index in Markdown."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import facts, option_lines, summary
from posenc_jax.lab.gallery import measure
from posenc_jax.lab.report.page_css import CSS
from posenc_jax.lab.report.webpage import inline

FAMILIES = {
    "input": "At the input",
    "positions": "Positions shown",
    "rotary": "Rotary",
    "by_layer": "By layer",
    "bias": "Bias",
    "content": "By content",
    "none": "No positions",
}
OWN_CSS = """
body { max-width: 88rem; display: grid; grid-template-columns: 12rem minmax(0, 1fr);
  gap: 0 2.5rem; }
header { grid-column: 1 / -1; }
nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto;
  padding: 1.5rem 0; font-size: .9rem; }
nav a { display: block; padding: .1rem 0; color: inherit; text-decoration: none; }
nav a:hover, nav a:focus { text-decoration: underline; }
nav h2 { margin: 1rem 0 .25rem; font-size: .8rem; color: var(--muted); font-weight: 600; }
fieldset { border: 0; margin: 1rem 0 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .35rem 1.1rem; }
legend { float: left; margin-right: 1.1rem; color: var(--muted); }
label { cursor: pointer; }
article { border-top: 1px solid var(--grid); padding: 1.5rem 0 .5rem; scroll-margin-top: 0; }
article h2 { margin: 0; }
article p { margin: .35rem 0; max-width: 60rem; }
article figure { margin: 1rem 0; }
article details, article details:last-of-type { border: 0; }
article figure svg { width: auto; max-width: 100%; }
@media (max-width: 50rem) {
  body { display: block; }
  nav { position: static; max-height: none; columns: 2; }
}
@media print { body { display: block; } nav, fieldset { display: none; } article { break-inside:
  avoid; } }
"""


def html(drawn: Mapping[str, str]) -> str:
    """The page of methods with their cards, name -> SVG."""
    names = list(drawn)
    kinds = [kind for kind in FAMILIES if any(card(name).kind == kind for name in names)]
    order = [name for kind in kinds for name in names if card(name).kind == kind]
    classes, articles = _classed("".join(_article(card(name), drawn[name]) for name in order))
    hide = "".join(
        f"body:has(#only-{kind}:checked) [data-kind]:not([data-kind={kind}]) {{ display: none; }}\n"
        for kind in kinds
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'">
<title>Positional encodings: {len(names)} cards</title>
<style>{CSS}{OWN_CSS}{hide}{classes}</style>
</head>
<body>
<header>
<h1>Positional encodings: {len(names)} cards</h1>
{"".join(f"<p>{escape(line)}</p>" for line in how_to_read())}
{_filter(kinds)}
</header>
<nav aria-label="methods">{"".join(_links(kind, order) for kind in kinds)}</nav>
<main>
{articles}
</main>
</body>
</html>
"""


def _classed(body: str) -> tuple[str, str]:
    """Style attributes as rules of a style sheet, which halves a page of figures."""
    styles = list(dict.fromkeys(re.findall(r' style="([^"]*)"', body)))
    number = {style: i for i, style in enumerate(styles)}
    body = re.sub(r' style="([^"]*)"', lambda m: f' class="s{number[m.group(1)]}"', body)
    return "".join(f".s{i} {{ {style} }}\n" for i, style in enumerate(styles)), body


def how_to_read() -> list[str]:
    """What all cards have in common, in paragraphs."""
    return [
        "All methods are measured in one setting: tokens are vectors of mean 0 and variance 1, the "
        "projections of queries and keys are identities, and a head has "
        f"{measure.HEAD} channels ({measure.HEADS} heads; one head for methods at the input). "
        "Learned parameters are as they are drawn before training, mean of "
        f"{measure.INITS} draws; what begins at zero is drawn with deviation {measure.AWAKE}.",
        "Expected score: the attention logit of a token with another of the same content, mean "
        "over contents, by distance. Its spread holds every absolute position. Dotted, at "
        f"{measure.HEAD**0.5:g}: the score without positions. What position adds: the logit at "
        "random content minus that of the content alone.",
        "Heatmaps of 40,000 positions have fewer pixels than positions: one shows each pixel's "
        "mean, the next its range, so that waves shorter than a pixel fade in the one and fill the "
        "other, instead of coming back as long waves that are not there.",
    ]  # fmt: skip


def readme(names: Sequence[str]) -> str:
    """The index in Markdown, beside the cards."""
    made = (
        "Made by `python scripts/gallery.py`. `index.html` has all cards on one page, with their "
    )
    lines = ["# Gallery", "", f"{made}options; it needs nothing but itself.", ""]
    for paragraph in how_to_read():
        lines += [paragraph, ""]
    for kind, family in FAMILIES.items():
        own = [name for name in names if card(name).kind == kind]
        if own:
            lines += [f"## {family}", ""]
        for name in own:
            lines += [f"### {name}", "", f"{summary(card(name))}", "", f"![{name}]({name}.png)", ""]
    return "\n".join(lines)


def _filter(kinds: Sequence[str]) -> str:
    rows = [("all", "all"), *((kind, FAMILIES[kind].lower()) for kind in kinds)]
    boxes = "".join(
        f'<label><input type="radio" name="only" id="only-{kind}"'
        f"{' checked' if kind == 'all' else ''}> {escape(text)}</label>"
        for kind, text in rows
    )
    return f"<fieldset><legend>Show</legend>{boxes}</fieldset>"


def _links(kind: str, names: Sequence[str]) -> str:
    links = "".join(
        f'<a href="#{name}">{escape(name)}</a>' for name in names if card(name).kind == kind
    )
    return f'<div data-kind="{kind}"><h2>{escape(FAMILIES[kind])}</h2>{links}</div>'


def _article(method: Card, svg: str) -> str:
    rows = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts(method).items())
    options = "".join(f"<li>{escape(line)}</li>" for line in option_lines(method))
    folded = f"<details><summary>Options</summary><ul>{options}</ul></details>" if options else ""
    return (
        f'<article id="{method.name}" data-kind="{method.kind}"><h2>{escape(method.name)}</h2>'
        f"<p>{escape(summary(method))}</p><dl>{rows}</dl>"
        f"<figure>{inline(method.name, svg, f'the card of {method.name}')}</figure>"
        f"{folded}</article>\n"
    )
