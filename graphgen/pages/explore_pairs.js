"use strict";
// Two modules side by side: which op of one is which op of the other.

// Pairs of functions by name: "first second" -> positions each way, and whether they are equal.
const pairs = new Map();

async function openPairs(graphs) {
  await Promise.all(head.pairs.map(async (row, number) => {
    const { first, second, equal } = await inflateColumns(`pairs-${number}`, row.columns);
    const sides = [new Map(), new Map()];
    first.forEach((position, at) => {
      sides[0].set(position, [second[at], equal[at]]);
      sides[1].set(second[at], [position, equal[at]]);
    });
    pairs.set(row.names.join(" "), { names: row.names, sides, changes: row.changes });
  }));
  if (pairs.size) for (const graph of graphs) graph.state = stateOf(graph);
}

// Of each op: 0 has no partner, 1 is the same in the other module, 2 is changed, 3 is not compared,
// for no output depends on it.
function stateOf(graph) {
  const state = new Uint8Array(graph.opCount).fill(pairs.size ? 0 : 1);
  for (const { names, sides } of pairs.values()) {
    const fn = graph.functions.findIndex((row) => row.name === names[graph.side]);
    if (fn < 0) continue;
    const base = graph.someInstance(fn);
    if (!base) continue;
    for (const [position, [, equal]] of sides[graph.side]) {
      const { op } = graph.at(base, position, true);
      state[op] = Math.max(state[op], equal ? 1 : 2);
    }
  }
  for (const op of Object.keys(graph.runs)) if (graph.dissolves(op, true)) state[op] = 1;
  const used = usedOps(graph);
  for (let op = 0; op < graph.opCount; op += 1) if (!state[op] && !used[op]) state[op] = 3;
  return state;
}

// 1 for each op that an output of its function depends on.
function usedOps(graph) {
  const used = new Uint8Array(graph.opCount);
  const visit = (value) => { if (graph.valueOp[value] >= 0) used[graph.valueOp[value]] = 1; };
  for (const row of graph.functions) {
    for (const [, value] of row.outputs) visit(value);
    for (let op = row.op + row.ops - 1; op >= row.op; op -= 1) if (used[op]) graph.operandsOf(op).forEach(visit);
  }
  return used;
}

function otherBase(base, other) {
  if (base.parent) {
    const outer = otherNode({ instance: base.parent, op: base.op }, other);
    return outer && other.runs[outer.op]?.runs[base.role] ? other.child(outer.instance, outer.op, base.role) : null;
  }
  const { side } = base.graph;
  for (const { names } of pairs.values()) {
    const root = names[side] === base.row.name && other.roots.find((one) => one.row.name === names[1 - side]);
    if (root) return root;
  }
  return null;
}

// The node of the other module that a node is paired with; null for none.
function otherNode(node, other) {
  const { graph } = node.instance;
  if (!(node.op >= 0)) return otherArgument(node, other);
  const { base, position } = graph.positionOf(node.instance, node.op, true);
  const target = otherBase(base, other);
  if (!target) return null;
  const names = graph.side ? [target.row.name, base.row.name] : [base.row.name, target.row.name];
  const found = pairs.get(names.join(" "))?.sides[graph.side].get(position);
  return found === undefined ? null : other.at(target, found[0], true);
}

function otherArgument({ instance, arg }, other) {
  const target = otherBase(instance, other);
  if (!target) return null;
  const name = instance.graph.names[arg];
  const place = arg - instance.row.value;
  for (let at = 0; at < target.row.args; at += 1) if (other.names[target.row.value + at] === name) return { instance: target, arg: target.row.value + at };
  return place < target.row.args ? { instance: target, arg: target.row.value + place } : null;
}

// What the detail says about the other module.
function counterpart(pane, node) {
  if (panes.length < 2 || !pairs.size) return null;
  if (node.op >= 0 && pane.graph.state[node.op] === 3) return make("p", { className: "soft" }, "no output depends on it: not compared");
  const other = otherNode(node, panes[1 - pane.graph.side].graph);
  if (!other) return make("p", { className: "differs" }, "no counterpart in the other module");
  const state = node.op >= 0 ? pane.graph.state[node.op] : 1;
  return make("p", { className: state === 1 ? "soft" : "differs" }, state === 1 ? "the same as " : "changed from ", linkToNode(other),
    state === 1 ? "" : make("code", {}, ` ${other.op >= 0 ? writtenOp(other.instance.graph, other.op) : ""}`));
}
