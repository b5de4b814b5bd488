// Draws lines as SVG, with the values under the mouse; `view` and `data` are of comparison.js.
// The t interval of two seeds, 12.7 standard errors to each side, would fill the chart.
const MOST_LABELS = 20, MOST_LETTERS = 26, LINE = 16;  // of the labels at the ends of lines
const banded = (row) => row[4].length >= 3;

// A chart of lines; rows are [x, mean, low, high, seeds, mean and interval as text].
function chart(rowsOf, options) {
  const W = Math.max(320, document.getElementById("main").clientWidth);
  const plot = element("div", { class: "plot" });
  const curves = distinct(shown().map((line) => ({ line, rows: rowsOf(line) ?? [] }))
    .filter((curve) => curve.rows.length));
  const labelled = W > 640 && curves.length <= MOST_LABELS;
  const H = Math.max(280, Math.min(440, 0.42 * W)), left = 64, top = 16, bottom = 52;
  const right = labelled ? 24 + 7 * Math.max(...curves.map((curve) => label(curve).length), 0) : 24;
  const every = curves.flatMap((curve) => curve.rows);
  const ends = (row) => [...(view.seeds ? row[4] : []),
    ...(view.band && banded(row) ? [row[2], row[3]] : [])];
  const values = every.flatMap((row) => [row[1], ...ends(row)])
    .filter((value) => value != null && (!options.logY || value > 0));
  if (!values.length) {
    plot.append(element("p", { class: "empty" }, "Nothing to draw: choose a line above."));
    return plot;
  }
  const xs = [...new Set(every.map((row) => row[0]))].sort((a, b) => a - b);
  const atX = options.logX ? Math.log2 : (x) => x;
  const atY = options.logY ? (y) => Math.log10(Math.max(y, Number.MIN_VALUE)) : (y) => y;
  let [low, high] = [atY(Math.min(...values)), atY(Math.max(...values))];
  const room = 0.05 * (high - low || Math.abs(high) || 1);
  [low, high] = [low - room, high + room];
  if (options.share) [low, high] = [Math.max(low, -0.03), Math.min(high, 1.03)];
  const [x0, x1] = [atX(xs[0]), atX(xs.at(-1))];
  const part = (x) => x1 === x0 ? 0.5 : 0.015 + 0.97 * (atX(x) - x0) / (x1 - x0);
  const X = (x) => left + part(x) * (W - left - right);
  const Y = (y) => H - bottom - (atY(y) - low) / (high - low) * (H - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.title });
  for (const tick of options.logY ? powers(low, high) : ticks(low, high)) {
    svg.append(element("line", { x1: left, x2: W - right, y1: Y(tick), y2: Y(tick),
      stroke: "var(--grid)" }));
    svg.append(element("text", { x: left - 8, y: Y(tick) + 4, "text-anchor": "end" },
      String(+tick.toPrecision(6))));
  }
  for (const tick of options.logX ? thin(xs) : ticks(xs[0], xs.at(-1))) {
    svg.append(element("text", { x: X(tick), y: H - bottom + 20, "text-anchor": "middle" },
      String(tick)));
  }
  const trained = options.trained ? curves.map((curve) => options.trained(curve.line)) : [];
  for (const at of new Set(trained.filter((n) => n >= xs[0] && n <= xs.at(-1)))) {
    svg.append(element("line", { x1: X(at), x2: X(at), y1: top, y2: H - bottom,
      stroke: "var(--muted)", "stroke-dasharray": "2 4" }));
  }
  for (const [name, value] of Object.entries(options.baselines ?? {})) {
    if (atY(value) < low || atY(value) > high) continue;
    svg.append(element("line", { x1: left, x2: W - right, y1: Y(value), y2: Y(value),
      stroke: "var(--muted)", "stroke-dasharray": "6 4" }));
    svg.append(element("text", { x: W - right, y: Y(value) - 5, "text-anchor": "end",
      class: "baseline" }, name));
  }
  svg.append(element("text", { x: (left + W - right) / 2, y: H - 8, "text-anchor": "middle" },
    options.axis));
  svg.append(element("text", { transform: `translate(14 ${(H - bottom) / 2}) rotate(-90)`,
    "text-anchor": "middle" }, options.yAxis));
  for (const { line, rows } of curves) {
    const band = rows.filter((row) => banded(row) && row[2] != null);
    if (view.band && band.length > 1) {
      const clamp = (y) => Math.max(top, Math.min(H - bottom, Y(y)));
      const upper = band.map((row) => `${X(row[0])},${clamp(row[3])}`);
      const lower = band.map((row) => `${X(row[0])},${clamp(row[2])}`).reverse();
      svg.append(element("path", { d: `M${[...upper, ...lower].join("L")}Z`, fill: line.color,
        opacity: 0.13, class: "band" }));
    }
    const path = rows.filter((row) => row[1] != null).map((row) => `${X(row[0])},${Y(row[1])}`);
    svg.append(element("path", { d: `M${path.join("L")}`, fill: "none", stroke: line.color,
      "stroke-width": 2, "stroke-dasharray": line.dash, class: "line" }));
    if (view.seeds && options.dots) for (const row of rows)
      for (const value of row[4].filter((seed) => seed != null))
        svg.append(element("circle", { cx: X(row[0]), cy: Y(value), r: 2.6, fill: line.color,
          opacity: 0.65 }));
  }
  if (labelled) endLabels(svg, curves, { X, Y, x: W - right + 8, low: top, high: H - bottom });
  point(plot, svg, { W, H, top, bottom, xs, X, curves, head: options.head });
  return plot;
}

// Curves with the same values are one, which has the labels of all.
function distinct(curves) {
  const found = new Map();
  for (const { line, rows } of curves) {
    const key = JSON.stringify(rows), known = found.get(key);
    if (known) known.line = { ...known.line, label: `${known.line.label} = ${line.label}` };
    else found.set(key, { line, rows });
  }
  return [...found.values()];
}

function label({ line }) {
  return line.label.length > MOST_LETTERS ? `${line.label.slice(0, MOST_LETTERS - 1)}…` : line.label;
}

// Writes the label of each curve beside its last point, without overlaps.
function endLabels(svg, curves, { X, Y, x, low, high }) {
  const found = curves.map((curve) => [curve, curve.rows.findLast((row) => row[1] != null)])
    .filter(([, row]) => row).sort((a, b) => Y(a[1][1]) - Y(b[1][1]));
  const at = found.map(([, row]) => Y(row[1]));
  for (let i = 1; i < at.length; i++) at[i] = Math.max(at[i], at[i - 1] + LINE);
  for (let i = at.length - 1, floor = high; i >= 0; i--, floor -= LINE)
    at[i] = Math.max(Math.min(at[i], floor), low);
  found.forEach(([curve, row], i) => {
    svg.append(element("path", { d: `M${X(row[0])},${Y(row[1])}L${x - 3},${at[i]}`, opacity: 0.6,
      stroke: curve.line.color, fill: "none" }));
    const text = element("text", { x, y: at[i] + 4, class: "end" }, label(curve));
    text.append(element("title", {}, curve.line.label));
    svg.append(text);
  });
}

// Shows the values at the x under the mouse, best first.
function point(plot, svg, { W, H, top, bottom, xs, X, curves, head }) {
  const guide = element("line", { y1: top, y2: H - bottom, stroke: "var(--muted)", opacity: 0 });
  const tip = element("div", { class: "tip", hidden: true });
  svg.append(guide);
  plot.append(svg, tip);
  const better = data.metrics.find((metric) => metric.name === view.metric)?.better;
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * W;
    const x = xs.reduce((a, b) => Math.abs(X(b) - at) < Math.abs(X(a) - at) ? b : a);
    const found = curves.map(({ line, rows }) => [line, rows.find((row) => row[0] === x)])
      .filter(([, row]) => row && row[1] != null)
      .sort((a, b) => better === "higher" ? b[1][1] - a[1][1] : a[1][1] - b[1][1]).slice(0, 14);
    const rows = found.map(([line, row]) => element("tr", {},
      element("td", {}, element("i", { style: `background:${line.color}` }), line.label),
      element("td", {}, `${row[5]} ${row[6]}`.trim())));
    tip.replaceChildren(element("b", {}, head(x)), element("table", {}, ...rows));
    tip.hidden = false;
    const place = X(x) / W * box.width, flip = place > box.width / 2;
    tip.style.left = flip ? "" : `${place + 14}px`;
    tip.style.right = flip ? `${box.width - place + 14}px` : "";
    tip.style.top = "12px";
    for (const end of ["x1", "x2"]) guide.setAttribute(end, X(x));
    guide.setAttribute("opacity", 1);
  };
  svg.onpointerleave = () => { tip.hidden = true; guide.setAttribute("opacity", 0); };
}

function thin(xs) {
  const most = document.getElementById("main").clientWidth / 70;
  const every = Math.ceil(xs.length / most);
  return xs.filter((_, i) => i % every === 0);
}
