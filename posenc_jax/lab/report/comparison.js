// Builds the page from `data`. Texts from runs become text nodes, never markup.
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
const view = { metric: data.metrics[0]?.name, curve: Object.keys(data.training)[0], length: null, looked: null, layer: 0,
  seeds: true, band: true };
const shown = () => data.lines.filter((line) => line.shown);

const metric = () => data.metrics.find((found) => found.name === view.metric);

function byLength() {
  return chart((line) => line.cells[view.metric] ?? [], {
    title: "by length", axis: "test length (log scale); dotted: trained length",
    yAxis: metric().label, logX: true, dots: true, share: metric().share,
    baselines: data.baselines[view.metric],
    trained: (line) => line.trained, head: (x) => `length ${x}` });
}

// A row of `cells`: length, mean, low, high, seeds, then texts: mean, interval, every seed.
function table() {
  const lengths = [...new Set(shown().flatMap((line) =>
    (line.cells[view.metric] ?? []).map((row) => row[0])))].sort((a, b) => a - b);
  const sign = metric().better === "higher" ? -1 : 1;
  const at = (line, n) => (line.cells[view.metric] ?? []).find((row) => row[0] === n);
  const finite = (n) => shown().map((line) => at(line, n)).filter((row) => row && row[1] != null);
  const best = lengths.map((n) =>
    finite(n).sort((a, b) => sign * (a[1] - b[1]))[0]?.[5]);  // as text: ties in print are bold
  const rows = shown().map((line) => element("tr", {},
    element("th", { scope: "row" }, element("span", { class: "key",
      style: `background:${line.color}` }), line.label),
    ...lengths.map((n, i) => {
      const row = at(line, n);
      if (!row) return element("td", { class: "muted" }, "—");
      const [value, interval, seeds] = row.slice(5), bold = value === best[i] && shown().length > 1;
      return element("td", { title: `seeds: ${seeds}` }, bold ? element("b", {}, value) : value,
        interval ? element("small", {}, interval) : null);
    })));
  const head = element("tr", {}, element("th", {}, "length"),
    ...lengths.map((n) => element("th", { scope: "col" }, String(n))));
  const caption = `${metric().label}, ${metric().better} is better: mean and ${metric().interval} ` +
    "over seeds; bold: the best of the lines shown, ties at the printed precision too; " +
    "point at a cell for its seeds";
  return element("div", { class: "wide" }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, head), element("tbody", {}, ...rows)));
}

function training() {
  return chart((line) => line.training[view.curve], { title: data.training[view.curve],
    axis: "step (optimizer updates)", yAxis: data.training[view.curve],
    logY: view.curve === "grad_norm", head: (x) => `step ${x}` });
}

function lengths() {
  return [...new Set(data.lines.flatMap((line) => Object.keys(line.positions)))].map(Number)
    .sort((a, b) => a - b);
}

function byPosition() {
  const length = view.length ?? lengths().at(-1);
  // Records count positions from 0, the page from 1.
  return chart((line) => (line.positions[length] ?? []).map((row) => [row[0] + 1, ...row.slice(1)]),
    { title: "by position", axis: "position, log scale; dotted: trained length",
      yAxis: data.metrics[0].label, logX: true, share: data.metrics[0].share,
      trained: (line) => line.trained, head: (x) => `from position ${x}` });
}

// A square for each head: rows are queries, columns keys, opacity is the root of the weight.
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
    element("caption", {}, "What the runs' configs differ in, ignoring seeds and W&B settings."),
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

// The parts of the page, made once; `draw` fills them after each choice.
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
  if (view.curve) slots.training.replaceChildren(training());
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
      toggle("seeds", "seeds"), toggle("intervals of 3 seeds or more", "band"),
      search, button("all", all(true)), button("none", all(false)));
    main.append(element("div", { class: "lines" }, tools, slots.chips),
      section("By test length", slots.length, slots.table));
    const trained = Object.entries(data.training);
    if (trained.length) main.append(section("Training", element("div", { class: "bar" },
      choice("curve", trained, view.curve, (value) => { view.curve = value; })), slots.training));
    if (lengths().length) main.append(section("By position in the window",
      element("div", { class: "bar" }, choice("length", lengths().map((n) => [n, n]),
        lengths().at(-1), (value) => { view.length = Number(value); })), slots.position));
  }
  if (looked().length) main.append(section("Attention", element("p", {}, "Weights on test text of " +
    "the trained length, mean over examples, first seed: rows are queries, columns keys, the " +
    "first token at the top left; opacity is the square root of the weight."), slots.attention));
  main.append(section("Runs", runs()));
  draw();
}

build();
addEventListener("resize", draw);
