"use strict";
// The pane of one value: what it is, how it lies, what it reads and what reads it.

const detail = document.getElementById("detail");
const MOST_LINKS = 60;

function link(text, target, title = "") {
  return make("a", { className: "link", href: hashOf(target), title }, text);
}

const linkTo = (program, value) => link(`%${value.name}`, { program: program.name, op: value.name });

function chip(layout) {
  const element = make("span", { className: "chip" }, layout);
  element.style.background = layoutColour(layout);
  return element;
}

function showValue(program, value, op) {
  const facts = [["type", make("code", {}, value.type)], ["bytes", size(value.bytes)]];
  if (value.layout) facts.push(["sharding", chip(value.layout)]);
  const outputs = program.outputsOf.get(value.name);
  if (outputs) facts.push(["output", outputs.join(", ")]);
  if (op) facts.unshift(["op", op.op]);
  else facts.unshift(["argument", value.kind]);
  detail.replaceChildren(make("h2", {}, `%${value.name}`), table([], [...facts, ...(op ? placeFacts(op) : [])]));
  if (op) showOp(program, op);
  const more = value.uses > value.readers.length ? [["", `and ${value.uses - value.readers.length} more`]] : [];
  listLinks("read by", value.uses, value.readers.map((reader) => [linkTo(program, reader), reader.what]), more);
}

function placeFacts(op) {
  const facts = [];
  if (op.attrs) facts.push(["attributes", make("code", {}, op.attrs.trim())]);
  if (!op.place) return facts;
  const [, , scope, passes] = op.place;
  facts.push(["line", link(line(op), { search: line(op) })]);
  if (scope) facts.push(["scope", link(scope, { search: scope })]);
  if (passes) facts.push(["passes", passes]);
  return facts;
}

function showOp(program, op) {
  if (isCollective(op)) detail.append(make("h3", {}, "exchange"), meshPicture(op.more));
  if (op.more.runs) {
    const known = (name) => programs.some((other) => other.name === name);
    detail.append(make("h3", {}, "runs"), ...op.more.runs.map((name) =>
      make("p", {}, known(name) ? link(`@${name}`, { program: name }) : `@${name}`)));
  }
  listLinks("reads", op.operands.length, op.operands.map((value) => [linkTo(program, value), value.what, value.layout]));
  if (op.results.length > 1) {
    listLinks("results", op.results.length, op.results.map((value) => [linkTo(program, value), value.type, value.layout]));
  }
}

function listLinks(title, count, rows, more = []) {
  if (!count) return;
  const cells = rows.slice(0, MOST_LINKS).map(([element, what, layout]) =>
    [element, make("span", { className: "soft" }, what), layout ? chip(layout) : ""]);
  detail.append(make("h3", {}, `${title} (${count})`), table([], [...cells, ...more]));
}

// An argument's readers are numbers in the page's head; their names are in the blocks of their ops.
async function showArgument(program, value) {
  const readers = await Promise.all(value.readers.slice(0, MOST_LINKS).map(async (index) => {
    if (typeof index === "object") return index;
    const op = await program.op(index);
    return { op: index, name: op.results[0]?.name ?? op.op, what: op.op };
  }));
  showValue(program, { ...value, readers }, null);
}

// The values of a stack before a folded group.
function showStack(program, values) {
  detail.replaceChildren();
  listLinks("reads from outside", values.length, values.map((value) => [linkTo(program, value), value.type, value.layout]));
}

// The values that leave a layer: each with its outputs and its readers in other layers.
function showLeaving(program, left) {
  detail.replaceChildren();
  for (const [value, { outputs, readers }] of left) {
    detail.append(make("h2", {}, linkTo(program, value)), make("p", {}, make("code", {}, value.type)));
    if (outputs.length) detail.append(make("p", {}, `output ${outputs.join(", ")}`));
    listLinks("read elsewhere by", readers.length, readers.map((reader) => [linkTo(program, reader), reader.what]));
  }
}
