// ---- the what-if page: the model is above, all that is drawn is below
const known = JSON.parse(document.getElementById("what-if").textContent);
const $ = (id) => document.getElementById(id);
const isClasses = classes.length > 0;
const PER_PAGE = 12, MOST_SHOWN = 100, MOST_ROWS = 100000, POINTS = 61;
const typical = columns.map((column, j) => (column.levels ? column.levels[known.typical[j]] : column.mean));
const values = typical.slice();
const starts = []; // where the model's inputs of a column begin
columns.reduce((at, column) => { starts.push(at); return at + (column.levels ? column.levels.length : 1); }, 0);

// ---- numbers as people read them
function text(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-4)) return value.toExponential(digits - 2).replace("-", "−").replace("e+", "e");
  const whole = size >= 10 ** (digits - 1);
  const options = whole ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits };
  return new Intl.NumberFormat("en", options).format(value).replace("-", "−");
}
function between(low, high) { // with the digits that tell them apart
  for (let digits = 4; digits < 16; digits++) {
    const pair = [text(low, digits), text(high, digits)];
    if (pair[0] !== pair[1] || low === high) return pair;
  }
  return [String(low), String(high)];
}
const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1" : text(100 * share, 3)) + " %";
function make(tag, attributes = {}, ...content) {
  const node = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => {
    if (name in node && name !== "list" && name !== "type") node[name] = value; else node.setAttribute(name, value);
  });
  node.append(...content);
  return node;
}

// ---- what training has seen, as `varprop.data.domain` has it
const domain = known.domain;
const whitening = domain && domain.whitening
  ? new Float32Array(Uint8Array.from(atob(domain.whitening), (letter) => letter.charCodeAt(0)).buffer) : null;
function encoded(row) {
  return columns.flatMap((column, j) => {
    if (column.levels) return column.levels.map((level) => Number(level === row[j]));
    return [row[j] === null ? column.mean : row[j]];
  });
}
function isBeyond(value, i) {
  const more = 0.25 * domain.high[i] - 0.25 * domain.low[i];
  return value < Math.min(domain.low[i] - more, domain.least[i]) || value > Math.max(domain.high[i] + more, domain.most[i]);
}
function outside(row) { // sentences, and the columns whose values are beyond
  if (!domain) return { said: [], columns: [] };
  const x = encoded(row), said = [], found = [];
  columns.forEach((column, j) => {
    if (column.levels || row[j] === null || !isBeyond(x[starts[j]], starts[j])) return;
    found.push(j);
    const [low, high] = between(domain.low[starts[j]], domain.high[starts[j]]);
    said.push(`${column.name} is ${text(row[j], 6)}, seen ${low === high ? "only " + low : low + " to " + high}`);
  });
  if (!found.length && whitening) {
    const z = x.map((value, i) => (Math.min(Math.max(value, domain.least[i]), domain.most[i]) - domain.shift[i]) / domain.scale[i]);
    let squared = 0;
    for (let k = 0; k < z.length; k++) {
      let sum = 0;
      for (let i = 0; i < z.length; i++) sum += z[i] * whitening[i * z.length + k];
      squared += sum * sum;
    }
    if (squared > domain.limit) said.push("an unusual combination of inputs");
  }
  return { said: said.length > 3 ? [...said.slice(0, 3), `and ${said.length - 3} more`] : said, columns: found };
}

// ---- inputs
function rangeOf(j) {
  const column = columns[j], std = Math.sqrt(column.variance);
  if (domain) return [domain.low[starts[j]], domain.high[starts[j]]];
  return [column.mean - 3 * std, column.mean + 3 * std];
}
const fields = columns.map((column, j) => {
  const id = "input-" + j;
  if (column.levels) {
    const menu = make("select", { id });
    column.levels.forEach((level, k) => menu.append(make("option", { value: String(k) }, level === null ? "(missing)" : level)));
    menu.addEventListener("input", () => { values[j] = column.levels[Number(menu.value)]; changed(); });
    const box = make("div", { className: "input" }, make("label", { className: "name", htmlFor: id }, column.name), menu);
    return { box, show: () => { menu.value = String(column.levels.indexOf(values[j])); } };
  }
  const [low, high] = rangeOf(j), [from, to] = between(low, high);
  const number = make("input", { id, type: "number", step: "any", inputMode: "decimal" });
  const slider = make("input", { type: "range", step: "any", min: low, max: high, "aria-label": column.name + ", slider over what was seen" });
  number.setAttribute("aria-describedby", id + "-seen");
  const seen = make("div", { className: "seen" }, make("span", { id: id + "-seen" }, `${domain ? "seen" : "usually"} ${low === high ? "only " + from : from + " to " + to}`));
  const unknown = make("input", { type: "checkbox" });
  if (known.impute) seen.append(make("label", {}, unknown, "unknown"));
  const box = make("div", { className: "input" }, make("label", { className: "name", htmlFor: id }, column.name), number, slider, seen);
  slider.hidden = !(high > low);
  const show = () => {
    const value = values[j];
    unknown.checked = value === null;
    number.disabled = slider.disabled = value === null;
    if (value === null) number.value = "";
    else {
      if (document.activeElement !== number) number.value = String(Number(value.toPrecision(6)));
      slider.value = value;
      slider.setAttribute("aria-valuetext", text(value));
    }
  };
  slider.addEventListener("input", () => { values[j] = Number(slider.value); changed(); });
  number.addEventListener("input", () => {
    if (number.value !== "" && Number.isFinite(number.valueAsNumber)) { values[j] = number.valueAsNumber; changed(); }
  });
  number.addEventListener("blur", show);
  unknown.addEventListener("input", () => { values[j] = unknown.checked ? null : column.mean; changed(); });
  return { box, show };
});
$("inputs").append(...fields.map((field) => field.box));
let page = 0;
function showPage() {
  const wanted = $("search").value.trim().toLowerCase();
  const found = columns.map((column, j) => j).filter((j) => columns[j].name.toLowerCase().includes(wanted));
  const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
  page = Math.min(Math.max(page, 0), pages - 1);
  const shown = new Set(found.slice(page * PER_PAGE, (page + 1) * PER_PAGE));
  fields.forEach((field, j) => { field.box.hidden = !shown.has(j); });
  $("search").hidden = columns.length <= PER_PAGE;
  $("pages").hidden = pages === 1;
  $("page-of").textContent = found.length ? `${page * PER_PAGE + 1} to ${Math.min((page + 1) * PER_PAGE, found.length)} of ${found.length}` : "no input has this name";
  $("before").disabled = page === 0;
  $("after").disabled = page === pages - 1;
}
$("search").addEventListener("input", () => { page = 0; showPage(); });
$("before").addEventListener("click", () => { page -= 1; showPage(); });
$("after").addEventListener("click", () => { page += 1; showPage(); });
$("reset").addEventListener("click", () => { typical.forEach((value, j) => { values[j] = value; }); changed(); });

// ---- charts
let W = 600; // as wide as there is room, so that texts have one size
function chart(height, label, ...parts) {
  return `<svg class="chart" viewBox="0 0 ${W} ${height}" role="img" aria-label="${escaped(label)}">${parts.join("")}</svg>`;
}
const escaped = (words) => String(words).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const short = (words, most) => (words.length > most ? words.slice(0, most - 1) + "…" : words);
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || rough;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high && found.length < 20; k++) found.push(k * step || 0);
  return found;
}
const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const scaler = (low, high, from, to) => (value) => from + (to - from) * (value - low) / (high - low || 1);
function axis(x, low, high, at, count = W / 75) {
  return ticks(low, high, count).map((v) => `<path class="grid" d="M${x(v).toFixed(1)} 10V${at}"/><text class="${x(v) > W - 32 ? "end-label" : "middle"}" x="${x(v) > W - 32 ? W - 2 : x(v).toFixed(1)}" y="${at + 18}">${text(v, 6)}</text>`).join("");
}
const chosen = () => Number($("which").value || 0);
const coverage = () => Number($("coverage").value);

function drawDensity(found, t) {
  const [low, high] = interval(found, coverage(), t), [least, most] = interval(found, 0.998, t);
  const from = Math.min(known.usual[t][0], least), to = Math.max(known.usual[t][1], most);
  const x = scaler(from, to, 12, W - 12), at = 190, n = 160;
  const grid = Array.from({ length: n + 1 }, (_, i) => from + (to - from) * i / n);
  // As many points where the mass is, however narrow that is.
  for (let i = 0; i <= n; i++) grid.push(least + (most - least) * i / n);
  grid.push(low, high);
  grid.sort((a, b) => a - b);
  const heights = grid.map((v) => density(found, v, t)), top = Math.max(...heights);
  const y = scaler(0, top || 1, at, 16), path = grid.map((v, i) => [x(v), y(heights[i])]);
  const inside = path.filter((_, i) => grid[i] >= low && grid[i] <= high);
  const area = (points) => (points.length ? line(points) + `L${points[points.length - 1][0].toFixed(1)} ${at}L${points[0][0].toFixed(1)} ${at}Z` : "");
  const mean = found.mean[t], [a, b] = between(low, high);
  $("density").innerHTML = chart(at + 28, `Density of ${targets[t]}: mean ${text(mean)}, ${percent(coverage())} interval from ${a} to ${b}`,
    axis(x, from, to, at), `<path class="area" d="${area(path)}"/>`, `<path class="inside" d="${area(inside)}"/>`,
    `<path class="curve" d="${line(path)}"/>`, `<path class="now" d="M${x(mean).toFixed(1)} 8V${at}"/>`, `<path class="axis" d="M12 ${at}H${W - 12}"/>`);
  $("density-words").textContent = `The curve is the predicted distribution of ${targets[t]}, the upright line its mean. ${percent(coverage())} of it is shaded, from ${a} to ${b}.`;
}
function drawClasses(found) {
  const step = 30, most = classes.length, at = 8 + step * most, x = scaler(0, 1, 160, W - 70);
  $("density-title").textContent = "How likely is which class?";
  $("density").innerHTML = chart(at, "Probabilities: " + classes.map((name, k) => `${name} ${percent(found.probability[k])}`).join(", "),
    ...found.probability.map((p, k) => `<text class="label end-label" x="150" y="${8 + step * k + 19}">${escaped(short(classes[k], 18))}</text><g class="bars"><rect x="160" y="${8 + step * k + 4}" width="${(x(p) - 160).toFixed(1)}" height="20" rx="3"/></g><text class="label" x="${(x(p) + 6).toFixed(1)}" y="${8 + step * k + 19}">${percent(p)}</text>`));
  $("density-words").textContent = "Probabilities of the classes; they sum to 100 %.";
}
function drawCurve(t) {
  const j = Number($("along").value), column = columns[j], row = values.slice(), at = 220;
  const said = (value) => { row[j] = value; try { return predict(row); } catch (error) { return null; } };
  const pick = (found) => {
    if (!found) return null;
    if (isClasses) return [found.probability[t]];
    return [found.mean[t], ...interval(found, coverage(), t)];
  };
  let [low, high] = column.levels ? [0, column.levels.length - 1] : rangeOf(j);
  const own = column.levels ? column.levels.indexOf(values[j]) : values[j];
  const [seenLow, seenHigh] = [low, high];
  if (!column.levels && own !== null) { low = Math.min(low, own); high = Math.max(high, own); }
  if (low === high) { low -= 0.5; high += 0.5; }
  const xs = column.levels ? column.levels.map((_, k) => k) : Array.from({ length: POINTS }, (_, i) => low + (high - low) * i / (POINTS - 1));
  const found = xs.map((v) => pick(said(column.levels ? column.levels[v] : v)));
  const there = found.filter((p) => p), flat = there.flat();
  const margin = column.levels ? 0.6 : 0;
  const bottom = isClasses ? 0 : Math.min(...flat), top = isClasses ? 1 : Math.max(...flat);
  const x = scaler(low - margin, high + margin, 70, W - 14), y = scaler(bottom - 0.04 * (top - bottom), top + 0.04 * (top - bottom), at, 12);
  const parts = ticks(bottom, top, 4).map((v) => `<path class="grid" d="M70 ${y(v).toFixed(1)}H${W - 14}"/><text class="end-label" x="64" y="${(y(v) + 4).toFixed(1)}">${isClasses ? percent(v) : text(v, 6)}</text>`);
  if (column.levels) {
    const step = Math.ceil(column.levels.length / 8);
    xs.forEach((v, k) => {
      const name = column.levels[k] === null ? "(missing)" : column.levels[k];
      if (k % step === 0) parts.push(`<text class="middle" x="${x(v).toFixed(1)}" y="${at + 18}">${escaped(short(name, 11))}</text>`);
      if (!found[k]) return;
      if (!isClasses) parts.push(`<path class="whisker" d="M${x(v).toFixed(1)} ${y(found[k][1]).toFixed(1)}V${y(found[k][2]).toFixed(1)}"/>`);
      parts.push(`<circle class="dot" r="${k === own ? 6 : 4}" cx="${x(v).toFixed(1)}" cy="${y(found[k][0]).toFixed(1)}"/>`);
    });
  } else {
    parts.push(axis(x, low, high, at));
    [[low, seenLow], [seenHigh, high]].forEach(([a, b]) => { if (b > a) parts.push(`<rect class="beyond" x="${x(a).toFixed(1)}" y="12" width="${(x(b) - x(a)).toFixed(1)}" height="${at - 12}"/>`); });
    const places = xs.map((v, i) => [v, found[i]]).filter(([, p]) => p);
    if (!isClasses) {
      const upper = places.map(([v, p]) => [x(v), y(p[2])]), lower = places.map(([v, p]) => [x(v), y(p[1])]);
      parts.push(`<path class="inside" d="${line([...upper, ...lower.slice().reverse()])}Z"/><path class="edge" d="${line(upper)}"/><path class="edge" d="${line(lower)}"/>`);
    }
    parts.push(`<path class="curve" d="${line(places.map(([v, p]) => [x(v), y(p[0])]))}"/>`);
    if (own !== null) parts.push(`<path class="now" d="M${x(own).toFixed(1)} 10V${at}"/>`);
  }
  const what = isClasses ? `Probability of ${classes[t]}` : `${targets[t]} and its ${percent(coverage())} interval`;
  $("curve").innerHTML = chart(at + 28, `${what} along ${column.name}`, ...parts);
  $("curve-words").textContent = `${what} as ${column.name} changes and all else stays as it is.`;
}
function drawBudget(found, t) {
  const parts = budgetOf(found, t), whole = parts.reduce((sum, part) => sum + part[1], 0);
  const step = 30, x = scaler(0, 1, 0, W - 70);
  $("budget").innerHTML = chart(16 + 48 * parts.length, "Shares of the variance: " + parts.map(([name, v]) => `${name} ${percent(v / whole)}`).join(", "),
    ...parts.map(([name, v], k) => `<text class="label" x="0" y="${14 + 48 * k}">${escaped(name)}</text><rect class="s${k}" x="0" y="${22 + 48 * k}" width="${Math.max(1, x(v / whole)).toFixed(1)}" height="18" rx="3"/><text class="label" x="${(x(v / whole) + 8).toFixed(1)}" y="${36 + 48 * k}">${percent(v / whole)}</text>`));
  $("budget-words").textContent = isClasses ? "Of the entropy of the classes: what is chance as far as the model knows, and what more data could settle."
    : (known.identified ? "Shares of the predicted variance, whose root is the standard deviation."
      : "Shares of the predicted variance. This model was fitted without telling its own doubt from noise; fit with --objective vi to see them apart.");
}
function budgetOf(found, t) {
  if (isClasses) {
    const total = found.probability.reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
    return [["chance", found.aleatoric], ["the model’s doubt", Math.max(0, total - found.aleatoric)]];
  }
  return budget(found, t);
}

// ---- the answer
let waiting = false, speaking = 0;
function changed() {
  if (!waiting) { waiting = true; requestAnimationFrame(draw); }
}
function draw() {
  waiting = false;
  const started = performance.now(), t = chosen();
  W = Math.max(260, $("density").clientWidth);
  fields.forEach((field) => field.show());
  const far = outside(values);
  fields.forEach((field, j) => field.box.classList.toggle("far", far.columns.includes(j)));
  let words;
  try {
    const found = predict(values);
    const small = document.createElement("small");
    if (isClasses) {
      const best = found.probability.indexOf(Math.max(...found.probability));
      words = `${targets[0]}: ${classes[best]}, ${percent(found.probability[best])}`;
      drawClasses(found);
    } else {
      const [low, high] = between(...interval(found, coverage(), t));
      words = `${targets[t]}: ${text(found.mean[t])} ± ${text(found.std[t], 3)}`;
      small.textContent = ` ${percent(coverage())} between ${low} and ${high}`;
      drawDensity(found, t);
    }
    $("headline").replaceChildren(words, small);
    words += small.textContent;
    drawBudget(found, t);
    drawCurve(t);
  } catch (error) {
    words = error.message + ".";
    $("headline").textContent = words;
    ["density", "budget", "curve"].forEach((id) => $(id).replaceChildren());
  }
  const warning = far.said.length ? `Unlike the training data: ${far.said.join("; ")}. This is a guess.` : "";
  $("warning").textContent = warning;
  $("warning").hidden = !warning;
  $("answer").classList.toggle("far", Boolean(warning));
  clearTimeout(speaking); // once it rests
  speaking = setTimeout(() => { $("spoken").textContent = `${words}. ${warning}`; }, 600);
  document.body.dataset.redraw = (performance.now() - started).toFixed(2);
}

// ---- pasted tables
const MISSING = new Set(["", "na", "n/a", "nan", "null", "none", "?"]);
function cellsOf(pasted) {
  const first = pasted.replace(/"[^"]*"/g, "").split("\n", 1)[0]; // the header, without what is quoted
  const delimiter = ["\t", ";", ","].map((sign) => [first.split(sign).length, sign]).sort((a, b) => b[0] - a[0])[0][1];
  const rows = [[""]];
  let quoted = false;
  for (let i = 0; i < pasted.length; i++) {
    const sign = pasted[i], row = rows[rows.length - 1];
    if (quoted) {
      if (sign !== '"') row[row.length - 1] += sign;
      else if (pasted[i + 1] === '"') { row[row.length - 1] += '"'; i++; } else quoted = false;
    } else if (sign === '"' && row[row.length - 1] === "") quoted = true;
    else if (sign === delimiter) row.push("");
    else if (sign === "\n") rows.push([""]);
    else if (sign !== "\r") row[row.length - 1] += sign;
  }
  return { delimiter, rows: rows.filter((row) => row.length > 1 || row[0].trim() !== "") };
}
function valueOf(cell, column, delimiter) {
  const trimmed = cell.trim();
  if (column.levels) {
    const same = (level) => level !== null && level.trim().toLowerCase() === trimmed.toLowerCase();
    const level = column.levels.includes(cell) ? cell : column.levels.find(same);
    if (level !== undefined) return level;
    return MISSING.has(trimmed.toLowerCase()) ? null : cell;
  }
  if (MISSING.has(trimmed.toLowerCase())) return null;
  const plain = delimiter !== "," && /^[-+]?\d+,\d+$/.test(trimmed) ? trimmed.replace(",", ".") : trimmed;
  const isNumber = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(plain);
  return isNumber ? Number(plain) : cell; // which is refused by its name
}
let results = null;
function predictTable() {
  const { delimiter, rows } = cellsOf($("pasted").value.replace(/^\ufeff/, ""));
  results = null;
  $("download").hidden = $("table-scroll").hidden = true;
  const refuse = (sentence) => { $("table-words").textContent = sentence; };
  if (rows.length < 2) return refuse("Paste a line with the names of the columns, and at least one row below it.");
  if (rows.length > MOST_ROWS) return refuse(`These are more than ${text(MOST_ROWS, 6)} rows: use varprop predict for them.`);
  const header = rows[0].map((name) => name.trim());
  const at = columns.map((column) => header.indexOf(column.name.trim()));
  const lost = columns.filter((_, j) => at[j] < 0).map((column) => column.name);
  if (lost.length) return refuse(`The table lacks ${lost.length === 1 ? "the column" : "the columns"} ${lost.slice(0, 5).join(", ")}${lost.length > 5 ? " and " + (lost.length - 5) + " more" : ""}; it has ${header.slice(0, 5).join(", ")}${header.length > 5 ? ", …" : ""}.`);
  const c = coverage(), names = isClasses ? ["class", ...classes.map((name) => "p_" + name)]
    : targets.flatMap((name) => ["mean", "std", "lower", "upper"].map((what) => (targets.length > 1 ? name + "_" + what : what)));
  let bad = 0;
  const body = rows.slice(1).map((cells) => {
    const given = header.map((_, i) => cells[i] === undefined ? "" : cells[i]);
    const row = columns.map((column, j) => valueOf(given[at[j]], column, delimiter));
    try {
      const found = predict(row);
      const said = isClasses ? [classes[found.probability.indexOf(Math.max(...found.probability))], ...found.probability]
        : targets.flatMap((_, t) => [found.mean[t], found.std[t], ...interval(found, c, t)]);
      return [...given, ...said, outside(row).said.join("; ")];
    } catch (error) {
      bad += 1;
      return [...given, ...names.map(() => ""), error.message];
    }
  });
  results = [[...header, ...names, "outside"], ...body];
  const shown = body.slice(0, MOST_SHOWN), first = header.length;
  const isText = (i) => i < first || shown.every((row) => typeof row[i] !== "number");
  const heads = results[0].map((name, i) => make("th", { scope: "col", className: isText(i) ? "text" : "" }, name));
  const lines = shown.map((row) => make("tr", {}, ...row.map((cell, i) => {
    const node = make("td", { className: isText(i) ? "text" : "" }, typeof cell === "number" ? text(cell, 5) : cell);
    node.dataset.label = results[0][i];
    return node;
  })));
  $("table-scroll").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines)));
  $("table-scroll").hidden = $("download").hidden = false;
  refuse(`${body.length} row${body.length === 1 ? "" : "s"}${isClasses ? "" : `, with ${percent(c)} intervals`}${bad ? `; ${bad} could not be predicted, and the last column says why` : ""}${body.length > shown.length ? `. The first ${shown.length} are shown; the download has all` : ""}.`);
}
function harmless(cell) { // what a spreadsheet would run as a formula gets an apostrophe in front
  if (typeof cell === "number") return String(cell);
  const runs = /^[=+\-@\t\r]/.test(cell) && !/^[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?$/.test(cell);
  const guarded = runs ? "'" + cell : cell;
  return /[",\r\n]/.test(guarded) ? '"' + guarded.replace(/"/g, '""') + '"' : guarded;
}
const csv = () => results.map((row) => row.map(harmless).join(",")).join("\n") + "\n";
$("predict").addEventListener("click", predictTable);
$("download").addEventListener("click", () => {
  const link = make("a", { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: "predictions.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

// ---- begin
const options = isClasses ? classes : targets;
options.forEach((name, t) => $("which").append(make("option", { value: String(t) }, name)));
if (isClasses) {
  $("target-choice").firstChild.textContent = "Curve of class ";
  $("coverage-choice").hidden = true;
  $("which").value = String(classes.length - 1);
}
$("target-choice").hidden = options.length < 2;
columns.forEach((column, j) => $("along").append(make("option", { value: String(j) }, column.name)));
["which", "coverage", "along"].forEach((id) => $(id).addEventListener("input", changed));
window.addEventListener("resize", changed);
showPage();
draw();
