(function () {
"use strict";
const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));
const byId = (id) => document.getElementById(id);

// ---- light and dark
const theme = byId("theme");
const system = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
function showTheme() {
  theme.textContent = isDark() ? "☀ Light" : "☾ Dark";
  theme.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  theme.setAttribute("aria-pressed", String(isDark()));
}
try {
  const kept = localStorage.getItem("varprop-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
} catch (error) { /* a page from disk may be denied storage; then the choice lasts until it is closed */ }
theme.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("varprop-theme", next); } catch (error) { /* as above */ }
  showTheme();
});
system.addEventListener("change", showTheme);
theme.hidden = false;
showTheme();

// ---- tables that sort
function key(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.v;
  if (value === undefined) return cell.textContent.trim();
  return value === "" ? null : Number(value);
}
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
all("table.sortable").forEach((table) => {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = Array.from(table.tBodies[0].rows).map((row) => [key(row, column), row]);
      rows.sort((a, b) => {
        if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null);
        return up ? compare(a[0], b[0]) : compare(b[0], a[0]);
      });
      rows.forEach((pair) => table.tBodies[0].append(pair[1]));
    });
  });
});

// ---- tables that filter
const filters = all(".filters select, .filters input");
function applyFilters() {
  let shown = 0;
  all("table.filtered tbody tr").forEach((row) => {
    const keep = filters.every((filter) => {
      if (!filter.value) return true;
      if (filter.type === "search") return row.textContent.toLowerCase().includes(filter.value.toLowerCase());
      return row.getAttribute("data-" + filter.name) === filter.value;
    });
    row.hidden = !keep;
    shown += keep;
  });
  byId("shown").textContent = String(shown);
}
filters.forEach((filter) => {
  filter.addEventListener("input", applyFilters);
  filter.addEventListener("change", applyFilters);
});
all(".filters").forEach((form) => {
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(applyFilters));
});

// ---- one target at a time
const picker = byId("target");
if (picker) {
  const show = () => all("section.target").forEach((section) => {
    section.hidden = picker.value !== "all" && section.dataset.target !== picker.value;
  });
  picker.closest(".picker").hidden = false;
  picker.addEventListener("change", show);
  show();
}

// ---- rows behind the marks
const holder = byId("data");
if (!holder) return;
const data = JSON.parse(holder.textContent);
const tip = byId("tip");
const INPUTS = 12;
let lit = [];
let anchor = null; // gives the box beside which the row is shown

function make(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}
function pairs(list) {
  const dl = document.createElement("dl");
  list.forEach((pair) => dl.append(make("dt", pair[0]), make("dd", pair[1])));
  return dl;
}
function describe(target, i) {
  const t = data.targets[target];
  const row = data.rows[t.row[i]];
  tip.replaceChildren(
    make("strong", row[0]),
    pairs([["observed " + t.name, t.observed[i]], ["predicted", t.predicted[i]],
      ["90 % interval", t.interval[i]], ["z", t.z[i]]]));
  const inputs = data.inputs.slice(0, INPUTS).map((name, k) => [name, row[k + 1]]);
  if (inputs.length) tip.append(document.createElement("hr"), pairs(inputs));
  if (data.inputs.length > INPUTS) tip.append(make("p", "and " + (data.inputs.length - INPUTS) + " more inputs"));
}
function marks(target, i) {
  const dots = all('svg.pick[data-target="' + target + '"] .points').map((group) => group.children[i]);
  return dots.concat(all('tr[data-target="' + target + '"][data-point="' + i + '"]'));
}
function clear() {
  lit.forEach((node) => node.classList.remove("on"));
  lit = [];
  anchor = null;
  tip.hidden = true;
}
function place() {
  if (!anchor) return;
  const box = anchor();
  const size = tip.getBoundingClientRect();
  const room = 14;
  let left = box.right + room;
  if (left + size.width > window.innerWidth - room) left = Math.max(room, box.left - room - size.width);
  const top = Math.min(box.top - size.height / 2, window.innerHeight - size.height - room);
  tip.style.left = left + "px";
  tip.style.top = Math.max(room, top) + "px";
}
function light(target, i, where) {
  clear();
  anchor = where;
  lit = marks(target, i);
  lit.forEach((node) => node.classList.add("on"));
  describe(target, i);
  tip.hidden = false;
  place();
}

all("svg.pick").forEach((svg) => {
  const target = Number(svg.dataset.target);
  const group = svg.querySelector(".points");
  let places = null;
  let current = -1;
  function measure() {
    if (!places) places = Array.from(group.children, (node) => {
      const box = node.getBBox();
      return [box.x + box.width / 2, box.y + box.height / 2];
    });
    return places;
  }
  function nearest(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = -1;
    let least = 18 * 18;
    measure().forEach((place, i) => {
      const far = (place[0] - at.x) ** 2 + (place[1] - at.y) ** 2;
      if (far < least) { least = far; best = i; }
    });
    return best;
  }
  function go(i) {
    current = i;
    light(target, i, () => group.children[i].getBoundingClientRect());
  }
  function point(event) {
    const i = nearest(event);
    if (i < 0) { if (event.type === "pointermove") clear(); } else if (i !== current || tip.hidden) go(i);
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("click", point);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") clear(); });
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const last = group.children.length - 1;
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step) go(current < 0 ? (step > 0 ? 0 : last) : Math.min(last, Math.max(0, current + step)));
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(last);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
});
all("tr[data-point]").forEach((row) => {
  const target = Number(row.dataset.target);
  row.tabIndex = 0;
  const show = () => light(target, Number(row.dataset.point), () => {
    const box = row.getBoundingClientRect();
    return { left: box.left, right: box.left + 90, top: box.bottom + 100 };
  });
  row.addEventListener("focus", show);
  row.addEventListener("pointerenter", show);
  row.addEventListener("blur", clear);
  row.addEventListener("pointerleave", clear);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
window.addEventListener("scroll", place, { passive: true });
window.addEventListener("resize", place);
all(".hint").forEach((hint) => { hint.hidden = false; });
})();
