"use strict";
// Start, redraw, theme, print, and the live page.

let data = JSON.parse(document.getElementById("data").textContent);
const state = {
  hidden: new Set(), each: false, extend: false, signal: null, open: new Set(),
  overlays: new Set(data.tasks.flatMap((task) => task.published.filter((one) => one.on).map((one) => one.name))),
};
if (state.overlays.size) state.open.add("overlays");

function redraw(focus) {
  const place = window.scrollY;
  const root = document.getElementById("report");
  const held = root.offsetHeight;
  root.style.minHeight = `${held}px`;  // the page must not jump while it is emptied
  document.getElementById("tip").hidden = true;
  root.replaceChildren();
  header(root);
  if (data.summary.runs) {
    legend(root);
    curves(root);
    aggregates(root);
    finals(root);
    signals(root);
    videos(root);
    particulars(root);
    drawPending();
  }
  root.style.minHeight = "";
  window.scrollTo(0, place);
  if (focus) { const again = root.querySelector(focus); if (again) again.focus({preventScroll: true}); }
}

function remembered() { try { return localStorage.getItem("beeline-theme"); } catch { return null; } }

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("beeline-theme", root.dataset.theme); } catch { /* a page opened from a file may have no storage */ }
}

if (remembered()) document.documentElement.dataset.theme = remembered();
redraw();
document.documentElement.dataset.ready = String(Math.round(performance.now()));

let width = document.documentElement.clientWidth, waiting = 0;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (document.documentElement.clientWidth !== width) { width = document.documentElement.clientWidth; redraw(); } }, 120);
});
window.addEventListener("beforeprint", () => document.querySelectorAll("details:not(.plain)").forEach((one) => { one.open = true; }));

if (data.live) {
  let seen = data.version;
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const version = await (await fetch("version")).text();
      if (version === seen) return;
      const fresh = await (await fetch("data.json")).json();
      seen = fresh.version;
      data = fresh;
      redraw();
    } catch { /* the server has stopped; the page stays as it is */ }
  }, 2000);
}
