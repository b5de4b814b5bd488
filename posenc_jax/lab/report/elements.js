"use strict";
// What the scripts of pages share: elements of HTML and SVG, numbers, ticks of an axis.
function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "text", "rect", "title"].includes(tag);
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

// Ticks of a log axis between two powers of ten: 1, 2 and 5 times each power.
function powers(low, high) {
  const found = [];
  for (let n = Math.floor(low); n <= high; n++)
    for (const m of high - low < 2 ? [1, 2, 5] : [1])
      if (n + Math.log10(m) >= low && n + Math.log10(m) <= high) found.push(m * 10 ** n);
  return found;
}

function ticks(low, high) {
  const rough = (high - low) / 5, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * base).find((m) => m >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-6); n * step <= high + step / 1e6; n++)
    found.push(+(n * step).toPrecision(12));  // a sum of steps would be 3e-17 where 0 is meant
  return found;
}
