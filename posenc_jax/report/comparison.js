"use strict";
// Draws what `data` holds. Texts from runs become text nodes, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const encodings = [...new Set(data.lines.map((line) => line.encoding))];
data.lines.forEach((line, i) => {
  const color = encodings.indexOf(line.encoding);
  const twin = data.lines.slice(0, i).filter((other) => other.encoding === line.encoding).length;
  line.color = `var(--c${color % 7})`;
  line.dash = DASHES[(twin + Math.floor(color / 7)) % DASHES.length];
  line.shown = true;
});
const view = { metric: data.metrics[0]?.name, length: null, looked: null, layer: 0, log: false, seeds: true, band: true };
const shown = () => data.lines.filter((line) => line.shown);

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "text", "rect"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made[name] = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function number(value) {
  if (value == null) return "not finite";
  const size = Math.abs(value);
  return size < 10 ? value.toFixed(3) : size < 100 ? value.toFixed(2) : value.toPrecision(4);
}

function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const step of [1, 2, 5]) found.push(step * 10 ** power);
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const rough = (high - low) / 5, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * base).find((m) => m >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step)
    found.push(tick);
  return found;
}

// A chart of lines: rows are [x, mean, low, high, seeds]; a click is never needed to read it.
function chart(rowsOf, options) {
  const W = Math.max(320, document.getElementById("main").clientWidth);
  const H = Math.max(280, Math.min(440, 0.42 * W)), left = 64, right = 24, top = 16, bottom = 52;
  const plot = element("div", { class: "plot" });
  const curves = shown().map((line) => ({ line, rows: rowsOf(line) })).filter((c) => c.rows.length);
  const every = curves.flatMap((curve) => curve.rows);
  const values = every.flatMap((row) => view.seeds ? [row[1], ...row[4]] : [row[1], row[2], row[3]])
    .filter((value) => value != null && (!view.log || value > 0));
  if (!values.length) {
    plot.append(element("p", { class: "empty" }, "Nothing to draw: choose a line above."));
    return plot;
  }
  const xs = [...new Set(every.map((row) => row[0]))].sort((a, b) => a - b);
  const atX = options.logX ? Math.log2 : (x) => x;
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const room = view.log ? (high / low) ** 0.05 : 0.05 * (high - low || Math.abs(high) || 1);
  [low, high] = view.log ? [low / room, high * room] : [low - room, high + room];
  const atY = view.log ? Math.log : (y) => y;
  const [x0, x1] = [atX(xs[0]), atX(xs.at(-1))];
  const part = (x) => x1 === x0 ? 0.5 : 0.015 + 0.97 * (atX(x) - x0) / (x1 - x0);
  const X = (x) => left + part(x) * (W - left - right);
  const Y = (y) => H - bottom - (atY(y) - atY(low)) / (atY(high) - atY(low)) * (H - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.title });
  for (const tick of ticks(low, high, view.log)) {
    svg.append(element("line", { x1: left, x2: W - right, y1: Y(tick), y2: Y(tick),
      stroke: "var(--grid)" }));
    svg.append(element("text", { x: left - 8, y: Y(tick) + 4, "text-anchor": "end" },
      String(+tick.toPrecision(6))));
  }
  const marks = options.ticks ? options.ticks(xs)
    : ticks(xs[0], xs.at(-1), false).filter((t) => t >= xs[0]);
  for (const tick of marks) {
    svg.append(element("text", { x: X(tick), y: H - bottom + 20, "text-anchor": "middle" },
      options.tick ? options.tick(tick) : String(tick)));
  }
  const trained = options.trained ? curves.map((curve) => options.trained(curve.line)) : [];
  for (const at of new Set(trained.filter((n) => n >= xs[0] && n <= xs.at(-1)))) {
    svg.append(element("line", { x1: X(at), x2: X(at), y1: top, y2: H - bottom,
      stroke: "var(--muted)", "stroke-dasharray": "2 4" }));
  }
  for (const [name, value] of Object.entries(options.baselines ?? {})) {
    if (value < low || value > high) continue;
    svg.append(element("line", { x1: left, x2: W - right, y1: Y(value), y2: Y(value),
      stroke: "var(--muted)", "stroke-dasharray": "6 4" }));
    svg.append(element("text", { x: W - right, y: Y(value) - 5, "text-anchor": "end",
      class: "baseline" }, name));
  }
  svg.append(element("text", { x: (left + W - right) / 2, y: H - 8, "text-anchor": "middle" },
    options.axis));
  svg.append(element("text", { transform: `translate(14 ${(H - bottom) / 2}) rotate(-90)`,
    "text-anchor": "middle" }, options.yAxis));
  const ok = (value) => value != null && (!view.log || value > 0);
  for (const { line, rows } of curves) {
    const band = rows.filter((row) => ok(row[2]) && ok(row[3]));
    if (view.band && band.length > 1) {
      const clamp = (y) => Math.max(top, Math.min(H - bottom, Y(y)));
      const upper = band.map((row) => `${X(row[0])},${clamp(row[3])}`);
      const lower = band.map((row) => `${X(row[0])},${clamp(row[2])}`).reverse();
      svg.append(element("path", { d: `M${[...upper, ...lower].join("L")}Z`, fill: line.color,
        opacity: 0.13, class: "band" }));
    }
    const path = rows.filter((row) => ok(row[1])).map((row) => `${X(row[0])},${Y(row[1])}`);
    svg.append(element("path", { d: `M${path.join("L")}`, fill: "none", stroke: line.color,
      "stroke-width": 2, "stroke-dasharray": line.dash, class: "line" }));
    if (view.seeds && options.dots) for (const row of rows)
      for (const value of row[4].filter(ok))
        svg.append(element("circle", { cx: X(row[0]), cy: Y(value), r: 2.6, fill: line.color,
          opacity: 0.65 }));
  }
  point(plot, svg, { W, H, top, bottom, xs, X, curves, head: options.head });
  return plot;
}

// The values at the place under the mouse, best first.
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
      element("td", {}, number(row[1]) + (row[2] == null ? "" : ` ±${number(row[1] - row[2])}`))));
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

const metric = () => data.metrics.find((found) => found.name === view.metric);

function byLength() {
  return chart((line) => line.cells[view.metric] ?? [], {
    title: "by length", axis: "test length (log scale); dotted: trained length",
    yAxis: metric().label, logX: true, ticks: thin, dots: true,
    baselines: data.baselines[view.metric],
    trained: (line) => line.trained, head: (x) => `length ${x}` });
}

function table() {
  const lengths = [...new Set(shown().flatMap((line) =>
    (line.cells[view.metric] ?? []).map((row) => row[0])))].sort((a, b) => a - b);
  const sign = metric().better === "higher" ? -1 : 1;
  const best = lengths.map((n) => Math.min(...shown().map((line) =>
    sign * ((line.cells[view.metric] ?? []).find((row) => row[0] === n)?.[1] ?? Infinity * sign))));
  const rows = shown().map((line) => element("tr", {},
    element("th", { scope: "row" }, element("span", { class: "key",
      style: `background:${line.color}` }), line.label),
    ...lengths.map((n, i) => {
      const row = (line.cells[view.metric] ?? []).find((found) => found[0] === n);
      if (!row) return element("td", { class: "muted" }, "—");
      const value = number(row[1]), top = row[1] != null && sign * row[1] === best[i];
      const half = row[2] == null ? null : element("small", {}, `±${number(row[1] - row[2])}`);
      const title = `seeds: ${row[4].map(number).join(", ")}`;
      return element("td", { title }, top && shown().length > 1 ? element("b", {}, value) : value,
        half);
    })));
  const head = element("tr", {}, element("th", {}, "length"),
    ...lengths.map((n) => element("th", { scope: "col" }, String(n))));
  const caption = `${metric().label}, ${metric().better} is better: mean ± half of a 95% t ` +
    "interval over seeds; bold: the best of the lines shown; point at a cell for its seeds";
  return element("div", { class: "wide" }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, head), element("tbody", {}, ...rows)));
}

function training() {
  return chart((line) => line.training, { title: "training loss", axis: "step",
    yAxis: "loss (nats per token)", head: (x) => `step ${x}` });
}

function lengths() {
  return [...new Set(data.lines.flatMap((line) => Object.keys(line.positions)))].map(Number)
    .sort((a, b) => a - b);
}

function byPosition() {
  const length = view.length ?? lengths().at(-1);
  // Positions count from 0, which a log axis does not have.
  return chart((line) => (line.positions[length] ?? []).map((row) => [row[0] + 1, ...row.slice(1)]),
    { title: "by position", axis: "position in the window (log scale); dotted: trained length",
      yAxis: data.metrics[0].label, logX: true, ticks: thin, tick: (x) => String(x - 1),
      trained: (line) => line.trained + 1, head: (x) => `from position ${x - 1}` });
}

// A square for each head: rows are queries, columns keys, the ink the root of the weight.
function attention() {
  const line = data.lines.find((found) => found.label === view.looked) ?? looked()[0];
  const [layers, heads, size] = line.attention.shape;
  view.layer = Math.min(view.layer, layers - 1);
  const bytes = Uint8Array.from(atob(line.attention.bytes), (c) => c.charCodeAt(0));
  const maps = [...Array(heads).keys()].map((head) => {
    const canvas = element("canvas", { width: size, height: size, role: "img",
      "aria-label": `head ${head}` });
    const context = canvas.getContext("2d"), image = context.createImageData(size, size);
    const from = (view.layer * heads + head) * size * size;
    for (let i = 0; i < size * size; i++)
      image.data.set([0, 114, 178, bytes[from + i]], 4 * i);
    context.putImageData(image, 0, 0);
    return element("figure", {}, canvas, element("figcaption", {}, `head ${head}`));
  });
  const tools = element("div", { class: "bar" },
    choice("line", looked().map((l) => [l.label, l.label]), line.label,
      (value) => { view.looked = value; }),
    choice("layer", [...Array(layers).keys()].map((n) => [n, n]), view.layer,
      (value) => { view.layer = Number(value); }));
  return [tools, element("div", { class: "maps" }, ...maps)];
}

const looked = () => data.lines.filter((line) => line.attention);

function runs() {
  const head = ["run", ...data.fields, "raw records"];
  const rows = data.runs.map((run) => element("tr", {},
    element("th", { scope: "row" }, run.name), ...run.values.map((v) => element("td", {}, v)),
    element("td", {}, ...run.links.map(([name, href]) => element("a", { href }, name)))));
  return element("div", { class: "wide words", id: "runs" }, element("table", {},
    element("caption", {}, "What the runs' configs differ in; seeds and the mirror aside."),
    element("thead", {}, element("tr", {}, ...head.map((h) => element("th", { scope: "col" }, h)))),
    element("tbody", {}, ...rows)));
}

function choice(label, values, chosen, pick) {
  const options = values.map(([value, text]) =>
    element("option", { value, selected: String(value) === String(chosen) }, text));
  const select = element("select", { onchange: () => { pick(select.value); draw(); } }, ...options);
  return element("label", {}, `${label} `, select);
}

function toggle(label, field) {
  const box = element("input", { type: "checkbox", checked: view[field],
    onchange: () => { view[field] = box.checked; draw(); } });
  return element("label", {}, box, ` ${label}`);
}

function chips(filter) {
  return data.lines.filter((line) => line.label.toLowerCase().includes(filter)).map((line) => {
    const key = element("svg", { viewBox: "0 0 34 12" }, element("path", { d: "M0 6H34",
      stroke: line.color, "stroke-width": 4, "stroke-dasharray": line.dash, fill: "none" }));
    return element("button", { type: "button", "aria-pressed": String(line.shown),
      title: "click: show or hide; double click: only this one",
      onclick: () => { line.shown = !line.shown; draw(); },
      ondblclick: () => { data.lines.forEach((o) => { o.shown = o === line; }); draw(); },
    }, key, line.label);
  });
}

// The parts of the page, made once; `draw` fills them again after each choice.
const slots = Object.fromEntries(["chips", "length", "table", "training", "position",
  "attention"].map((name) => [name, element("div", { id: name })]));
slots.chips.className = "chips";
const search = element("input", { type: "search", placeholder: "find a line",
  "aria-label": "find a line", oninput: () => slots.chips.replaceChildren(...chips(wanted())) });
const wanted = () => search.value.trim().toLowerCase();

function all(shown) {
  const hit = (line) => line.label.toLowerCase().includes(wanted());
  return () => { data.lines.filter(hit).forEach((line) => { line.shown = shown; }); draw(); };
}

function draw() {
  slots.chips.replaceChildren(...chips(wanted()));
  if (!metric()) return;
  slots.length.replaceChildren(byLength());
  slots.table.replaceChildren(table());
  slots.training.replaceChildren(training());
  if (lengths().length) slots.position.replaceChildren(byPosition());
  if (looked().length) slots.attention.replaceChildren(...attention());
}

function section(title, ...parts) {
  return element("section", {}, element("h2", {}, title), ...parts);
}

function build() {
  const seeds = Math.max(0, ...data.lines.flatMap((line) =>
    Object.values(line.cells).flatMap((cells) => cells.map((row) => row[4].length))));
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  document.getElementById("lead").textContent = [count(data.runs.length, "run"),
    count(data.lines.length, "line"), `up to ${count(seeds, "seed")}`].join(" · ");
  const main = document.getElementById("main");
  main.replaceChildren();
  if (metric()) {
    const button = (text, act) => element("button", { type: "button", onclick: act }, text);
    const tools = element("div", { class: "bar" },
      choice("metric", data.metrics.map((m) => [m.name, m.label]), view.metric,
        (value) => { view.metric = value; }),
      toggle("seeds", "seeds"), toggle("intervals", "band"), toggle("log scale", "log"),
      search, button("all", all(true)), button("none", all(false)));
    main.append(element("div", { class: "lines" }, tools, slots.chips),
      section("By test length", slots.length, slots.table), section("Training", slots.training));
    if (lengths().length) main.append(section("By position in the window",
      element("div", { class: "bar" }, choice("length", lengths().map((n) => [n, n]),
        lengths().at(-1), (value) => { view.length = Number(value); })), slots.position));
  }
  if (looked().length) main.append(section("Attention", element("p", {}, "Weights on test text of " +
    "the trained length, mean over examples, first seed: rows are queries, columns keys, the " +
    "first token at the top left; the ink is the root of the weight."), slots.attention));
  main.append(section("Runs", runs()));
  draw();
}

build();
addEventListener("resize", draw);
