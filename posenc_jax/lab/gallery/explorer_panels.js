// The panels of the explorer; `view`, `data`, `part`, `summary` and `written` are of explorer.js.
const DISTANCES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 255];
const DEEP = 12;  // of scores: a key this far below the best has less than e^-12 of its weight
const TRAIL = 8;  // earlier positions that a clock shows

function panels(shown) {
  const drawn = shown.filter((method) => !method.refused);
  const turning = drawn.filter((method) => method.angle);
  const coded = drawn.filter((method) => method.code);
  const learned = drawn.filter((method) => method.maps);
  return [
    element("div", { class: "chosen" }, ...shown.map(chip)),
    drawn.length ? section("Score by distance", "What position adds to the score of a key this far "
      + "before the query: the mean over positions, with a band from the least to the greatest; by "
      + "content, the middle 80% of contents, heads and positions. A line ends where no token sees "
      + `that far. The axis ends ${DEEP} below the greatest score, where softmax leaves nothing; the `
      + "table has the scores below.", kernels(drawn), table(drawn)) : null,
    drawn.length ? section("Longer sequences", "The same for the last token of sequences of "
      + `${data.lengths.join(", ")} tokens; dotted: the trained length. An empty panel: refused.`,
      grid(drawn.map(past))) : null,
    drawn.length ? section("Queries and keys", `Scores of ${data.matrix} queries (rows) and keys `
      + "(columns), for each head, or each layer, that differs. Blue is below zero, orange above; "
      + "grey is not seen, or not defined.", grid(drawn.map(matrices), "maps")) : null,
    learned.length ? section("Attention of a trained model", trainedText(),
      ...learned.map(attention)) : null,
    turning.length ? section("Angles", "The angle of each pair of channels (rows, the fastest at "
      + "the top) at each position (columns). Colours are those of the clock, which shows the pair "
      + "and the position of the controls; the lines mark them.", grid(turning.map(angles))) : null,
    turning.length ? section("Wavelengths", "Tokens for a whole turn of each pair, on a log scale; "
      + "dotted: the trained length. Pairs above it never make a whole turn in training. A pair "
      + "that does not turn evenly has none.", waves(turning)) : null,
    coded.length ? section("Codes", "Channels (rows) of the code at each position (columns), "
      + "before it is projected; at most 64 are shown.", grid(coded.map(codes))) : null,
  ].filter((made) => made);
}

function rounded(value) {
  return number(value).replace(/^-(0\.0+)$/, "$1");
}

function section(title, said, ...parts) {
  return element("section", {}, element("h2", {}, title), element("p", { class: "muted" }, said),
    ...parts);
}

function grid(figures, kind = "") {
  return element("div", { class: `grid ${kind}` }, ...figures);
}

function key(method) {
  const line = element("line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: method.color,
    "stroke-width": 3, "stroke-dasharray": method.dash });
  return element("svg", { viewBox: "0 0 28 12", class: "key", "aria-hidden": "true" }, line);
}

function chip(method) {
  const own = Object.entries(method.options).map(([name, value]) =>
    `${LABELS[name]} ${written(value)}`).join(" · ");
  const facts = data.methods[method.name].facts;
  const refused = method.refused && element("p", { class: "refused" }, `refused: ${method.refused}`);
  return element("article", {}, element("h3", {}, key(method), method.name),
    element("p", {}, summary(method.name)),
    element("p", {}, element("code", {}, facts.formula.replaceAll("`", ""))),
    element("p", { class: "muted" }, `${own}. `, ...cited(facts.paper)), refused);
}

function cited(paper) {  // split leaves the arXiv ids at odd places
  return paper.split(/(?:arXiv )?\b(\d{4}\.\d{5})\b/).map((part, i) => i % 2 === 0 ? part
    : element("a", { href: `https://arxiv.org/abs/${part}` }, `arXiv ${part}`));
}

// A chart of curves {y, low, high, color, dash, width} over 0, 1, 2, ...; NaN is a gap.
// It ends `deep` below the greatest value; a curve that goes on below leaves it there.
function lines(curves, { W, H, x, y, title, markX, markY, log, deep = Infinity }) {
  const left = 46, right = 10, top = 20, bottom = 38, scale = log ? Math.log10 : (v) => v;
  const ends = curves.flatMap((c) => [...c.y, ...(c.low ?? []), ...(c.high ?? [])]);
  const known = [...ends.filter(Number.isFinite), ...(markY ? [markY] : [])].map(scale);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  if (!known.length) return svg;
  const greatest = Math.max(...known), floor = greatest - deep;
  let [low, high] = [Math.max(Math.min(...known), floor), greatest];
  curves = curves.map((c) => ({ ...c, y: leaving(c.y, floor),
    low: c.low && c.low.map((v) => Math.max(v, floor)),
    high: c.high && c.high.map((v) => Math.max(v, floor)) }));
  const room = 0.05 * (high - low) || 0.5;
  [low, high] = [low - room, high + room];
  const most = Math.max(...curves.map((c) => c.y.length)) - 1;
  const X = (i) => left + i / most * (W - left - right);
  const Y = (v) => H - bottom - (scale(v) - low) / (high - low) * (H - top - bottom);
  const text = (at, value) => svg.append(element("text", at, String(value)));
  const line = (at) => svg.append(element("line", { stroke: "var(--grid)", ...at }));
  const powers = [...Array(12).keys()].map((n) => 10 ** n).filter((v) => scale(v) > low
    && scale(v) < high);
  for (const tick of log ? powers : ticks(low, high)) {
    line({ x1: left, x2: W - right, y1: Y(tick), y2: Y(tick) });
    text({ x: left - 6, y: Y(tick) + 4, "text-anchor": "end" }, written(+tick.toPrecision(6)));
  }
  for (const tick of ticks(0, most).filter(Number.isInteger))
    text({ x: X(tick), y: H - bottom + 17, "text-anchor": "middle" }, tick);
  const dotted = { stroke: "var(--muted)", "stroke-dasharray": "2 4" };
  if (markX <= most) line({ x1: X(markX), x2: X(markX), y1: top, y2: H - bottom, ...dotted });
  if (markY) line({ x1: left, x2: W - right, y1: Y(markY), y2: Y(markY), ...dotted });
  text({ x: (left + W - right) / 2, y: H - 4, "text-anchor": "middle" }, x);
  text({ x: 4, y: 11 }, y);
  for (const { y: values, low: from, high: to, color, dash, width } of curves) {
    if (from) svg.append(element("path", { d: band(from, to, X, Y), fill: color, opacity: 0.2 }));
    svg.append(element("path", { d: path(values, X, Y), fill: "none", stroke: color,
      "stroke-width": width ?? 2, "stroke-dasharray": dash, "stroke-linejoin": "round",
      class: "line" }));
  }
  return svg;
}

// The values down to a floor: the first below it is on it, the next ones are gaps.
function leaving(values, floor) {
  return values.map((v, i) => !(v < floor) ? v : values[i - 1] >= floor ? floor : NaN);
}

function path(values, X, Y) {
  let d = "", open = false;
  values.forEach((value, i) => {
    if (Number.isFinite(value)) d += `${open ? "L" : "M"}${X(i).toFixed(1)},${Y(value).toFixed(1)}`;
    open = Number.isFinite(value);
  });
  return d.replace(/M([\d.,-]+)(?=M|$)/g, "M$1h0.1");  // a value alone is a dot
}

function band(from, to, X, Y) {
  const at = [...from.keys()].filter((i) => Number.isFinite(from[i]) && Number.isFinite(to[i]));
  const end = (values) => (i) => `${X(i).toFixed(1)},${Y(values[i]).toFixed(1)}`;
  return at.length ? `M${[...at.map(end(to)), ...at.reverse().map(end(from))].join("L")}Z` : "";
}

function kernel(method) {
  const row = part(method.kernel, method.row);
  const [y, low, high] = [0, 1, 2].map((i) => i < row.shape[0] ? part(row, i).values : null);
  return { y, low, high, color: method.color, dash: method.dash };
}

function kernels(drawn) {
  const W = Math.max(300, document.getElementById("main").clientWidth);
  const svg = lines(drawn.map(kernel), { W, H: Math.max(240, Math.min(380, 0.42 * W)),
    x: "distance from query to key", y: "score", markX: view.knobs.length, deep: DEEP,
    title: `score by distance: ${drawn.map((method) => method.name).join(", ")}` });
  svg.id = "kernels";
  return svg;
}

function table(drawn) {
  const cell = (value) => element("td", {}, Number.isFinite(value) ? rounded(value) : "–");
  const rows = drawn.map((method) => {
    const { y } = kernel(method);
    return element("tr", {}, element("th", { scope: "row" }, method.name),
      ...DISTANCES.map((d) => cell(y[d])));
  });
  const head = DISTANCES.map((d) => element("th", { scope: "col" }, d));
  return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "numbers" },
    element("table", { id: "numbers" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "distance"), ...head)),
      element("tbody", {}, ...rows)));
}

function figure(method, said, ...parts) {
  return element("figure", {}, element("figcaption", {}, key(method), element("b", {}, method.name),
    said), ...parts);
}

function past(method) {
  const found = method.past && part(method.past, method.row);
  const all = data.lengths.map((length, i) => {
    const whole = found ? part(found, i).values : kernel(method).y;
    return { lengths: [length], y: whole.slice(0, length), color: `var(--c${i})` };
  });
  // Where a longer sequence begins as a shorter one, one line is both: two would blend.
  const curves = all.filter((one, i) => {
    const longer = all[i + 1];
    if (!longer || !begins(one.y, longer.y)) return true;
    longer.lengths.unshift(...one.lengths);
    return false;
  });
  const labels = curves.map(({ lengths, color }) => element("span", { style: `color:${color}` },
    ` ${lengths.join(", ")}`));
  return figure(method, element("span", {}, " n =", ...labels), lines(curves, { W: 340, H: 200,
    x: "distance", y: "score", markX: view.knobs.length, title: `longer sequences: ${method.name}` }));
}

function begins(short, long) {
  return [...short].every((value, i) => value === long[i] || Math.abs(value - long[i]) < 1e-2
    || (Number.isNaN(value) && Number.isNaN(long[i])));
}

// A picture of [rows, columns], a pixel each.
function heat(columns, rows, color, title) {
  const canvas = element("canvas", { width: columns, height: rows, role: "img",
    "aria-label": title });
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < columns * rows; i++) image.data.set([...color(i), 255], 4 * i);
  context.putImageData(image, 0, 0);
  return canvas;
}

function rgb(variable) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${variable}`).trim();
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mix(from, to, share) {
  return from.map((value, i) => Math.round(value + share * (to[i] - value)));
}

// Colours of signed values, and of NaN, on this page.
function signed(values) {
  const size = Math.max(...[...values].filter(Number.isFinite).map(Math.abs), 1e-9);
  const [page, below, above, none] = ["page", "c0", "c1", "grid"].map(rgb);
  return (value) => Number.isFinite(value)
    ? mix(page, value < 0 ? below : above, Math.abs(value) / size) : none;
}

// Colours of angles in turns: page at 0, orange, ink at half a turn, blue.
function wheel() {
  const stops = ["page", "c1", "ink", "c0", "page"].map(rgb);
  return (turn) => mix(stops[Math.floor(4 * turn)], stops[Math.floor(4 * turn) + 1], 4 * turn % 1);
}

function matrices(method) {
  const n = data.matrix, byLayer = data.methods[method.name].kind === "by_layer";
  const made = [...new Set(method.rows)].map((row) => {
    const means = part(part(method.kernel, row), 0).values;
    const own = method.matrix && part(method.matrix, row).values;
    const values = own ?? Float32Array.from({ length: n * n }, (_, i) =>
      Math.floor(i / n) >= i % n ? means[Math.floor(i / n) - i % n] : NaN);
    const color = signed(values);
    const of = method.rows.flatMap((other, i) => other === row ? [i + 1] : []);
    const said = `${byLayer ? "layer" : "head"} ${of.join(", ")}`;
    const known = [...values].filter(Number.isFinite);
    const ends = known.length ? `${rounded(Math.min(...known))} to ${rounded(Math.max(...known))}`
      : "nothing is defined";
    return element("div", {}, heat(n, n, (i) => color(values[i]), `${method.name}, ${said}`),
      element("small", {}, method.rows.length > 1 ? `${said}: ${ends}` : ends));
  });
  return figure(method, "", element("div", { class: "heads" }, ...made));
}

function trainedText() {
  const [layers, heads, n] = Object.values(data.trained)[0].shape;
  return `Small models of ${layers} layers and ${heads} heads, each trained on windows of ${n} bytes `
    + `of source text: ${Object.keys(data.trained).join(", ")}. The weights of the head of the `
    + `controls for ${n} bytes (rows: queries, columns: keys), the mean over windows: alone, as in `
    + `training; after ${n} other bytes, beyond the trained length, with the keys of both, parted by `
    + "the line; and the difference, beyond minus within, for the keys that both have: blue is less "
    + "attention, orange more. Colours are square roots.";
}

// Maps of one head in each layer: within, beyond, and their difference.
function attention(method) {
  const [layers, heads, n] = data.trained[method.name].shape, head = Math.min(view.row, heads - 1);
  const whole = layers * heads * n * n, page = rgb("page"), ink = rgb("c0");
  const root = (code) => mix(page, ink, code / 255), weight = (code) => (code / 255) ** 2;
  const rows = [...Array(layers).keys()].map((layer) => {
    const at = layer * heads + head, title = `${method.name}, layer ${layer + 1}, head ${head + 1}`;
    const within = method.maps.subarray(at * n * n, (at + 1) * n * n);
    const beyond = method.maps.subarray(whole + 2 * at * n * n, whole + 2 * (at + 1) * n * n);
    const gap = Float32Array.from(within, (code, i) =>
      weight(beyond[2 * n * Math.floor(i / n) + n + i % n]) - weight(code));
    const most = Math.max(...gap.map(Math.abs));
    const roots = gap.map((x) => Math.sign(x) * Math.sqrt(Math.abs(x))), color = signed(roots);
    return element("div", { class: "sides" },
      named(`layer ${layer + 1}, within`, heat(n, n, (i) => root(within[i]), `${title}, within`)),
      named("beyond", marked(heat(2 * n, n, (i) => root(beyond[i]), `${title}, beyond`), 0.5)),
      named(`difference, at most ${most.toFixed(3)}`,
        heat(n, n, (i) => color(roots[i]), `${title}, difference`)));
  });
  return figure(method, ` head ${head + 1}`, ...rows);
}

function named(text, picture) {
  return element("div", {}, element("small", {}, text), picture);
}

function marked(canvas, x, y, length, most) {
  const at = (share) => `${100 * share}%`;
  return element("div", { class: "marked" }, canvas,
    element("i", { style: `left:${at(x)};top:0;bottom:0` }),
    y == null ? null : element("i", { style: `top:${at(y)};left:0;right:0` }),
    length < most ? element("i", { class: "trained", style: `left:${at(length / most)};top:0;bottom:0` })
      : null);
}

function angles(method) {
  const { values, shape: [pairs, span] } = part(method.angle, Math.min(method.row,
    method.angle.shape[0] - 1));
  const color = wheel(), k = Math.min(view.pair, pairs - 1);
  const picture = heat(span, pairs, (i) => color(values[i]), `angles of ${method.name}`);
  return figure(method, ` pair ${k}, position ${view.time}`,
    marked(picture, (view.time + 0.5) / span, (k + 0.5) / pairs, view.knobs.length, span),
    clock(method, values.subarray(k * span, (k + 1) * span), k));
}

function clock(method, turns, k) {
  const wave = part(method.wave, Math.min(method.row, method.wave.shape[0] - 1)).values[k];
  const hand = (turn, attributes) => element("line", { x1: 0, y1: 0,
    x2: (40 * Math.sin(2 * Math.PI * turn)).toFixed(2),
    y2: (-40 * Math.cos(2 * Math.PI * turn)).toFixed(2), "stroke-linecap": "round", ...attributes });
  const svg = element("svg", { viewBox: "-50 -50 100 100", role: "img", class: "hands",
    "aria-label": `${method.name}: ${turns[view.time].toFixed(3)} of a turn` });
  for (let back = Math.min(TRAIL, view.time); back > 0; back--)
    svg.append(hand(turns[view.time - back], { stroke: "var(--muted)", "stroke-width": 1.5,
      opacity: 0.5 * (1 - back / (TRAIL + 1)) }));
  svg.append(hand(turns[view.time], { stroke: "var(--ink)", "stroke-width": 4 }),
    element("circle", { r: 4, fill: "var(--ink)" }));
  const said = Number.isFinite(wave) ? `a turn in ${written(+wave.toPrecision(4))} tokens`
    : "no even turn";
  return element("div", { class: "clock" }, element("div", { class: "dial" }, svg),
    element("small", {}, `${turns[view.time].toFixed(3)} of a turn; ${said}`));
}

function waves(turning) {
  const W = Math.max(300, document.getElementById("main").clientWidth);
  const curves = turning.map((method) => ({ color: method.color, dash: method.dash,
    y: part(method.wave, Math.min(method.row, method.wave.shape[0] - 1)).values }));
  const svg = lines(curves, { W, H: Math.max(220, Math.min(300, 0.4 * W)), x: "pair of channels",
    y: "tokens", markY: view.knobs.length, log: true, title: "wavelengths" });
  svg.id = "waves";
  return svg;
}

function codes(method) {
  const { values, shape: [channels, span] } = method.code, color = signed(values);
  const picture = heat(span, channels, (i) => color(values[i]), `code of ${method.name}`);
  return figure(method, ` ${channels} channel${channels > 1 ? "s" : ""}`,
    marked(picture, (view.time + 0.5) / span, null, view.knobs.length, span));
}
