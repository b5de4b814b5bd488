// What is chosen, and the numbers for it; `element` is of elements.js, panels are in
// explorer_panels.js.
const data = JSON.parse(document.getElementById("data").textContent);
const NAMES = Object.keys(data.methods);
const COLORS = 7, STEP_MS = 90;
const LABELS = { base: "base", length: "trained length", factor: "factor",
  distance: "distance", beyond: "past the length", head: "head width" };
const SAID = { base: "of the frequencies: base^(-2k/C)",
  length: "tokens that the method is made for; dotted in the panels",
  factor: "of the context extension", distance: "reach of a bias or table",
  beyond: "what a method with a table does past its length", head: "channels C of a head" };
const view = { chosen: [...data.first], row: 0, pair: 0, time: 0,
  knobs: { base: 10000, length: 64, factor: 4, distance: 128, beyond: "error",
    head: 64 } };
const decoded = new Map();

// The points of a method, from base64 of gzip; see `packed` in explorer.py.
async function decode(name) {
  if (decoded.has(name)) return;
  const buffer = await unpacked(data.methods[name].bytes);
  const maps = data.trained[name] && new Uint8Array(await unpacked(data.trained[name].bytes));
  const size = new DataView(buffer).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, size));
  decoded.set(name, { ...JSON.parse(text), maps, buffer, start: 4 + size, read: new Map() });
}

async function unpacked(bytes) {
  const packed = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// A frame as {values, shape}; NaN is not defined. Turns are in [0, 1).
function frame(method, number) {
  if (number == null) return null;
  if (method.read.has(number)) return method.read.get(number);
  const [kind, offset, low, high, shape] = method.frames[number];
  const count = shape.reduce((a, b) => a * b, 1), at = method.start + offset;
  const width = { u8: 1, turn: 1, u16: 2, f32: 4 }[kind];
  const raw = method.buffer.slice(at, at + count * width);
  let values;
  if (kind === "f32") values = new Float32Array(raw);
  else if (kind === "turn") {
    const last = shape.at(-1), steps = new Uint8Array(raw);
    values = new Float32Array(count);
    for (let i = 0, sum = 0; i < count; i++) {
      sum = i % last ? (sum + steps[i]) & 255 : steps[i];
      values[i] = sum / 256;
    }
  } else {
    const codes = kind === "u8" ? new Uint8Array(raw) : new Uint16Array(raw);
    const none = kind === "u8" ? 255 : 65535;
    values = Float32Array.from(codes, (q) => q === none ? NaN : low + (high - low) * q / (none - 1));
  }
  const made = { values, shape };
  method.read.set(number, made);
  return made;
}

// The values of a method's own options, the nearest it has to those of the controls.
function options(name) {
  const own = {};
  for (const [knob, values] of Object.entries(data.methods[name].knobs))
    own[knob] = values.includes(view.knobs[knob]) ? view.knobs[knob] : values[0];
  return own;
}

// What is drawn of a method: its arrays, or `refused` and why.
function look(name) {
  const method = decoded.get(name), own = options(name);
  let index = 0;
  for (const [knob, values] of Object.entries(data.methods[name].knobs))
    index = index * values.length + values.indexOf(own[knob]);
  const point = method.points[index], order = view.chosen.indexOf(name);
  const shown = { name, options: own, maps: method.maps, color: `var(--c${order % COLORS})`,
    dash: [null, "7 3", "2 3"][Math.floor(order / COLORS) % 3] };
  if (typeof point === "string") return { ...shown, refused: point };
  for (const field of ["kernel", "matrix", "past", "angle", "wave", "code"])
    shown[field] = frame(method, point[field]);
  return { ...shown, rows: point.rows, row: point.rows[Math.min(view.row, point.rows.length - 1)] };
}

// Part i of an array's first axis.
function part({ values, shape }, i) {
  const size = values.length / shape[0];
  return { values: values.subarray(i * size, (i + 1) * size), shape: shape.slice(1) };
}

function summary(name) {
  return data.methods[name].summary.replaceAll("`", "");
}

function written(value) {
  return typeof value === "number" && value >= 1000 ? value.toLocaleString("en-US") : String(value);
}

function checkbox(name) {
  const box = element("input", { type: "checkbox", value: name, checked: view.chosen.includes(name),
    onchange: () => choose(name, box.checked) });
  return element("label", { title: summary(name) }, box, name);
}

function methodList() {
  const search = element("input", { type: "search", placeholder: "find a method",
    "aria-label": "find a method", oninput: () => {
      for (const label of list.querySelectorAll("label"))
        label.hidden = !label.textContent.includes(search.value.trim().toLowerCase());
      for (const group of list.querySelectorAll("fieldset"))
        group.hidden = [...group.querySelectorAll("label")].every((label) => label.hidden);
    } });
  const groups = Object.entries(data.families).map(([family, names]) =>
    element("fieldset", {}, element("legend", {}, family), ...names.map(checkbox)));
  const list = element("div", { class: "methods" }, ...groups);
  const none = element("button", { type: "button", onclick: () => {
    for (const box of list.querySelectorAll("input:checked")) box.checked = false;
    view.chosen = [];
    draw();
  } }, "choose none");
  return element("details", { open: innerWidth > 640 },
    element("summary", {}, "Methods"), search, none, list);
}

// A slider over a list of values, with the value written beside it.
function slider(id, label, values, current, said, onChange) {
  const output = element("output", { for: id }, written(values[current]));
  const input = element("input", { type: "range", id, min: 0, max: values.length - 1, step: 1,
    value: current, "aria-valuetext": written(values[current]), oninput: () => {
      output.textContent = written(values[input.value]);
      input.setAttribute("aria-valuetext", output.textContent);
      onChange(values[input.value]);
    } });
  return element("div", { class: "knob" }, element("label", { for: id }, label, " ", output),
    input, element("small", {}, said));
}

function knob(name) {
  const values = [...new Set(NAMES.flatMap((own) => data.methods[own].knobs[name] ?? []))];
  const set = (value) => { view.knobs[name] = value; draw(); };
  if (typeof values[0] === "number") {
    values.sort((a, b) => a - b);
    return slider(name, LABELS[name], values, values.indexOf(view.knobs[name]), SAID[name], set);
  }
  const select = element("select", { id: name, onchange: () => set(select.value) },
    ...values.map((value) => element("option", { value }, value)));
  return element("div", { class: "knob" }, element("label", { for: name }, LABELS[name]), select,
    element("small", {}, SAID[name]));
}

function controls() {
  const known = Object.keys(LABELS).filter((name) =>
    NAMES.some((own) => name in data.methods[own].knobs));
  const count = (length) => Array.from({ length }, (_, i) => i);
  const play = element("button", { type: "button", id: "play", "aria-pressed": "false",
    onclick: () => playing(play.getAttribute("aria-pressed") !== "true") }, "play");
  const knobs = [
    slider("row", "head (slope) or layer", count(6).map((i) => i + 1), 0,
      "heads of a bias have slopes or tables of their own; ALiBi's are 1/4, 1/16, 1/64, 1/256",
      (n) => { view.row = n - 1; draw(); }),
    ...known.map(knob),
    slider("pair", "pair of channels", count(data.pairs), 0, "whose rotation the clock shows",
      (k) => { view.pair = k; draw(); }),
    slider("time", "position", count(data.span), 0, "of the token that the clock shows",
      (t) => { view.time = t; draw(); }),
    play,
  ];
  document.getElementById("controls").append(methodList(),
    element("section", { "aria-label": "options" }, element("h2", {}, "Options"), ...knobs));
}

// Moves the position on; ends at the last one.
function playing(on) {
  const button = document.getElementById("play"), time = document.getElementById("time");
  button.setAttribute("aria-pressed", on);
  button.textContent = on ? "stop" : "play";
  clearInterval(playing.timer);
  if (!on) return;
  if (+time.value === data.span - 1) time.value = 0;
  playing.timer = setInterval(() => {
    time.value = +time.value + 1;
    time.oninput();
    if (+time.value === data.span - 1) playing(false);
  }, STEP_MS);
}

function choose(name, on) {
  view.chosen = view.chosen.filter((other) => other !== name);
  if (on) view.chosen.push(name);
  draw();
}

// Controls that would move nothing are switched off; the trained length is marked in every panel.
function usable(shown) {
  const usedBy = Object.fromEntries(Object.keys(LABELS).map((name) =>
    [name, (method) => name in method.options]));
  const timed = (method) => method.angle || method.code;
  const uses = { ...usedBy, length: () => true, pair: (method) => method.angle, time: timed,
    play: timed, row: (method) => method.maps || new Set(method.rows).size > 1 };
  for (const [id, use] of Object.entries(uses)) {
    const control = document.getElementById(id);
    if (control) control.disabled = !shown.some(use);
  }
}

async function draw() {
  const wanted = draw.last = [...view.chosen];
  try {
    await Promise.all(wanted.map(decode));
  } catch (error) {
    document.getElementById("main").textContent = `This browser cannot unpack the data: ${error}`;
    return;
  }
  if (draw.last !== wanted) return;  // chosen anew while the data was unpacked
  history.replaceState(null, "", `#${wanted.join("+")}`);
  const shown = wanted.map(look);
  usable(shown);
  document.getElementById("main").replaceChildren(...panels(shown));
  document.body.dataset.drawn = 1 + +(document.body.dataset.drawn ?? 0);
}

// explorer.html#rope+yarn opens with these methods.
function start() {
  const named = decodeURIComponent(location.hash.slice(1)).split("+");
  const known = named.filter((name) => NAMES.includes(name));
  if (known.length) view.chosen = known;
  controls();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

addEventListener("DOMContentLoaded", start);
