"use strict";
// A layer as a graph: ops in groups by their scope. A folded group is one node.

// Nodes that are drawn at first, where groups can be folded.
const COMFORTABLE = 80;

// The groups of an op inside a layer, the outermost first: ["self_attn", "self_attn.q_proj"].
function pathsOf(op, layer) {
  const scope = op.place?.[2] ?? "";
  const inner = scope === layer ? "" : scope.startsWith(`${layer}.`) ? scope.slice(layer.length + 1) : scope;
  const names = inner.split(".").filter(Boolean);
  return names.map((_, at) => names.slice(0, at + 1).join("."));
}

// Groups by path with the indices of their ops; a group of one op, or of all, says nothing.
function groupsOf(ops, layer) {
  const groups = new Map();
  for (const op of ops) {
    for (const path of pathsOf(op, layer)) groups.set(path, [...(groups.get(path) ?? []), op.index]);
  }
  for (const [path, inside] of groups) {
    if (inside.length === 1 || inside.length === ops.length) groups.delete(path);
  }
  // A group with the same ops as the one around it is left out.
  for (const [path, inside] of groups) {
    const outer = enclosing(path, groups);
    if (outer && groups.get(outer).length === inside.length) groups.delete(path);
  }
  return groups;
}

// The path of the group around a group, "" for none.
function enclosing(path, groups) {
  for (let cut = path.lastIndexOf("."); cut > 0; cut = path.lastIndexOf(".", cut - 1)) {
    if (groups.has(path.slice(0, cut))) return path.slice(0, cut);
  }
  return "";
}

// What is folded at first: groups are unfolded, the small ones first, while the graph stays small.
function firstFolds(ops, groups) {
  const folded = new Set(groups.keys());
  const bySize = [...groups].sort((a, b) => a[1].length - b[1].length).map(([path]) => path);
  for (let again = true; again;) {
    again = false;
    for (const path of bySize) {
      const outer = enclosing(path, groups);
      if (!folded.has(path) || (outer && folded.has(outer))) continue;
      folded.delete(path);
      if (visibleCount(ops, groups, folded) <= COMFORTABLE) again = true;
      else folded.add(path);
    }
  }
  return folded;
}

function visibleCount(ops, groups, folded) {
  const hidden = new Map();
  for (const path of folded) {
    let outermost = path;
    for (let outer = path; outer; outer = enclosing(outer, groups)) if (folded.has(outer)) outermost = outer;
    for (const op of groups.get(path)) hidden.set(op, outermost);
  }
  return ops.length - hidden.size + new Set(hidden.values()).size;
}

// The nodes, edges and boxes to draw.
function viewOf(ops, layer, groups, folded) {
  const view = { layer, nodes: new Map(), edges: new Map(), boxes: new Map() };
  const shown = new Map();
  for (const op of ops) {
    const paths = pathsOf(op, layer).filter((path) => groups.has(path));
    const fold = paths.find((path) => folded.has(path));
    const around = fold ? paths.slice(0, paths.indexOf(fold)) : paths;
    around.forEach((path, at) => view.boxes.set(path, { path, parent: around[at - 1] ?? "" }));
    const id = fold ? `group ${fold}` : `op ${op.index}`;
    shown.set(op.index, id);
    if (!fold) view.nodes.set(id, { id, kind: "op", op, parent: around.at(-1) ?? "" });
    else if (view.nodes.has(id)) view.nodes.get(id).ops.push(op);
    else view.nodes.set(id, { id, kind: "group", path: fold, ops: [op], parent: around.at(-1) ?? "" });
  }
  const outside = new Map([...view.nodes.keys()].map((id) => [id, { read: new Set(), left: new Map() }]));
  for (const op of ops) connect(view, shown, op, outside.get(shown.get(op.index)));
  for (const [id, { read, left }] of outside) {
    sources(view, id, [...read]);
    if (left.size) leaving(view, id, left);
  }
  return view;
}

// Edges inside of the view; what an op reads from outside and leaves to others is collected.
function connect(view, shown, op, { read, left }) {
  const to = shown.get(op.index);
  for (const value of new Set(op.operands)) {
    const from = shown.get(value.op);
    if (!from) read.add(value);
    else if (from !== to) join(view, from, to, [value]);
  }
  for (const value of op.results) {
    const outputs = op.program.outputsOf.get(value.name) ?? [];
    const readers = value.readers.filter((reader) => !shown.has(reader.op));
    if (outputs.length || readers.length) left.set(value, { outputs, readers });
  }
}

// Values from outside stand before each node that reads them, so that lines stay short; many are
// one stack for each kind.
function sources(view, to, values) {
  const stacks = new Map();
  for (const value of values) {
    const kind = values.length <= 3 ? value.name : value.op < 0 ? value.what : "other layers";
    stacks.set(kind, [...(stacks.get(kind) ?? []), value]);
  }
  const { parent } = view.nodes.get(to);
  for (const [kind, stack] of stacks) {
    const id = `from ${kind} ${to}`;
    view.nodes.set(id, { id, kind: "from", what: stack.length > 1 ? kind : stack[0].what, values: stack, parent });
    join(view, id, to, stack);
  }
}

function leaving(view, from, left) {
  const id = `to ${from}`;
  const { parent } = view.nodes.get(from);
  view.nodes.set(id, { id, kind: "to", left, values: [...left.keys()], parent });
  join(view, from, id, left.keys());
}

function join(view, from, to, values) {
  const key = `${from} > ${to}`;
  const edge = view.edges.get(key) ?? { from, to, values: new Set() };
  for (const value of values) edge.values.add(value);
  view.edges.set(key, edge);
}
