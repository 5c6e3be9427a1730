"use strict";
// Small helpers: elements, numbers as people read them, ticks.

const SVG = "http://www.w3.org/2000/svg";

function add(parent, tag, attributes = {}, ...children) {
  const node = parent instanceof SVGElement || tag === "svg"
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  parent.append(node);
  return node;
}

const minus = (text) => text.replace("-", "−");

function grouped(number) {  // thin spaces between thousands
  const [whole, ...rest] = String(number).split(".");
  return minus([whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009"), ...rest].join("."));
}

function value(number) {  // about three significant digits, as few as say something
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size >= 100) return grouped(Math.round(number));
  if (size >= 10) return minus(number.toFixed(1));
  if (size >= 0.1 || size === 0) return minus(number.toFixed(2));
  if (size >= 0.001) return minus(number.toFixed(3));
  return minus(number.toExponential(1));
}

function steps(number) {
  if (number >= 1e6) return trim(number / 1e6) + "M";
  if (number >= 1e3) return trim(number / 1e3) + "k";
  return String(Math.round(number));
}

const trim = (number) => String(Number(number.toPrecision(4)));

function interval(item) {
  if (item.value === null) return "–";
  return item.low === null ? value(item.value) : `${value(item.value)} [${value(item.low)}, ${value(item.high)}]`;
}

function count(number, one, many) {
  return `${grouped(number)} ${number === 1 ? one : many || one + "s"}`;
}

function list(items) {
  if (items.length < 2) return items.join("");
  return items.slice(0, -1).join(", ") + " and " + items[items.length - 1];
}

function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

function tickLabel(number, all) {  // one number of decimals for a whole axis
  const span = Math.max(...all.map(Math.abs));
  if (span >= 10000) return minus(steps(Math.abs(number))).replace(/^/, number < 0 ? "−" : "");
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : span;
  const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(step || 1) + 1e-9)));
  const shown = /5$/.test((step * 10 ** decimals).toFixed(1)) ? decimals + 1 : decimals;
  return decimals > 4 ? minus(number.toExponential(0)) : grouped(number.toFixed(shown));
}

function span(values) {
  let low = Infinity, high = -Infinity;
  for (const one of values) if (one !== null && one !== undefined) { if (one < low) low = one; if (one > high) high = one; }
  return low <= high ? [low, high] : null;
}

function at(xs, ys, x) {  // linear in between; null outside
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let i = xs.findIndex((one) => one >= x);
  if (xs[i] === x || i === 0) return ys[i];
  if (ys[i] === null || ys[i - 1] === null) return null;
  const share = (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  return ys[i - 1] + share * (ys[i] - ys[i - 1]);
}
