"use strict";
// The page's own sums become pictures and a table of field values that is searched and sorted here.
const sums = JSON.parse(document.getElementById("sums").textContent);
const charts = JSON.parse(document.getElementById("charts").textContent);
const values = sums.values;
const everyValue = values.id.map((_, row) => row);
const byId = (id) => document.getElementById(id);

// Log-odds axes have ticks at usual rates; where fewer than three of them fall into it, at round ones.
const TICKED = { x_ticks: ["predicted", "score"], y_ticks: ["observed", "calibrated"] };
function ticks(rows, names, usual) {
  const seen = rows.flatMap((row) => names.map((name) => row[name])).filter(Number.isFinite);
  const ends = [Math.min(...seen), Math.max(...seen)];
  if (!seen.length || usual.filter((tick) => tick >= ends[0] && tick <= ends[1]).length > 2) return usual;
  const [low, high] = ends.map((end) => 1 / (1 + Math.exp(-end)));
  const power = 10 ** Math.floor(Math.log10((high - low) / 3));
  const step = [1, 2, 5, 10].find((times) => 3 * times * power >= high - low) * power;
  const rates = Array.from({ length: 12 }, (_, k) => (Math.ceil(low / step) - 1 + k) * step);
  return high > low ? rates.filter((rate) => rate > 0 && rate < 1).map((rate) => Math.log(rate / (1 - rate))) : usual;
}

const ERRORS_ONLY = 1; // a field value without responses has no points, which is no reason to warn
function draw(place, chart, rows) {
  const spec = { ...charts[chart], datasets: { rows } };
  spec.params = (spec.params || []).map((param) =>
    param.name in TICKED ? { ...param, value: ticks(rows, TICKED[param.name], param.value) } : param);
  return vegaEmbed(`#${place}`, spec, { actions: false, renderer: "svg", logLevel: ERRORS_ONLY });
}

const BIN = ["impressions", "responses", "predicted", "observed", "low", "high", "score"];
const asBin = (bin) => Object.fromEntries(BIN.map((name, k) => [name, bin[k]]));

function reliabilityRows(id) {
  return sums.pictured.flatMap((method) =>
    ((sums.bins[method] || {})[id] || []).map((bin) => ({ method: sums.names[method], ...asBin(bin) })));
}

function curveRows(id) {
  const { ends, ...maps } = sums.curves;
  const observed = (sums.bins.uncalibrated[id] || []).map(asBin);
  if (!ends[id]) return observed;
  const [first, last] = ends[id];
  const heightsOf = { identity: [first, last], ...Object.fromEntries(Object.entries(maps).map(([name, of]) => [name, of[id]])) };
  const curves = Object.entries(heightsOf).flatMap(([name, heights]) =>
    heights.map((calibrated, k) => ({
      method: sums.names[name], calibrated, score: first + ((last - first) * k) / (heights.length - 1),
    })));
  return [...observed, ...curves];
}

const COLUMNS = ["name", "impressions", "responses", "base", "model", "low", "high", "wrong", "deviance", "bins"];
const asRow = (row) => Object.fromEntries(COLUMNS.map((name) => [name, values[name][row]]));

function drawForest() {
  const kind = document.querySelector("input[name=forest]:checked").value;
  const order = kind === "largest" ? everyValue : sorted("deviance", -1);
  return draw("forest", "forest", order.slice(0, 20).map(asRow));
}

function pick(row) {
  const id = String(values.id[row]);
  byId("picked").textContent = values.name[row];
  for (const button of document.querySelectorAll("#values button.value")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.row) === row));
  }
  draw("value-reliability", "reliability", reliabilityRows(id));
  draw("value-curves", "curves", curveRows(id));
}

// The table.
const MORE = 100; // rows that a press adds
const state = { key: "impressions", direction: -1, text: "", shown: 15, picked: 0 };

function sorted(key, direction) {
  const column = values[key];
  const compare = key === "name"
    ? (a, b) => column[a].localeCompare(column[b], "en", { numeric: true })
    : (a, b) => (column[a] === null ? 1 : 0) - (column[b] === null ? 1 : 0) || column[a] - column[b];
  const missing = (row) => key !== "name" && column[row] === null;
  return [...everyValue].sort((a, b) => {
    const last = missing(a) - missing(b);
    return last || direction * compare(a, b) || a - b;
  });
}

const SHOWN = [...byId("values").querySelectorAll("thead th")].map((head) => head.dataset.key).slice(1);
const WHOLE = ["impressions", "responses", "stake"];
const grouped = new Intl.NumberFormat("en");
function cell(name, value) {
  if (value === null) return "undefined";
  if (name === "bins") return value || "new";
  return WHOLE.includes(name) ? grouped.format(value) : value.toFixed(3);
}

function tableRow(row) {
  const line = document.createElement("tr");
  line.className = values.wrong[row] ? "wrong" : "";
  const head = document.createElement("th");
  const button = document.createElement("button");
  head.scope = "row";
  button.type = "button";
  button.className = "value";
  button.dataset.row = row;
  button.textContent = values.name[row];
  button.setAttribute("aria-pressed", String(row === state.picked));
  button.addEventListener("click", () => { state.picked = row; pick(row); });
  head.append(button);
  line.append(head);
  for (const name of SHOWN) {
    const data = document.createElement("td");
    data.textContent = cell(name, values[name][row]);
    line.append(data);
  }
  return line;
}

function showTable() {
  const text = state.text.toLowerCase();
  const order = sorted(state.key, state.direction);
  const found = text ? order.filter((row) => values.name[row].toLowerCase().includes(text)) : order;
  byId("values").querySelector("tbody").replaceChildren(...found.slice(0, state.shown).map(tableRow));
  byId("found").textContent = `${grouped.format(Math.min(found.length, state.shown))} of ${grouped.format(found.length)} shown`;
  byId("more").hidden = found.length <= state.shown;
  byId("more").textContent = `Show ${grouped.format(Math.min(MORE, found.length - state.shown))} more`;
  for (const head of byId("values").querySelectorAll("thead th")) {
    const key = head.dataset.key;
    head.setAttribute("aria-sort", key !== state.key ? "none" : state.direction > 0 ? "ascending" : "descending");
  }
}

for (const button of byId("values").querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const key = button.closest("th").dataset.key;
    state.direction = key === state.key ? -state.direction : key === "name" ? 1 : -1;
    state.key = key;
    showTable();
  });
}
byId("search").addEventListener("input", (event) => {
  state.text = event.target.value;
  state.shown = 15;
  showTable();
});
byId("more").addEventListener("click", () => { state.shown += MORE; showTable(); });
for (const choice of document.querySelectorAll("input[name=forest]")) {
  choice.addEventListener("change", drawForest);
}

// A table that is wider than the window says so.
function hint() {
  for (const box of document.querySelectorAll(".wide")) box.classList.toggle("scrolls", box.scrollWidth > box.clientWidth);
}
addEventListener("resize", hint);

showTable();
hint();
draw("overall", "reliability", reliabilityRows("-1"));
draw("days", "days", sums.days);
draw("ages", "age", sums.age);
drawForest();
if (everyValue.length) pick(0);
