"use strict";
// The sections of the report, from the data to the page. `state` holds what the reader chose.

const lineName = (line) => data.lines[line].name;
const shown = (line) => !state.hidden.has(lineName(line));  // by name: numbers move when a live page gains a line
const visible = (items) => items.filter((item) => shown(item.line));

function section(parent, id, title, text) {
  const box = add(parent, "section", {id});
  add(box, "h2", {text: title});
  if (text) add(box, "p", {class: "soft", text});
  return box;
}

function figure(grid, title, note, draw) {
  const box = add(grid, "figure");
  const head = add(box, "div", {class: "head"});
  add(head, "h3", {text: title});
  if (note) add(head, "span", {class: "note", text: note});
  pending.push([add(box, "div", {class: "canvas"}), box, draw]);
  return box;
}

let pending = [];  // figures are drawn when the whole page is laid out, so that each knows its width

function drawPending() {
  const widths = pending.map(([canvas]) => canvas.clientWidth);
  pending.forEach(([canvas, box, draw], i) => draw(canvas, box, widths[i]));
  pending = [];
}

const gridOf = (parent, n) => add(parent, "div", {class: n === 1 ? "grid one" : n === 2 || n === 4 ? "grid two" : "grid"});

function seriesOf(curve, labelled) {
  return {
    name: lineName(curve.line), stroke: colour(curve.line), dash: dash(curve.line), label: labelled ? lineName(curve.line) : "",
    xs: curve.steps, ys: curve.mean, low: curve.low, high: curve.high, counts: curve.count, complete: curve.complete, runs: curve.runs,
  };
}

const labelled = () => data.lines.filter((_, number) => shown(number)).length <= 6;

// ---------------------------------------------------------------- header
function headline() {
  const found = data.aggregates;
  if (!found || data.lines.length < 2) return "";
  const order = [...found.rows].sort((a, b) => b.iqm.value - a.iqm.value);
  const best = order[0], pair = found.improvement.find((one) => one.first === best.line);
  const where = found.tasks.length === 1 ? `On ${found.tasks[0]}` : `Over ${count(found.tasks.length, "task")}`;
  let text = `${where}, ${lineName(best.line)} has the highest interquartile mean, ${interval(best.iqm)}`;
  if (pair) {
    const p = found.improvement.find((one) => one.first === best.line && one.second === order[1].line) || pair;
    text += `, and a run of it beats a run of ${lineName(p.second)} with probability ${interval(p)}.`;
    if (p.low === null) text += " One seed allows no interval: this may be luck.";
    else if (p.low <= 0.5) text += " That interval holds one half: these seeds do not tell the two apart.";
  } else text += ".";
  return text;
}

function header(parent) {
  const s = data.summary;
  const top = add(parent, "div", {class: "top"});
  add(top, "h1", {text: s.runs ? `${list(data.lines.slice(0, 4).map((one) => one.name))}${data.lines.length > 4 ? " and others" : ""} on ${data.tasks.length === 1 ? data.tasks[0].id : count(data.tasks.length, "task")}` : "No runs yet"});
  add(top, "button", {class: "theme", id: "theme", type: "button", text: "light / dark", "aria-label": "Switch between light and dark", onclick: switchTheme});
  if (!s.runs) { add(parent, "p", {class: "empty", text: "This report found no run folder. It fills as soon as a run has written its config."}); return; }
  const range = (all, format) => all.length === 1 ? format(all[0]) : `${format(all[0])} to ${format(all[all.length - 1])}`;
  const parts = [count(data.lines.length, "algorithm"), count(data.tasks.length, "task"), `${range(s.seeds, String)} seed${s.seeds.length === 1 && s.seeds[0] === 1 ? "" : "s"} each`];
  const more = [count(s.runs, "run")];
  if (s.steps.length) more.push(`${range(s.steps, steps)} environment steps`);
  if (s.repeat.length) more.push(`action repeat ${s.repeat.join(", ")}`);
  const states = Object.entries(s.states).filter(([name]) => name !== "finished").map(([name, n]) => `${n} ${name}`);
  if (states.length) more.push(states.join(", "));
  add(parent, "p", {class: "meta", text: `${parts.join(" × ")}  ·  ${more.join("  ·  ")}  ·  ${data.live ? "live, " : ""}${data.created}`});
  const text = headline();
  if (text) add(parent, "p", {class: "lead", text});
  if (data.warnings.length) {
    const box = add(parent, "div", {class: "warn", role: "note"});
    for (const one of data.warnings) add(box, "div", {text: one});
  }
}

function legend(parent) {
  const box = add(parent, "div", {class: "legend", role: "group", "aria-label": "Lines shown"});
  data.lines.forEach((line, number) => {
    const button = add(box, "button", {type: "button", "data-line": number, "aria-pressed": String(shown(number)), title: "Show or hide",
      onclick: () => { shown(number) ? state.hidden.add(line.name) : state.hidden.delete(line.name); redraw(`[data-line="${number}"]`); }});
    swatch(button, colour(number), dash(number));
    add(button, "span", {text: line.name});
  });
  if (data.tasks.some((task) => task.curves.some((curve) => curve.runs.length > 1))) {
    add(box, "button", {type: "button", class: "tool push", id: "seeds", "aria-pressed": String(state.each), text: "each seed", title: "Draw every seed as a thin line",
      onclick: () => { state.each = !state.each; redraw("#seeds"); }});
  }
}

// ---------------------------------------------------------------- learning curves
function curves(parent) {
  const bands = new Set(data.tasks.flatMap((task) => task.curves.map((curve) => curve.band)));
  const words = [];
  if (bands.has("95 % interval")) words.push("bands are 95 % bootstrap intervals of the mean");
  if (bands.has("range")) words.push(bands.size > 1 ? "below five seeds, the range of the seeds" : "with fewer than five seeds the band is their range");
  const tails = data.tasks.some((task) => task.curves.some((curve) => curve.complete < curve.steps[curve.steps.length - 1]));
  const several = Math.max(...data.summary.seeds) > 1;
  const box = section(parent, "curves", "Learning curves",
    `Evaluations${several ? ", mean over seeds" : ""}${words.length ? "; " + words.join("; ") : ""}.${tails ? " Dotted where not every seed has come so far." : ""}`);
  overlays(box);
  const grid = gridOf(box, data.tasks.length);
  for (const task of data.tasks) {
    const own = visible(task.curves);
    const pub = task.published.filter((one) => state.overlays.has(one.name));
    figure(grid, task.id, task.metric === "success" ? "success" : "return", (canvas, fig, width) => {
      if (!task.curves.length && !pub.length) { add(canvas, "div", {class: "empty", text: "No evaluation yet."}); return; }
      const series = own.map((curve) => seriesOf(curve, labelled()));
      pub.forEach((one, i) => series.push({name: one.name + (one.seeds ? ` (${count(one.seeds, "seed")})` : " (mean)"), label: one.name, pub: true, dash: PUB_DASHES[i % PUB_DASHES.length], stroke: "var(--pub)", xs: one.steps, ys: one.mean}));
      const reach = Math.max(task.horizon, ...task.curves.map((curve) => curve.steps[curve.steps.length - 1]));
      const far = state.extend ? Math.max(reach, ...pub.map((one) => one.steps[one.steps.length - 1])) : reach;
      lineChart(canvas, {width, series, end: far, each: state.each, xLabel: "environment steps", title: `Learning curves on ${task.id}`,
        domain: task.metric === "success" ? [0, 1] : null});
      const notes = new Map();
      for (const one of pub) if (one.notes.length) notes.set(one.notes.join("; "), [...(notes.get(one.notes.join("; ")) || []), one.name]);
      for (const [note, names] of notes) add(fig, "figcaption", {text: `${names.length > 3 ? count(names.length, "published curve") : list(names)}: ${note}`});
    });
  }
}

function overlays(parent) {
  const found = new Map();
  for (const task of data.tasks) for (const one of task.published) {
    if (!found.has(one.source)) found.set(one.source, new Map());
    const algos = found.get(one.source);
    algos.set(one.algo, (algos.get(one.algo) || 0) + 1);
  }
  if (!found.size) { add(parent, "p", {class: "note", id: "overlays", text: "No published curves cover these tasks."}); return; }
  const box = add(parent, "details", {class: "plain", id: "overlays", open: state.open.has("overlays")});
  box.addEventListener("toggle", () => box.open ? state.open.add("overlays") : state.open.delete("overlays"));
  const on = [...state.overlays].length;
  add(box, "summary", {text: `Published curves${on ? ` (${on} shown)` : ""}`});
  add(box, "p", {class: "note", text: "Curves that others published on these tasks, as grey dashed lines. They come from other code, network sizes, action repeats and environment versions; notes under the figures say what differs. The same algorithm differs by a factor of two between sources."});
  const chips = add(box, "div", {class: "chips"});
  for (const [source, algos] of found) {
    const origin = data.sources[source];
    const name = add(chips, "div", {text: source});
    add(name, "span", {class: "note", text: `${origin.origin}, ${origin.licence}`});
    const row = add(chips, "div");
    for (const [algo, tasks] of [...algos].sort()) {
      const key = `${source}/${algo}`;
      add(row, "button", {type: "button", class: "chip", "data-overlay": key, "aria-pressed": String(state.overlays.has(key)), title: `covers ${count(tasks, "task")} of ${data.tasks.length}`, text: algo,
        onclick: () => { state.overlays.has(key) ? state.overlays.delete(key) : state.overlays.add(key); redraw(`[data-overlay="${key}"]`); }});
    }
  }
  add(chips, "div", {text: "axis"});
  add(add(chips, "div"), "button", {type: "button", class: "chip", id: "extend", "aria-pressed": String(state.extend), text: "as long as the published curves",
    onclick: () => { state.extend = !state.extend; redraw("#extend"); }});
}

// ---------------------------------------------------------------- aggregates
const STATISTICS = [["iqm", "Interquartile mean", "↑ better"], ["median", "Median", "↑ better"], ["mean", "Mean", "↑ better"], ["optimality_gap", "Optimality gap", "↓ better"]];

function aggregates(parent) {
  const found = data.aggregates;
  const box = section(parent, "aggregates", "Across tasks");
  if (!found) {
    add(box, "p", {class: "empty", text: "Aggregates need tasks with a normalised score on which every line shown has a run that came to its end."});
    return;
  }
  const n = found.seeds.length === 1 ? count(found.seeds[0], "seed") : `${found.seeds[0]} to ${found.seeds[found.seeds.length - 1]} seeds`;
  add(box, "p", {class: "soft", text: `Normalised scores on ${list(found.tasks.length > 6 ? [count(found.tasks.length, "task")] : found.tasks)}, ${n} of each. ${found.seeds[0] > 1 ? "Bars are 95 % intervals of a bootstrap stratified by task, 50 000 replicates." : "One seed: no intervals."}${found.left_out.length ? ` Left out: ${list(found.left_out)}.` : ""}`});
  const four = add(box, "div", {class: "grid four"});
  for (const [key, title, note] of STATISTICS) {
    figure(four, title, note, (canvas, _, width) => intervalChart(canvas, {width, title, rows: visible(found.rows).map((row) => ({name: lineName(row.line), stroke: colour(row.line), ...row[key]}))}));
  }
  const two = add(box, "div", {class: "grid three"});
  if (found.efficiency) {
    figure(two, "Sample efficiency", "interquartile mean", (canvas, _, width) => lineChart(canvas, {width, title: "Interquartile mean of the normalised score against steps", xLabel: "environment steps", height: 260,
      series: visible(found.efficiency.curves).map((one) => seriesOf({...one, steps: found.efficiency.steps}, labelled()))}));
  }
  figure(two, "Performance profile", "runs above a score", (canvas, _, width) => lineChart(canvas, {width, title: "Fraction of runs that score above a threshold", xLabel: "normalised score τ", height: 260, domain: [0, 1],
    atX: (tau) => `score above ${tau.toFixed(2)}`, end: found.thresholds[found.thresholds.length - 1],
    series: visible(found.profile).map((one) => seriesOf({...one, steps: found.thresholds}, false))}));
  const pairs = found.improvement.filter((one) => shown(one.first) && shown(one.second));
  if (pairs.length) {
    figure(two, "Probability of improvement", "ties ½", (canvas, _, width) => intervalChart(canvas, {width, title: "Probability that a run of the first beats a run of the second", domain: [0, 1], centre: 0.5,
      rows: pairs.map((one) => ({...one, name: `${lineName(one.first)} over ${lineName(one.second)}`, stroke: colour(one.first)}))}));
  }
}

// ---------------------------------------------------------------- final scores
function finals(parent) {
  const box = section(parent, "final", "Final scores", "Mean over seeds of the evaluations in the last tenth before the step of comparison, with 95 % intervals. Bold: the interval lies above all others. Dots: the seeds, on an axis from zero." +
    (data.tasks.some((task) => task.resolves) ? " Resolves: the smallest difference that these seeds would show four times in five." : ""));
  const resolves = data.tasks.some((task) => task.resolves) && data.lines.every((_, number) => shown(number));
  const table = add(add(box, "div", {class: "scroll"}), "table", {class: "wide"});
  const head = add(add(table, "thead"), "tr");
  add(head, "th", {text: "task"});
  add(head, "th", {class: "num", text: "at step"});
  const lines = data.lines.map((line, number) => ({...line, line: number}));
  for (const line of visible(lines)) add(head, "th", {class: "num", text: line.name});
  if (resolves) add(head, "th", {class: "num", text: "resolves"});
  add(head, "th", {text: ""});
  const body = add(table, "tbody");
  for (const task of data.tasks) {
    const row = add(body, "tr");
    add(row, "td", {text: task.id});
    add(row, "td", {class: "num soft", text: steps(task.horizon) + (task.provisional ? " so far" : "")});
    for (const cell of visible(task.final)) {
      const td = add(row, "td", {class: "num"});
      if (cell.value === null) { add(td, "span", {class: "soft", text: cell.runs ? "not there yet" : "–"}); continue; }
      const others = visible(task.final).filter((one) => one !== cell && one.value !== null);
      const clear = others.length > 0 && cell.low !== null && others.every((one) => one.high !== null && one.high < cell.low);
      add(td, clear ? "b" : "span", {text: value(cell.value)});
      add(td, "span", {class: "ci", text: cell.low === null ? "  one seed" : ` [${value(cell.low)}, ${value(cell.high)}]`});
      if (cell.seeds !== cell.runs) add(td, "span", {class: "ci", text: `  ${cell.seeds} of ${cell.runs}`});
    }
    if (resolves) add(row, "td", {class: "num soft", text: task.resolves ? value(task.resolves) : "–"});
    strip(add(row, "td", {class: "strip"}), {title: `Scores of the seeds on ${task.id}`, rows: visible(task.final).map((cell) => ({scores: cell.scores, stroke: colour(cell.line)}))});
  }
  add(box, "p", {class: "note", text: `Normalisation. ${data.statements.join(". ")}.`});
}

// ---------------------------------------------------------------- signals
function signals(parent) {
  if (!data.signals.length && !data.constant.length) return;
  const box = section(parent, "signals", "Inside the runs", "What the agents recorded while they learned, averaged over seeds in bins of steps.");
  if (data.signals.length) {
    const chosen = data.signals.find((one) => one.name === state.signal) || data.signals[0];
    const row = add(box, "div", {role: "group", "aria-label": "Signal shown"});
    for (const one of data.signals) add(row, "button", {type: "button", class: "chip", "data-signal": one.name, "aria-pressed": String(one === chosen), text: one.name,
      onclick: () => { state.signal = one.name; redraw(`[data-signal="${one.name}"]`); }});
    const grid = gridOf(box, chosen.panels.length);
    for (const panel of chosen.panels) figure(grid, panel.task, chosen.name, (canvas, _, width) => lineChart(canvas, {width, title: `${chosen.name} on ${panel.task}`, xLabel: "environment steps",
      series: visible(panel.curves).map((curve) => seriesOf(curve, labelled()))}));
  }
  if (data.constant.length) add(box, "p", {class: "note", text: `Never changed: ${data.constant.join(", ")}.`});
}

// ---------------------------------------------------------------- videos, options, machine, runs
let films = {key: "", box: null};  // kept between redraws, so that playing videos go on

function videos(parent) {
  if (!data.videos.length) return;
  const key = JSON.stringify(data.videos.map((one) => [one.name, one.task, one.line, one.seed]));
  if (films.key === key) { parent.append(films.box); return; }
  films = {key, box: section(parent, "videos", "Videos")};
  const grid = add(films.box, "div", {class: "grid"});
  for (const one of data.videos) {
    const box = add(grid, "figure");
    if (one.embedded) { const film = add(box, "video", {controls: true, loop: true, muted: true, playsinline: true, preload: "metadata", src: one.src}); film.muted = true; }
    const caption = add(box, "figcaption");
    if (one.embedded) caption.textContent = `${lineName(one.line)} on ${one.task}, seed ${one.seed}`;
    else add(caption, "a", {href: one.src, text: `${lineName(one.line)} on ${one.task}, seed ${one.seed}: ${one.name} (${one.size})`});
  }
}

function fold(parent, key, title, fill) {
  const box = add(parent, "details", {id: key, open: state.open.has(key)});
  box.addEventListener("toggle", () => box.open ? state.open.add(key) : state.open.delete(key));
  add(box, "summary", {text: title});
  fill(box);
}

function tableOf(parent, head, rows) {
  const table = add(add(parent, "div", {class: "scroll"}), "table");
  const top = add(add(table, "thead"), "tr");
  for (const text of head) add(top, "th", {text});
  const body = add(table, "tbody");
  for (const row of rows) { const tr = add(body, "tr"); for (const text of row) add(tr, "td", {text}); }
}

function particulars(parent) {
  const box = section(parent, "particulars", "How the runs were made");
  fold(box, "options", data.options.length ? `Options that differ (${data.options.length})` : "Options: the same in all runs", (inner) => {
    if (data.options.length) tableOf(inner, ["option", ...data.lines.map((line) => line.name)], data.options.map((row) => [row.field, ...row.values]));
    else add(inner, "p", {class: "note", text: "No option differs between the lines of this report."});
  });
  const mixed = data.machine.versions.some((one) => Object.keys(one.found).length > 1);
  fold(box, "machine", `Versions and processors${mixed ? " (not the same in all runs)" : ""}`, (inner) => {
    tableOf(inner, ["processor", "runs"], Object.entries(data.machine.cpus));
    const box = add(inner, "ul", {class: "versions"});
    for (const one of data.machine.versions) {
      const found = Object.entries(one.found), item = add(box, "li", {text: one.name + " "});
      add(item, "span", {class: "soft", text: found.map(([version, n]) => found.length > 1 ? `${version} (${count(n, "run")})` : version).join(", ")});
    }
  });
  fold(box, "runs", `Runs (${data.runs.length})`, (inner) => tableOf(inner, ["run", "line", "task", "seed", "state", "step", "reason"],
    data.runs.map((run) => [run.name, lineName(run.line), run.task, run.seed, run.state, `${grouped(run.step)}${run.planned ? " of " + grouped(run.planned) : ""}`, run.reason])));
}
