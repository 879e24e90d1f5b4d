"use strict";
// The page of graphgen inspect --html. All data is in the element #data; nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const content = document.getElementById("content");
const parts = document.getElementById("parts");
const detail = document.getElementById("detail");
const search = document.getElementById("search");
const MOST = 400;
let current = null;

// make("p", {className: "soft"}, "text", child, ...) is an element.
function make(tag, given = {}, ...children) {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...children);
  return element;
}

function size(value, unit = "B") {
  if (typeof value !== "number") return String(value ?? "-");
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [by, letter] = steps.find(([least]) => value >= least) || [1, ""];
  return by === 1 ? `${value} ${unit}` : `${(value / by).toFixed(2)} ${letter}${unit}`;
}

function table(headers, rows) {
  const head = make("tr", {}, ...headers.map((text) => make("th", {}, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell ?? "-"))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function section(title, ...children) {
  content.append(make("h3", {}, title), ...children);
}

// ---- values and ops

for (const program of data.programs) {
  program.values = program.args.map((arg) => ({ ...arg, program, op: null, users: [] }));
  for (const op of program.ops) {
    op.program = program;
    op.results = op.names.map((name, index) => {
      const value = { name, type: op.types[index], program, op, users: [] };
      program.values.push(value);
      return value;
    });
  }
  for (const op of program.ops) {
    op.operands = op.reads.map((id) => program.values[id]);
    for (const value of new Set(op.operands)) value.users.push(op);
  }
  program.parts.forEach((part) => part.instances.forEach((item) => {
    item.ops.forEach((id, position) => Object.assign(program.ops[id], { part, instance: item, position }));
  }));
  for (const [name, id] of program.outputs) (program.values[id].outputs ||= []).push(name);
}

const place = (op) => op.loc >= 0 ? data.locs[op.loc] : null;
const line = (op) => place(op) ? `${place(op)[0]}:${place(op)[1]}` : "";

function written(op) {
  const results = op.names.map((name) => `%${name}`).join(", ");
  const operands = op.operands.map((value) => `%${value.name}`).join(", ");
  return `${results} = ${op.op}(${operands})${op.attrs}`;
}

function row(op, times = 1) {
  const types = op.types.join(", ");
  const button = make("button", { className: "row", onclick: () => show(op.results[0]) },
    make("span", { className: "times" }, times > 1 ? `x ${times}` : ""),
    make("span", { className: "what", title: `${written(op)} : ${types}` }, written(op)),
    make("span", { className: "type" }, types), make("span", { className: "at" }, line(op)));
  op.row = button;
  return button;
}

function link(value) {
  return make("button", { className: "link", onclick: () => show(value, true) }, `%${value.name}`);
}

// ---- one value

function show(value, jump = false) {
  const op = value.op;
  detail.replaceChildren(make("h2", {}, `%${value.name}`));
  const facts = [["type", make("code", {}, value.type)], ["bytes", size(value.bytes ?? op?.bytes?.[op.results.indexOf(value)])]];
  if (op) {
    facts.unshift(["op", op.op]);
    if (op.attrs) facts.push(["attributes", make("code", {}, op.attrs.trim())]);
    if (op.instance) facts.push(["layer", op.instance.name]);
    const where = place(op);
    if (where) {
      facts.push(["line", make("button", { className: "link", onclick: () => find(line(op)) }, line(op))]);
      if (where[2]) facts.push(["scope", make("button", { className: "link", onclick: () => find(where[2]) }, where[2])]);
      if (where[3]) facts.push(["passes", where[3]]);
    }
  } else {
    facts.unshift(["argument", value.kind]);
  }
  if (value.outputs) facts.push(["output", value.outputs.join(", ")]);
  detail.append(table(["", ""], facts));
  if (op) list("reads", op.operands.map((operand) => [operand, operand.op ? operand.op.op : operand.kind]));
  if (op && op.results.length > 1) list("results", op.results.map((result) => [result, result.type]));
  list("read by", value.users.map((user) => [user.results[0], user.op]));
  if (op && jump && op.part) drawPart(op.part, op.instance);
  for (const lit of document.querySelectorAll(".row.on")) lit.classList.remove("on");
  if (op?.row?.isConnected) {
    op.row.classList.add("on");
    if (jump) op.row.scrollIntoView({ block: "center" });
  }
}

function list(title, pairs) {
  if (!pairs.length) return;
  const rows = pairs.slice(0, 60).map(([value, what]) => [link(value), make("span", { className: "soft" }, what)]);
  detail.append(make("h3", {}, `${title} (${pairs.length})`), table(["", ""], rows));
}

// ---- parts of a program

function choose(button) {
  for (const other of parts.querySelectorAll("button")) other.classList.toggle("on", other === button);
  content.replaceChildren();
  content.scrollTop = 0;
}

function drawPart(part, instance = part.instances[0]) {
  if (current === instance) return;
  choose(part.button);
  current = instance;
  const program = part.program;
  content.append(make("h2", {}, instance.name));
  if (part.instances.length > 1) {
    const options = part.instances.map((item) => make("option", { value: item.name, selected: item === instance }, item.name));
    const pick = make("select", { id: "instance", onchange: () => drawPart(part, part.instances[pick.selectedIndex]) }, ...options);
    content.append(make("p", {}, `${part.instances.length} identical layers; shown: `, pick));
  }
  const ops = instance.ops.map((id) => program.ops[id]);
  const weights = new Set(ops.flatMap((op) => op.operands).filter((value) => value.kind === "weights"));
  if (weights.size) section("Weights", table(["", "type", "bytes"], [...weights].map((value) =>
    [link(value), make("code", {}, value.type), size(value.bytes)])));
  section(`Ops (${ops.length})`, ...ops.map(row));
}

function drawOverview(program, button) {
  choose(button);
  current = program;
  const facts = program.facts;
  content.append(make("h2", {}, `@${facts.name}`));
  const kinds = Object.entries(facts.arguments).filter(([, part]) => part.count);
  section("Arguments", table(["", "count", "bytes", ""], kinds.map(([kind, part]) =>
    [kind, part.count, size(part.bytes), part.guessed ? "guessed from use" : ""])));
  const work = Object.entries(facts.flops).map(([kind, count]) => `${size(count, "flops")} in ${kind}`).join(", ") || "no arithmetic";
  section("Work", make("p", {}, `${work}; ${size(facts.bytes_moved)} moved without fusion; `
    + (facts.peak_bytes === null ? "memory depends on symbols" : `${size(facts.peak_bytes)} alive at most`)));
  if (facts.layers.length) section("Layers", table(["", "count", "ops each", "flops each", "moved each", "weights each"],
    facts.layers.map((item) => [item.count > 1 ? `${item.first} to ${item.last}` : item.first, item.count, item.ops,
      size(item.flops, ""), size(item.bytes_moved), size(item.weight_bytes)])));
  if (facts.collectives.length) section("Collectives", table(["", "count", "bytes", "type", "algorithm", "groups"],
    facts.collectives.map((item) => [item.op, item.count, size(item.bytes), item.type, item.algorithm, item.groups])));
  if (facts.custom_calls.length) section("Custom calls", table(["", "count", "configuration"],
    facts.custom_calls.map((item) => [item.target, item.count, make("code", {}, JSON.stringify(item.configuration))])));
  const named = new Map(program.values.map((value) => [value.name, value]));
  if (facts.largest.length) section("Largest tensors", table(["", "bytes", "type", "made by", "layer", "line"],
    facts.largest.map((item) => [named.has(item.name) ? link(named.get(item.name)) : item.name, size(item.bytes),
      item.type, item.op ?? "argument", item.layer, (item.where_is_of_a_reader ? "read at " : "") + item.where])));
  const outputs = facts.outputs.map((item) => {
    const value = program.values[program.outputs[item.index][1]];
    return [item.index, link(value), item.name, item.type, item.argument ? `argument ${item.takes_over}, %${item.argument}` : "-"];
  });
  section(`Outputs (${outputs.length})`, table(["", "value", "name", "type", "takes over"], outputs.slice(0, MOST)));
  const args = program.values.filter((value) => !value.op);
  section(`Arguments (${args.length})`, table(["", "kind", "type", "bytes"],
    args.slice(0, MOST).map((value) => [link(value), value.kind, value.type, size(value.bytes)])));
}

// ---- search

function find(text) {
  search.value = text;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return;
  choose(null);
  current = null;
  let count = 0;
  const rows = [];
  // What is found at the same place of identical layers is one row.
  const found = new Map();
  for (const program of data.programs) {
    for (const value of program.values.filter((item) => !item.op)) {
      if (words.every((word) => `%${value.name} ${value.type} ${value.kind}`.toLowerCase().includes(word))) {
        count += 1;
        if (rows.length < MOST) rows.push(make("p", {}, link(value), ` ${value.kind} ${value.type}`));
      }
    }
    for (const op of program.ops) {
      const where = place(op);
      op.text ??= `${written(op)} : ${op.types.join(", ")} ${line(op)} ${where ? where[2] : ""} ${op.instance ? op.instance.name : ""}`.toLowerCase();
      if (words.every((word) => op.text.includes(word))) {
        count += 1;
        const key = op.part ? `${program.facts.name} ${op.part.label} ${op.position}` : op;
        found.set(key, [...(found.get(key) || []), op]);
      }
    }
  }
  for (const ops of found.values()) if (rows.length < MOST) rows.push(row(ops[0], ops.length));
  content.append(make("h2", { id: "count" }, `${count} found`),
    ...(rows.length === MOST ? [make("p", { className: "soft" }, `the first ${MOST} are shown`)] : []), ...rows);
}

search.addEventListener("input", () => search.value.trim() ? find(search.value) : first());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
  if (event.key === "Escape") { search.value = ""; search.blur(); first(); }
});

function first() {
  const [program] = data.programs;
  drawOverview(program, program.button);
}

document.querySelector("h1").textContent = `@${data.module.name}`;
const ranks = data.module.ranks > 1 ? `, ${data.module.ranks} ranks` : "";
document.getElementById("summary").textContent = [`level ${data.module.level}${ranks}`,
  data.module.opaque && `kept as they are: ${data.module.opaque}`, data.module.dropped && `left out: ${data.module.dropped}`]
  .filter(Boolean).join("; ");
for (const program of data.programs) {
  parts.append(make("h2", {}, `@${program.facts.name}`));
  program.button = make("button", { onclick: () => drawOverview(program, program.button) },
    make("span", { className: "name" }, "Overview"), make("small", {}, `${program.ops.length} ops`));
  parts.append(program.button);
  for (const part of program.parts) {
    part.program = program;
    const times = part.instances.length > 1 ? ` x ${part.instances.length}` : "";
    part.button = make("button", { onclick: () => drawPart(part), title: part.label },
      make("span", { className: "name" }, part.label), make("small", {}, `${part.instances[0].ops.length} ops${times}`));
    parts.append(part.button);
  }
}
first();
