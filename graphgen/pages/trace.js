"use strict";
// The page of graphgen trace. All data is in the element #data; nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const content = document.getElementById("content");
const timeline = document.getElementById("timeline");
const search = document.getElementById("search");

// Like size of shared/elements.js, with all digits of small numbers.
function amount(value, unit) {
  if (typeof value !== "number") return value;
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [by, letter] = steps.find(([least]) => value >= least) || [1, ""];
  return `${(value / by).toPrecision(by === 1 ? 15 : 4).replace(/\.?0+$/, "")} ${letter}${unit}`;
}

// A click changes the hash of the address, and the page follows it: what is shown has a link.
const go = (place) => () => { location.hash = hashOf(place); };

// ---- the timeline of passes

function drawTimeline() {
  const longest = Math.max(...data.stages.map((stage) => stage.ms), 0.001);
  data.stages.forEach((stage, index) => {
    const change = stage.ops[1] - stage.ops[0];
    const ops = `${stage.ops[1]} ops` + (change ? ` (${change > 0 ? "+" : ""}${change})` : "");
    const bar = make("span", { className: "bar" });
    bar.style.width = `${(100 * stage.ms) / longest}%`;
    const guilty = stage.rewrites.filter((item) => item.guilty).map((item) => item.places[0][0]);
    timeline.append(make("button", { onclick: go({ pass: stage.label }), title: stage.name, className: guilty.length ? "guilty" : "" },
      make("span", { className: "name" }, `${index + 1}  ${stage.label}`),
      make("small", {}, `${stage.ms.toFixed(1)} ms, ${ops}, ${plural(stage.applications, "rewrite")}`), bar));
    // Each rewrite at fault has a row of its own below its pass.
    for (const number of guilty) {
      timeline.append(make("button", { onclick: go({ pass: stage.label, rewrite: number }), className: "guilty inner" },
        make("span", { className: "name" }, `at fault: #${number}`)));
    }
  });
  timeline.append(make("hr"));
  if (data.validation) {
    const wrong = data.validation.states.filter((state) => !isRight(state)).length;
    const holes = data.validation.coverage.holes.filter((hole) => hole.blocking).length;
    timeline.append(
      make("button", { onclick: go({ view: "validation" }), id: "verdicts" }, make("span", { className: "name" }, "Validation"),
        make("small", {}, wrong ? `${wrong} of ${data.validation.states.length} not ok` : "every pass is ok")),
      make("button", { onclick: go({ view: "coverage" }), id: "coverage" }, make("span", { className: "name" }, "Coverage"),
        make("small", {}, holes ? `${holes} not run` : "all programs, branches and loops were run")));
  }
  timeline.append(make("button", { onclick: go({ view: "provenance" }), id: "provenance" },
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
  select(timeline.querySelectorAll("button:not(.inner)")[index]);
  content.append(make("h2", {}, stage.label), make("div", { className: "options" }, `${stage.name}   level ${stage.level}`));
  verdictOf(index);
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
    const now = amount(cost[key], unit);
    const then = was ? amount(was[key], unit) : now;
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
    count > 1 ? make("span", { className: "count" }, `  in ${count} places`) : `  #${first[0]}`,
    item.guilty ? make("b", { className: "bad" }, "  at fault") : "");
  const details = make("details", { open: Boolean(open), className: item.guilty ? "guilty" : "" }, head);
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

// ---- validation: verdicts, and what the calls reached

// "ok", or "ok of what was tried".
const isRight = (state) => /^ok\b/.test(state);
const stateName = (state) => make("b", { className: isRight(state) ? "good" : "bad" }, state);

function grid(table, mark = () => false, link = () => undefined) {
  const align = (cell, column) => {
    cell.className = column > 0 && column <= table.numeric ? "" : "left";
    return cell;
  };
  // The first cell of a row may be a link.
  const cell = (text, column, href) => (href && column === 0 ? make("td", {}, make("a", { href }, text)) : make("td", {}, text));
  const rows = table.rows.map((row, index) => make("tr", { className: mark(row) ? "marked" : "" },
    ...row.map((text, column) => align(cell(text, column, link(index)), column))));
  return make("table", {}, make("tr", {}, ...table.titles.map((title, column) => align(make("th", {}, title), column))), ...rows);
}

const fault = (text) => make("pre", { className: "fault" }, text);

function verdictOf(index) {
  const found = data.validation;
  if (!found || index >= found.states.length) return;
  const name = found.verdicts.rows[index][0];
  const holes = found.coverage.holes.filter((hole) => hole.blocking && hole.after === name);
  content.append(make("p", { id: "verdict" }, "validation: ", stateName(found.states[index])),
    ...found.faults[index].map(fault), ...holes.map((hole) => make("p", {}, `not run since this pass: ${hole.text}`)));
}

function showVerdicts() {
  const found = data.validation;
  select(document.getElementById("verdicts"));
  const state = found.verdicts.titles.indexOf("verdict");
  // A pass that raised is in the table only.
  const link = (index) => (index < data.stages.length
    ? hashOf({ pass: data.stages[index].label, rewrite: found.guilty[index] ?? undefined }) : undefined);
  content.append(make("h2", {}, "Validation"), grid(found.verdicts, (row) => !isRight(row[state]), link));
  section("Faults", found.faults.flat().map(fault), "None.");
  if (found.not_run.length) section("Passes that were not run", found.not_run.map((name) => make("p", {}, name)));
  if (found.proofs.length) section("Proofs", found.proofs.map((part) => (typeof part === "string" ? make("p", {}, part) : grid(part))));
}

function showCoverage() {
  const found = data.validation;
  select(document.getElementById("coverage"));
  content.append(make("h2", {}, "Coverage"), fault(found.summary || "Nothing was recorded."));
  const missed = new Set(["not run", "0, not run", "taken: none", "turns: never reached", "no"]);
  for (const table of found.tables) content.append(make("div", { className: "box" }, grid(table, (row) => row.some((text) => missed.has(text)))));
  section("Calls", found.calls.length ? [make("ol", { start: 0 }, ...found.calls.map((text) => make("li", {}, text || "a call")))] : [],
    "Layers were called with recorded inputs.");
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
    content.append(make("h3", {}, make("a", { href: hashOf({ pass: stage.label }) },
      `${index + 1}  ${stage.label}`)), ...found.slice(0, 20).map(([item]) => rewrite(item)),
      ...near.slice(0, 10).map(miss));
    if (lines.length) content.append(hunk({ part: plural(lines.length, "changed line"), lines: lines.slice(0, 20), again: [] }));
  });
  content.prepend(make("h2", {}, `${plural(count, "match")} for “${words}”`));
}

const first = () => (data.validation ? showVerdicts() : data.stages.length ? showStage(0) : showProvenance());

// ---- places: #pass=cse&rewrite=3, #op=dot.3, #view=coverage, #search=words

const VIEWS = { validation: showVerdicts, coverage: showCoverage, provenance: showProvenance };

function route() {
  const { pass, rewrite: number, op, view, search: words } = readHash();
  if (words) {
    if (search.value.trim() !== words) search.value = words;
    return showSearch(words);
  }
  if (pass) return showPass(pass, Number(number));
  if (op) return showOp(op.replace(/^%/, ""));
  const known = view in VIEWS && (data.validation || view === "provenance");
  return known ? VIEWS[view]() : first();
}

// A pass by its label, else the first of a name, else by number; and one of its rewrites, opened.
function showPass(name, number) {
  const by = (same) => data.stages.findIndex(same);
  const found = [by((stage) => stage.label === name), by((stage) => stage.label.split("#")[0] === name), Number(name) - 1];
  const index = found.find((at) => at >= 0 && at < data.stages.length);
  if (index === undefined) return missing(`the page has no pass ${name}`);
  const open = data.stages[index].rewrites.findIndex((item) => item.places.some(([place]) => place === number));
  return showStage(index, open < 0 ? undefined : open);
}

// An op as it was given or as it is at the end; else wherever a pass had it.
function showOp(name) {
  const starts = (text) => text.startsWith(`%${name} `) || text.startsWith(`%${name},`);
  showProvenance();
  for (const [column, ops] of [[1, data.ops], [2, data.lowered]]) {
    const at = ops.findIndex((item) => starts(item.text));
    const row = at < 0 ? null : content.querySelectorAll(".columns > div")[column].querySelectorAll(".row")[at];
    if (row) {
      row.click();
      return row.scrollIntoView({ block: "center" });
    }
  }
  return showSearch(`%${name}`);
}

function missing(text) {
  select(null);
  content.append(make("h2", { id: "missing" }, text));
}

search.addEventListener("input", () => {
  location.replace(search.value.trim() ? hashOf({ search: search.value.trim() }) : "#");
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});

// Followed at once where possible: a script that sets the hash finds the page drawn a turn later.
let routing = Promise.resolve();
addEventListener("hashchange", () => { routing = Promise.resolve(route()); });

document.querySelector("h1").textContent = document.title;
const spent = data.stages.reduce((sum, stage) => sum + stage.ms, 0);
const made = data.stages.reduce((sum, stage) => sum + stage.applications, 0);
document.getElementById("summary").textContent =
  `${plural(data.stages.length, "pass")}, ${spent.toFixed(0)} ms, ${made} rewrites`;
drawTimeline();
route();
