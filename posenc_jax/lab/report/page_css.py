"""The style sheet of the HTML pages; its variables are the names in `drawing.PALETTE`."""

CSS = """
:root {
  --page: #ffffff; --ink: #1f2328; --muted: #5b6472; --grid: #e2e6ea; --soft: #f5f7f9;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9;
  --c6: #8a6d3b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e6e9ed; --muted: #a0a9b5; --grid: #333a43; --soft: #1d2127;
    --c0: #3f9fdc; --c1: #f07f35; --c2: #2bbd92; --c3: #dd93bd; --c4: #f0b33a; --c5: #a5dafb;
    --c6: #c0a069;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem;
  background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
p { max-width: 45rem; margin: .6rem 0; }
small { font-size: .8em; color: var(--muted); }
.muted, figcaption, caption { color: var(--muted); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; font-size: .85rem; padding-top: .5rem; }
th, td { padding: .4rem .7rem; text-align: right; font-weight: normal; vertical-align: top;
  line-height: 1.3; }
td { white-space: nowrap; }
.words td { white-space: normal; }
.words th { white-space: nowrap; }
.words :is(th, td), th.words { text-align: left; }
sup { line-height: 0; }
td small { display: block; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th { border-bottom: 1px solid var(--muted); }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
tbody + tbody tr:first-child > * { border-top: 1px solid var(--muted); }
b { font-weight: 650; }
figure { margin: 1.5rem 0 2.5rem; }
figure svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
figcaption { max-width: 45rem; margin-top: .5rem; font-size: .9rem; }
details { border-top: 1px solid var(--grid); }
details:last-of-type { border-bottom: 1px solid var(--grid); }
summary { padding: .55rem 0; cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; margin: .5rem 0 1rem; padding: .8rem 1rem; border-radius: 6px;
  background: var(--soft); font-size: .85rem; line-height: 1.45; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem;
  margin: .75rem 0 1rem; font-size: .9rem; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; } details { display: none; } }
"""
