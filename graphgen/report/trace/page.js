"use strict";
// The page of graphgen trace. All data is in the element #data; nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const content = document.getElementById("content");
const timeline = document.getElementById("timeline");
const search = document.getElementById("search");

// make("p", {className: "soft"}, "text", child, ...) is an element.
function make(tag, given = {}, ...children) {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...children);
  return element;
}

function size(value, unit) {
  if (typeof value !== "number") return value;
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [by, letter] = steps.find(([least]) => value >= least) || [1, ""];
  return `${(value / by).toPrecision(by === 1 ? 15 : 4).replace(/\.?0+$/, "")} ${letter}${unit}`;
}

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

// ---- the timeline of passes

function drawTimeline() {
  const longest = Math.max(...data.stages.map((stage) => stage.ms), 0.001);
  data.stages.forEach((stage, index) => {
    const change = stage.ops[1] - stage.ops[0];
    const ops = `${stage.ops[1]} ops` + (change ? ` (${change > 0 ? "+" : ""}${change})` : "");
    const bar = make("span", { className: "bar" });
    bar.style.width = `${(100 * stage.ms) / longest}%`;
    timeline.append(make("button", { onclick: () => showStage(index), title: stage.name },
      make("span", { className: "name" }, `${index + 1}  ${stage.label}`),
      make("small", {}, `${stage.ms.toFixed(1)} ms, ${ops}, ${plural(stage.applications, "rewrite")}`), bar));
  });
  timeline.append(make("hr"), make("button", { onclick: showProvenance, id: "provenance" },
    make("span", { className: "name" }, "Provenance"),
    make("small", {}, "source line, op, lowered op: from each to the others")));
}

function select(button) {
  if (button) search.value = "";
  for (const other of timeline.querySelectorAll("button")) other.classList.toggle("on", other === button);
  content.replaceChildren();
  content.scrollTop = 0;
}

// ---- one pass

function showStage(index, open) {
  const stage = data.stages[index];
  const before = index ? data.stages[index - 1] : data.start;
  select(timeline.querySelectorAll("button")[index]);
  content.append(make("h2", {}, stage.label), make("div", { className: "options" }, `${stage.name}   level ${stage.level}`));
  for (const remark of stage.remarks) content.append(make("p", {}, remark));
  content.append(costs(before.cost, stage.cost));
  section("What changed", stage.diff.map(hunk), "Nothing in the text of the module.");
  section(`Rewrites: ${stage.applications}`, stage.rewrites.map((item, place) => rewrite(item, place === open)), "None.");
  section("Near misses, the nearest first", stage.misses.map(miss), "No rule looked at anything and declined.");
  if (open !== undefined) content.querySelectorAll("details")[open].scrollIntoView({ block: "center" });
}

function section(title, items, none) {
  content.append(make("h3", {}, title), ...(items.length ? items : [make("p", { className: "soft" }, none)]));
}

function costs(before, after) {
  const old = Object.fromEntries(before.map((cost) => [cost.program, cost]));
  const cell = (cost, key, unit) => {
    const was = old[cost.program];
    const now = size(cost[key], unit);
    const then = was ? size(was[key], unit) : now;
    return make("td", {}, now, then === now ? "" : make("span", { className: "count" }, `  was ${then}`));
  };
  const rows = after.map((cost) => make("tr", {}, make("td", {}, "@" + cost.program), cell(cost, "flops", "FLOP"),
    cell(cost, "bytes", "B"), cell(cost, "collectives", ""), cell(cost, "sent", "B")));
  const titles = ["a call of", "computes", "reads and writes", "collectives", "these send"];
  return make("table", {}, make("tr", {}, ...titles.map((title) => make("th", {}, title))), ...rows);
}

function hunk(item) {
  const kind = { "+": "add", "-": "del", "@": "at", "#": "note" };
  const pre = make("pre", {}, ...item.lines.map((line) => make("span", { className: kind[line[0]] || "" }, line)));
  const again = item.again.length ? `   and ${plural(item.again.length, "more place")}: ${item.again.slice(0, 4).join(", ")}` : "";
  return make("div", { className: "box" }, make("div", { className: "part" }, item.part + again), pre);
}

function rewrite(item, open) {
  const count = item.places.length;
  const [first, last] = [item.places[0], item.places[count - 1]];
  const head = make("summary", {}, make("b", {}, item.rule), ` @${item.function} `, make("code", {}, item.scope),
    count > 1 ? make("span", { className: "count" }, `  in ${count} places`) : `  #${first[0]}`);
  const details = make("details", { open: Boolean(open) }, head);
  // What is inside is made when it is looked at: a page of thousands of rewrites opens at once.
  const fill = () => {
    if (details.childElementCount > 1) return;
    const lines = (list, sign, name) => list.map((text) => make("span", { className: name }, `${sign} ${text}`));
    const places = count > 1 ? `#${first[0]} ${first[1]} ... #${last[0]} ${last[1]}` : `#${first[0]} ${first[1]}`;
    const body = make("div", {},
      make("div", { className: "soft" }, `rule at ${item.source}, written at ${item.loc}`),
      item.relations.length ? make("div", { className: "soft" }, item.relations.join(", ")) : "",
      make("pre", {}, ...lines(item.before, "-", "del"), ...lines(item.after, "+", "add")),
      make("div", { className: "soft" }, places));
    if (count > 1) {
      const all = item.places.map(([number, scope]) => `#${number} ${scope}`).join("\n");
      body.append(make("details", {}, make("summary", {}, "all places"), make("pre", {}, all)));
    }
    details.append(body);
  };
  details.addEventListener("toggle", fill);
  if (open) fill();
  return details;
}

function miss(item) {
  const times = item.count > 1 ? `  (${item.count} ops)` : "";
  return make("div", { className: "miss" }, make("b", {}, item.rule), `: ${item.reason}${times} `,
    item.at ? make("code", {}, `at ${item.at} `) : "", make("br"),
    make("code", {}, `@${item.function} ${item.root}  ${item.loc} ${item.scope}`));
}

// ---- provenance: three columns, and what belongs together lights up

function showProvenance() {
  select(document.getElementById("provenance"));
  const columns = ["Source lines", "Ops as given", data.lowered.some((op) => op.line) ? "StableHLO" : "Ops at the end"]
    .map((title) => make("div", {}, make("h3", {}, title)));
  const rows = { source: new Map(), op: [], lowered: [] };
  const grouped = (column, name, last) => {
    if (name !== last) column.append(make("div", { className: "group" }, "@" + name));
    return name;
  };
  const button = (column, text, title, light) => {
    const row = make("button", { className: "row", title, onclick: () => pick(row, light()) }, text);
    column.append(row);
    return row;
  };
  const down = data.ops.map(() => []);
  data.lowered.forEach((op, index) => op.from.forEach((origin) => down[origin].push(index)));
  const bySource = new Map();
  data.ops.forEach((op, index) => {
    if (op.source) bySource.set(op.source, [...(bySource.get(op.source) || []), index]);
  });
  const all = (ops) => [...ops.map((op) => rows.op[op]), ...ops.flatMap((op) => down[op]).map((low) => rows.lowered[low]),
    ...ops.map((op) => rows.source.get(data.ops[op].source))].filter(Boolean);
  for (const [source, ops] of [...bySource].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }))) {
    rows.source.set(source, button(columns[0], source, plural(ops.length, "op"), () => all(ops)));
  }
  let last = "";
  data.ops.forEach((op, index) => {
    last = grouped(columns[1], op.fn, last);
    rows.op.push(button(columns[1], op.text, `${op.source} ${op.scope}`, () => all([index])));
  });
  data.lowered.forEach((op) => {
    last = grouped(columns[2], op.fn, last);
    const text = op.line ? `${String(op.line).padStart(5)}  ${op.text}` : op.text;
    const row = button(columns[2], text, op.via.join(", "), () => [row, ...all(op.from)]);
    rows.lowered.push(row);
  });
  const folded = data.layers.filter((layer) => layer.like.length);
  const note = folded.map((layer) => `${layer.layer} stands for ${plural(layer.like.length, "layer")} like it`).join("; ");
  content.append(make("p", { className: "soft" }, `Click a row to light up what it came from and what it became. ${note}`),
    make("div", { className: "columns" }, ...columns));
}

function pick(row, lit) {
  for (const old of content.querySelectorAll(".lit, .picked")) old.classList.remove("lit", "picked");
  row.classList.add("picked");
  const seen = new Set([row.parentElement]);
  for (const other of lit) {
    other.classList.add("lit");
    if (!seen.has(other.parentElement)) {
      seen.add(other.parentElement);
      other.parentElement.scrollTop = other.offsetTop - other.parentElement.clientHeight / 3;
    }
  }
}

// ---- search: over all passes at once

function showSearch(words) {
  select(null);
  const wanted = words.toLowerCase();
  const has = (...texts) => texts.flat().some((text) => text.toLowerCase().includes(wanted));
  let count = 0;
  data.stages.forEach((stage, index) => {
    const found = stage.rewrites.flatMap((item, place) =>
      has(item.rule, item.scope, item.source, item.loc, item.before, item.after) ? [[item, place]] : []);
    const near = stage.misses.filter((item) => has(item.rule, item.reason, item.scope, item.loc, item.root));
    const lines = stage.diff.flatMap((item) => item.lines.filter((line) => /^[-+]/.test(line) && has(line)));
    if (!found.length && !near.length && !lines.length && !has(stage.name)) return;
    count += found.length + near.length + lines.length;
    content.append(make("h3", {}, make("a", { href: "#", onclick: (event) => { event.preventDefault(); showStage(index); } },
      `${index + 1}  ${stage.label}`)), ...found.slice(0, 20).map(([item]) => rewrite(item)),
      ...near.slice(0, 10).map(miss));
    if (lines.length) content.append(hunk({ part: plural(lines.length, "changed line"), lines: lines.slice(0, 20), again: [] }));
  });
  content.prepend(make("h2", {}, `${plural(count, "match").replace("matchs", "matches")} for “${words}”`));
}

const first = () => (data.stages.length ? showStage(0) : showProvenance());

search.addEventListener("input", () => (search.value.trim() ? showSearch(search.value.trim()) : first()));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});

document.querySelector("h1").textContent = document.title;
const spent = data.stages.reduce((sum, stage) => sum + stage.ms, 0);
const made = data.stages.reduce((sum, stage) => sum + stage.applications, 0);
document.getElementById("summary").textContent =
  `${plural(data.stages.length, "pass").replace("passs", "passes")}, ${spent.toFixed(0)} ms, ${made} rewrites`;
drawTimeline();
first();
