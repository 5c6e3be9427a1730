"use strict";
// A line chart: lines with bands over shared axes, labels at their ends, values under the pointer.

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const PUB_DASHES = ["5 3", "1.5 3", "8 3 1.5 3", "10 4", "3 2"];
const colour = (line) => `var(--c${line % 8})`;
const dash = (line) => DASHES[Math.floor(line / 8) % DASHES.length];
let clips = 0;

function swatch(parent, stroke, pattern) {
  const box = add(parent, "svg", {class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true"});
  add(box, "line", {x1: 0, x2: 18, y1: 4, y2: 4, "stroke-width": 2.6, "stroke-dasharray": pattern || null, style: `stroke:${stroke}`});
  return box;
}

function path(xs, ys, x, y) {
  let out = "", open = false;
  for (let i = 0; i < xs.length; i++) {
    if (ys[i] === null || ys[i] === undefined) { open = false; continue; }
    out += `${open ? "L" : "M"}${x(xs[i]).toFixed(1)},${y(ys[i]).toFixed(1)}`;
    open = true;
  }
  return out;
}

function area(xs, low, high, x, y) {  // one closed shape per stretch without gaps
  let out = "", run = [];
  const close = () => {
    if (run.length > 1) {
      out += "M" + run.map((i) => `${x(xs[i]).toFixed(1)},${y(high[i]).toFixed(1)}`).join("L") + "L" +
        run.reverse().map((i) => `${x(xs[i]).toFixed(1)},${y(low[i]).toFixed(1)}`).join("L") + "Z";
    }
    run = [];
  };
  for (let i = 0; i < xs.length; i++) if (low[i] === null || low[i] === undefined) close(); else run.push(i);
  close();
  return out;
}

function yDomain(spec, high) {
  const shown = [];
  for (const one of spec.series) {
    one.xs.forEach((x, i) => { if (x <= high) shown.push(one.ys[i], one.low && one.low[i], one.high && one.high[i]); });
    if (one.xs.length && one.xs[one.xs.length - 1] > high) shown.push(at(one.xs, one.ys, high));
    if (spec.each) for (const run of one.runs || []) shown.push(...run.values);
  }
  const found = span(shown);
  if (spec.domain) return found ? [Math.min(spec.domain[0], found[0]), Math.max(spec.domain[1], found[1])] : spec.domain;
  if (!found) return [0, 1];
  let [low, top] = found;
  if (low >= 0 && low < 0.6 * top) low = 0;
  if (low === top) { low -= Math.abs(low) * 0.1 || 1; top += Math.abs(top) * 0.1 || 1; }
  return [low, top + (low === 0 ? 0 : 0.02 * (top - low))];
}

function endLabels(spec, high, x, y, top, bottom) {  // move labels apart, keep their order
  const found = [];
  for (const one of spec.series) {
    if (!one.label) continue;
    const last = Math.min(one.xs[one.xs.length - 1], high);
    const height = at(one.xs, one.ys, last);
    if (height !== null) found.push({one, x: x(last), at: y(height), y: y(height)});
  }
  found.sort((a, b) => a.y - b.y);
  const gap = 13;
  for (let pass = 0; pass < 40; pass++) {
    for (let i = 1; i < found.length; i++) {
      const overlap = gap - (found[i].y - found[i - 1].y);
      if (overlap > 0.1) { found[i].y += overlap / 2; found[i - 1].y -= overlap / 2; }
    }
    for (const one of found) one.y = Math.max(top, Math.min(bottom, one.y));
  }
  return found;
}

// spec: {series: [{name, stroke, dash, pub, label, xs, ys, low, high, counts, complete, runs}], domain, end, each, height,
//        xLabel, title, atX, percent}
function lineChart(box, spec) {
  const width = Math.max(240, Math.round(spec.width || 360));
  const height = spec.height || Math.round(Math.min(300, Math.max(190, width * 0.56)));
  const longest = Math.max(0, ...spec.series.map((one) => (one.label || "").length));
  const margin = {top: 10, right: longest ? Math.min(width * 0.34, longest * 6.1 + 12) : 12, bottom: 32, left: 40};
  const all = span(spec.series.flatMap((one) => one.xs)) || [0, 1];
  const left = spec.start === undefined ? 0 : spec.start;
  const end = spec.end || all[1] || 1;
  const [low, high] = yDomain(spec, end);
  const x = (v) => margin.left + (v - left) / (end - left || 1) * (width - margin.left - margin.right);
  const y = (v) => height - margin.bottom - (v - low) / (high - low || 1) * (height - margin.top - margin.bottom);
  const svg = add(box, "svg", {viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": spec.title});
  const yTicks = ticks(low, high, height / 52);
  const xTicks = ticks(left, end, (width - margin.left - margin.right) / 72);
  for (const tick of yTicks) {
    add(svg, "line", {class: "rule", x1: margin.left, x2: width - margin.right, y1: y(tick), y2: y(tick)});
    add(svg, "text", {x: margin.left - 7, y: y(tick) + 3.8, "text-anchor": "end", text: tickLabel(tick, yTicks)});
  }
  const floor = height - margin.bottom;
  for (const tick of xTicks) {
    add(svg, "line", {class: "axis", x1: x(tick), x2: x(tick), y1: floor + 2, y2: floor + 5});
    add(svg, "text", {x: x(tick), y: floor + 17, "text-anchor": "middle", text: spec.atX ? tickLabel(tick, xTicks) : steps(tick)});
  }
  if (spec.xLabel) add(svg, "text", {x: width - margin.right, y: height - 2, "text-anchor": "end", text: spec.xLabel});
  const clip = `clip${clips++}`;
  add(add(add(svg, "defs"), "clipPath", {id: clip}), "rect",
    {x: margin.left - 1, y: 0, width: Math.max(1, width - margin.left - margin.right + 3), height: floor + 3});
  const plot = add(svg, "g", {"clip-path": `url(#${clip})`});
  for (const one of spec.series) {
    if (one.low && one.low.length) add(plot, "path", {class: "band", d: area(one.xs, one.low, one.high, x, y), style: `fill:${one.stroke}`});
  }
  if (spec.each) {
    for (const one of spec.series) for (const run of one.runs || []) {
      add(plot, "path", {class: "run", d: path(one.xs, run.values, x, y), style: `stroke:${one.stroke}`});
    }
  }
  for (const one of spec.series) {
    const style = one.pub ? null : `stroke:${one.stroke}`;
    const kind = one.pub ? "pub" : "line";
    const cut = one.complete && one.complete < one.xs[one.xs.length - 1] ? one.xs.indexOf(one.complete) : -1;
    if (one.xs.length === 1) add(plot, "circle", {cx: x(one.xs[0]), cy: y(one.ys[0]), r: 2.6, style: `fill:${one.stroke}`});
    if (cut < 0) {
      add(plot, "path", {class: kind, d: path(one.xs, one.ys, x, y), style, "stroke-dasharray": one.dash || null, "data-series": one.name});
    } else {  // dotted where not all runs have come
      add(plot, "path", {class: kind, d: path(one.xs.slice(0, cut + 1), one.ys.slice(0, cut + 1), x, y), style, "stroke-dasharray": one.dash || null, "data-series": one.name});
      add(plot, "path", {class: kind + " tail", d: path(one.xs.slice(cut), one.ys.slice(cut), x, y), style});
    }
  }
  for (const found of endLabels(spec, end, x, y, margin.top + 4, floor - 2)) {
    const tint = found.one.pub ? "fill:var(--pub)" : `fill:color-mix(in oklab, ${found.one.stroke} 78%, var(--ink))`;
    add(svg, "text", {class: "label halo", x: found.x + 6, y: found.y + 4, text: found.one.label, style: tint});
  }
  hover(svg, spec, {x, y, width, margin, floor, left, end});
  return svg;
}

function hover(svg, spec, frame) {
  const own = spec.series.filter((one) => !one.pub);
  const stops = [...new Set((own.length ? own : spec.series).flatMap((one) => one.xs))].filter((one) => one <= frame.end).sort((a, b) => a - b);
  if (!stops.length) return;
  const mark = add(svg, "g", {visibility: "hidden"});
  let place = -1;
  const show = (index, clientX, clientY) => {
    place = Math.max(0, Math.min(stops.length - 1, index));
    const stop = stops[place];
    mark.replaceChildren();
    add(mark, "line", {class: "axis", x1: frame.x(stop), x2: frame.x(stop), y1: frame.margin.top, y2: frame.floor});
    const rows = [];
    for (const one of spec.series) {
      const height = at(one.xs, one.ys, stop);
      if (height === null) continue;
      add(mark, "circle", {cx: frame.x(stop), cy: frame.y(height), r: 3, style: `fill:${one.pub ? "var(--pub)" : one.stroke}`});
      const i = one.xs.indexOf(stop);
      const ends = i >= 0 && one.low && one.low[i] !== null && one.low[i] !== undefined ? `[${value(one.low[i])}, ${value(one.high[i])}]` : "";
      const seeds = i >= 0 && one.counts ? `n = ${one.counts[i]}` : "";
      rows.push({one, height, more: [ends, seeds].filter(Boolean).join("  ")});
    }
    mark.setAttribute("visibility", "visible");
    tip(rows.sort((a, b) => b.height - a.height), spec.atX ? spec.atX(stop) : `${grouped(stop)} steps`, svg, frame.x(stop) / frame.width, clientX, clientY);
  };
  const hide = () => { mark.setAttribute("visibility", "hidden"); document.getElementById("tip").hidden = true; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = frame.left + ((event.clientX - box.left) / box.width * frame.width - frame.margin.left) /
      (frame.width - frame.margin.left - frame.margin.right) * (frame.end - frame.left);
    let best = 0;
    stops.forEach((stop, i) => { if (Math.abs(stop - wanted) < Math.abs(stops[best] - wanted)) best = i; });
    show(best, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (move) { event.preventDefault(); show(place < 0 ? stops.length - 1 : place + move); }
    if (event.key === "Escape") hide();
  });
}

function tip(rows, title, svg, share, clientX, clientY) {
  const box = document.getElementById("tip");
  box.replaceChildren();
  add(box, "div", {class: "at", text: title});
  const table = add(box, "table");
  for (const row of rows) {
    const line = add(table, "tr");
    swatch(add(line, "td"), row.one.pub ? "var(--pub)" : row.one.stroke, row.one.dash);
    add(line, "td", {text: row.one.name});
    add(line, "td", {text: value(row.height)});
    add(line, "td", {text: row.more});
  }
  box.hidden = false;
  const frame = svg.getBoundingClientRect();
  const px = clientX === undefined ? frame.left + share * frame.width : clientX;
  const py = clientY === undefined ? frame.top + 20 : clientY;
  const flip = px + box.offsetWidth + 24 > document.documentElement.clientWidth;
  const left = flip ? Math.max(4, px - box.offsetWidth - 14) : px + 14;
  box.style.left = `${left + window.scrollX}px`;
  box.style.top = `${Math.max(4, Math.min(py + 14, window.innerHeight - box.offsetHeight - 8)) + window.scrollY}px`;
}

// Estimates with intervals, one under the other. rows: [{name, stroke, value, low, high}]
function intervalChart(box, spec) {
  const width = Math.max(200, Math.round(spec.width || 260));
  const pitch = 36, top = 6, height = top + spec.rows.length * pitch + 22;
  const found = span(spec.rows.flatMap((row) => [row.value, row.low, row.high])) || [0, 1];
  const pad = (found[1] - found[0]) * 0.15 || Math.abs(found[0]) * 0.1 || 0.1;
  const [low, high] = spec.domain || [found[0] - pad, found[1] + pad];
  const x = (v) => 4 + (v - low) / (high - low) * (width - 8);
  const svg = add(box, "svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.title});
  const floor = height - 20;
  const marks = ticks(low, high, width / 64);
  for (const tick of marks) {
    add(svg, "line", {class: "rule", x1: x(tick), x2: x(tick), y1: top, y2: floor});
    add(svg, "text", {x: Math.max(10, Math.min(width - 12, x(tick))), y: height - 6, "text-anchor": "middle", text: tickLabel(tick, marks)});
  }
  if (spec.centre !== undefined) add(svg, "line", {class: "axis", x1: x(spec.centre), x2: x(spec.centre), y1: top, y2: floor});
  spec.rows.forEach((row, i) => {
    const y = top + i * pitch + 25;
    const tint = `fill:color-mix(in oklab, ${row.stroke} 78%, var(--ink))`;
    add(svg, "text", {class: "label halo", x: 2, y: y - 9, text: row.name, style: tint});
    add(svg, "text", {class: "label ink halo", x: width - 2, y: y - 9, "text-anchor": "end", text: interval(row)});
    if (row.low !== null) add(svg, "line", {x1: x(row.low), x2: x(row.high), y1: y, y2: y, "stroke-width": 5, "stroke-opacity": .35, style: `stroke:${row.stroke}`});
    add(svg, "circle", {cx: x(row.value), cy: y, r: 4, style: `fill:${row.stroke}`});
  });
  return svg;
}

// All runs of one task as dots, a row of dots per line.
function strip(box, spec) {
  const width = 220, pitch = 9, height = spec.rows.length * pitch + 4;
  const found = span(spec.rows.flatMap((row) => row.scores)) || [0, 1];
  const low = Math.min(0, found[0]), high = Math.max(0, found[1]);
  const x = (v) => 5 + (v - low) / (high - low || 1) * (width - 10);
  const svg = add(box, "svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.title});
  spec.rows.forEach((row, i) => {
    const y = 2 + pitch * (i + .5);
    add(svg, "line", {class: "rule", x1: 2, x2: width - 2, y1: y, y2: y});
    for (const score of row.scores) add(svg, "circle", {cx: x(score), cy: y, r: 3, "fill-opacity": .6, style: `fill:${row.stroke}`});
  });
}
