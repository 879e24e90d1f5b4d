"use strict";
// The pane of what is chosen: what it is, how it lies, what it reads and what reads it.

const detail = document.getElementById("detail");
const MOST_LINKS = 40;

function link(text, target, title = "") {
  return make("a", { className: "link", href: hashOf(target), title }, text);
}

function linkToNode(node, text = null) {
  const { instance, op = -1, arg = -1 } = node;
  const name = op >= 0 ? instance.graph.nameOf(op) : instance.graph.names[arg];
  return link(text ?? `%${name}`, addressOf(node), instance.parent ? instance.chain.map((one) => one.row.name).join(" › ") : "");
}

// The parameters of a node's address; a name that several ops have is its number.
function addressOf({ instance, op = -1, arg = -1 }) {
  const { graph } = instance;
  const name = op >= 0 ? graph.nameOf(op) : graph.names[arg];
  const same = graph.named(name).filter((value) => graph.fnOfValue(value) === instance.fn);
  const exact = same.length === 1 && (op < 0 || graph.results[op]);
  return { side: graph.side ? "b" : "", program: instance.chain[0].row.name, in: instance.parent ? instance.key : "",
    op: exact ? name : `#${op >= 0 ? op : `a${arg}`}` };
}

function chip(layout) {
  const element = make("span", { className: "chip" }, layout);
  element.style.background = layoutHue(layout) || theme.line;
  return element;
}

function listLinks(title, nodes, what) {
  if (!nodes.length) return;
  const rows = nodes.slice(0, MOST_LINKS).map((node) => [linkToNode(node), make("span", { className: "soft" }, what(node))]);
  const more = nodes.length > MOST_LINKS ? [["", `and ${nodes.length - MOST_LINKS} more`]] : [];
  detail.append(make("h3", {}, `${title} (${nodes.length})`), table([], [...rows, ...more]));
}

const whatOf = ({ instance, op = -1, arg = -1 }) => (op >= 0 ? instance.graph.opcode(op) : argKind(instance.graph, arg));

function showNode(pane, node) {
  const { instance } = node;
  const { graph } = instance;
  const isOp = node.op >= 0;
  const value = isOp ? graph.firstValue[node.op] : node.arg;
  const name = isOp ? graph.nameOf(node.op) : graph.names[value];
  const facts = [[isOp ? "op" : "argument", whatOf(node)]];
  if (!isOp || graph.results[node.op]) {
    facts.push(["type", make("code", {}, graph.typeOf(value))], ["bytes", size(graph.bytesOf(value))]);
    if (graph.layoutOf(value)) facts.push(["sharding", chip(graph.layoutOf(value))]);
    if (graph.proof?.[value]) facts.push(["proof", PROOFS[graph.proof[value]][0]], ["relation", graph.relations[graph.relation[value]]]);
  }
  const outputs = (isOp ? graph.resultsOf(node.op) : [value]).flatMap((one) => graph.outputOf.get(one) ?? []);
  if (outputs.length) facts.push(["output", outputs.map((one) => one.name).join(", ")]);
  if (isOp) facts.push(...opFacts(instance, node.op));
  detail.replaceChildren(make("h2", {}, `%${name}`), table([], facts), tools(pane, node));
  if (isOp) showOp(instance, node.op);
  const compared = counterpart(pane, node);
  if (compared) detail.append(compared);
  listLinks(isOp ? "reads" : "comes from", sourcesOf(node), whatOf);
  listLinks("read by", readersOf(node), whatOf);
}

function opFacts(instance, op) {
  const { graph } = instance;
  const facts = [];
  const [file, , passes] = graph.places[graph.place[op]];
  const scope = graph.scopePath(graph.scope[op]);
  const live = livePlace(instance, op);
  if (graph.flopsOf(op)) facts.push(["flops", size(graph.flopsOf(op), "flops")]);
  if (graph.movedOf(op)) facts.push(["moved", size(graph.movedOf(op))]);
  facts.push(...timeFacts(graph, op));
  if (live) facts.push(["alive", link(size(live.bytes), { program: live.root.row.name, view: "memory", at: live.position })]);
  if (graph.attrs[graph.attrs_[op]]) facts.push(["attributes", make("code", {}, graph.attrs[graph.attrs_[op]].trim())]);
  if (file) facts.push(["line", link(graph.lineOf(op), { search: graph.lineOf(op) })]);
  if (scope) facts.push(["scope", link(scope, { search: scope })]);
  if (passes) facts.push(["passes", passes]);
  return facts;
}

function showOp(instance, op) {
  const { graph } = instance;
  const run = graph.runs[op];
  if (graph.groups_(op)) detail.append(make("h3", {}, "exchange"), meshPicture(graph.head.module, graph.groups_(op)));
  if (run) {
    const turns = run.turns === null ? "" : `, ${plural(run.turns, "turn")}`;
    detail.append(make("h3", {}, `runs${turns}`), ...run.runs.map(([role, fn]) =>
      make("p", {}, role === graph.functions[fn].name ? "" : `${role}: `, `@${graph.functions[fn].name}, ${plural(graph.functions[fn].ops, "op")}`)));
  }
  if (graph.results[op] > 1) {
    detail.append(make("h3", {}, `results (${graph.results[op]})`), table([], graph.resultsOf(op).slice(0, MOST_LINKS).map((value) =>
      [`%${graph.names[value]}`, make("code", {}, graph.typeOf(value)), graph.layoutOf(value) ? chip(graph.layoutOf(value)) : ""])));
  }
}

// Buttons: neighbours up to a distance, the surroundings alone, a path to another op.
function tools(pane, node) {
  const depth = make("input", { type: "number", min: 1, max: 99, value: pane.depth ?? 1, title: "neighbours up to this distance are marked" });
  depth.setAttribute("aria-label", "distance of neighbours");
  depth.addEventListener("change", () => pane.act.deepen(pane, Math.max(depth.valueAsNumber || 1, 1)));
  const button = (text, title, onclick) => make("button", { textContent: text, title, onclick });
  const row = make("p", { className: "tools" }, make("label", {}, "neighbours ", depth));
  if (node.op >= 0) row.append(button("alone", "draw only these neighbours", () => pane.act.alone(pane, node)));
  row.append(button("path from here", "then choose where to", () => pane.act.pathFrom(pane, node)));
  return row;
}

function showPath(pane, path) {
  const [first, last] = [path[0], path.at(-1)];
  detail.replaceChildren(make("h2", {}, `path of ${plural(path.length - 1, "step")}`),
    make("p", { className: "soft" }, "along values, from ", linkToNode(first), " to ", linkToNode(last)),
    table([], path.slice(0, 200).map((node) => [linkToNode(node), make("span", { className: "soft" }, whatOf(node)),
      make("span", { className: "soft" }, node.op >= 0 ? node.instance.graph.scopePath(node.instance.graph.scope[node.op]) : "")])));
}
