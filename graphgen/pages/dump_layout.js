"use strict";
// Places for the nodes of a view: sizes are from the text in them, the rest is dagre's.

// The advance of a letter of the monospaced face at 11 px, and the longest text of a node.
const [LETTER, LONGEST] = [6.7, 30];
const LINE = 15;

const short = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 9)}…${text.slice(-8)}` : text);

// A dotted name without the layer around it; of a longer one the end.
function lastWords(name, layer) {
  const inner = layer && name.startsWith(`${layer}.`) ? name.slice(layer.length + 1) : name;
  return inner.length > LONGEST ? `…${inner.slice(1 - LONGEST)}` : inner;
}

const MOST_STACKED = 6;

// Text of a node: [class, text] by line.
function linesOf(node, layer) {
  if (node.kind === "from") {
    const names = node.values.slice(0, MOST_STACKED).map((value) => ["soft", lastWords(value.name, layer)]);
    const more = node.values.length - names.length;
    return [...names, ["tiny", more ? `and ${more} more ${node.what}` : node.what]];
  }
  if (node.kind === "to") {
    const outputs = [...node.left.values()].flatMap((one) => one.outputs);
    const readers = [...node.left.values()].flatMap((one) => one.readers);
    const lines = outputs.slice(0, MOST_STACKED).map((name) => ["soft", lastWords(name, layer)]);
    if (outputs.length) lines.push(["tiny", outputs.length > 1 ? "outputs" : "output"]);
    if (readers.length) lines.push(["tiny", `read elsewhere by ${readers.length > 1 ? plural(readers.length, "op") : readers[0].what}`]);
    return lines;
  }
  if (node.kind === "group") {
    const exchanges = node.ops.filter(isCollective).length;
    const more = exchanges ? `, ${plural(exchanges, "collective")}` : "";
    return [["name", short(`+ ${node.path.split(".").at(-1)}`)], ["tiny", `${plural(node.ops.length, "op")}${more}`]];
  }
  const { op } = node;
  const [, value] = op.op === "constant" ? op.attrs.match(/value=(\S.*)/) ?? [] : [];
  const lines = [["name", `${isCollective(op) ? "⇄ " : ""}${op.op}`]];
  if (value) lines.push(["soft", short(value)]);
  else if (op.results.length) lines.push(["soft", short(`%${lastWords(op.results[0].name, layer)}`)]);
  return lines;
}

function badgeOf(node) {
  if (node.kind === "op") return node.op.results.find((value) => value.layout)?.layout ?? "";
  return (node.kind === "from" && node.values.length === 1 && node.values[0].layout) || "";
}

function sizeOf(node, layer) {
  node.lines = linesOf(node, layer);
  node.badge = badgeOf(node);
  const texts = [...node.lines.map(([, text]) => text), node.badge && ` ${short(node.badge)} `].filter(Boolean);
  node.width = Math.max(...texts.map((text) => text.length)) * LETTER + 18;
  node.height = texts.length * LINE + (node.badge ? 12 : 9);
}

const typeOf = (values) => (values.size > 1 ? `${values.size} values` : short([...values][0].type, 26));

// Sets x, y of nodes and boxes, points of edges; returns the size of the whole.
function place(view) {
  const graph = new dagre.graphlib.Graph({ compound: true });
  graph.setGraph({ rankdir: "TB", nodesep: 16, ranksep: 20, edgesep: 14, marginx: 16, marginy: 16 });
  for (const box of view.boxes.values()) {
    graph.setNode(`box ${box.path}`, box);
    if (box.parent) graph.setParent(`box ${box.path}`, `box ${box.parent}`);
  }
  for (const node of view.nodes.values()) {
    sizeOf(node, view.layer);
    graph.setNode(node.id, node);
    if (node.parent) graph.setParent(node.id, `box ${node.parent}`);
  }
  const fans = new Map();
  for (const edge of view.edges.values()) {
    // A value with many readers in view has its type at the first ones.
    const fan = (fans.get(edge.from) ?? 0) + 1;
    fans.set(edge.from, fan);
    edge.label = fan > 3 ? "" : typeOf(edge.values);
    const room = edge.label ? { width: edge.label.length * 6.1 + 6, height: 13, labelpos: "c" } : { width: 1, height: 1 };
    graph.setEdge(edge.from, edge.to, Object.assign(edge, room));
  }
  dagre.layout(graph);
  return { width: graph.graph().width, height: graph.graph().height };
}
