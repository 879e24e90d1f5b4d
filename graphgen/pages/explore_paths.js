"use strict";
// Where values come from and who reads them, across the borders of loops, calls and branches.
// A node is {instance, op} or {instance, arg}.

const MOST_REACHED = 4000;

// The node that makes a value in an instance.
function makerOf(instance, value) {
  const op = instance.graph.valueOp[value];
  return op >= 0 ? { instance, op } : { instance, arg: value };
}

// The operand of the outer op that an argument of an instance stands for; -1 for none.
function handed({ instance, arg }) {
  const { graph, op, role } = instance;
  const place = arg - instance.row.value;
  const { op: kind, takes } = graph.runs[op];
  if (kind === "call" || kind === "while") return graph.operandsOf(op)[place];
  if (kind === "conditional") {
    const before = takes.slice(0, role).reduce((sum, count) => sum + count, 1);
    return graph.operandsOf(op)[before + place];
  }
  return -1;
}

// The nodes that a node reads.
function sourcesOf(node) {
  const { instance } = node;
  const { graph } = instance;
  if (node.op >= 0) return [...new Set(graph.operandsOf(node.op))].map((value) => makerOf(instance, value));
  if (!instance.parent) return [];
  const value = handed(node);
  const found = value >= 0 ? [makerOf(instance.parent, value)]
    : [...new Set(graph.operandsOf(instance.op))].map((one) => makerOf(instance.parent, one));
  const run = graph.runs[instance.op];
  // The state of a loop is also what the turn before has left.
  if (run.op === "while" && run.runs[instance.role][0] === "body") {
    const output = instance.row.outputs[node.arg - instance.row.value];
    if (output && output[1] !== node.arg) found.push(makerOf(instance, output[1]));
  }
  return found;
}

// The nodes that read a node.
function readersOf(node) {
  const { instance } = node;
  const { graph } = instance;
  const values = node.op >= 0 ? graph.resultsOf(node.op) : [node.arg];
  const found = [];
  const seen = new Set();
  for (const value of values) {
    for (const op of graph.readersOf(value)) {
      if (!seen.has(op)) found.push({ instance, op });
      seen.add(op);
    }
    if (instance.parent && graph.outputOf.has(value)) found.push({ instance: instance.parent, op: instance.op });
  }
  return found;
}

// Into and out of what control ops run, for paths: the arguments of an instance, the makers of its outputs.
function inward(node, value) {
  const { instance, op } = node;
  return instance.graph.children(instance, op).flatMap((child) =>
    Array.from({ length: child.row.args }, (_, at) => ({ instance: child, arg: child.row.value + at }))
      .filter((arg) => value < 0 || handed(arg) === value));
}

function readersWithin(node) {
  const found = readersOf(node);
  const values = node.op >= 0 ? node.instance.graph.resultsOf(node.op) : [node.arg];
  for (const reader of [...found]) {
    if (reader.instance === node.instance && node.instance.graph.runs[reader.op]) {
      for (const value of values) found.push(...inward(reader, value));
    }
  }
  return found;
}

// Nodes up to a distance: key -> {node, distance}.
function reach(start, next, depth) {
  const found = new Map([[nodeKey(start), { node: start, distance: 0 }]]);
  let edge = [start];
  for (let distance = 1; distance <= depth && edge.length; distance += 1) {
    const further = [];
    for (const node of edge) {
      for (const other of next(node)) {
        const key = nodeKey(other);
        if (found.has(key)) continue;
        if (found.size >= MOST_REACHED) return found;
        found.set(key, { node: other, distance });
        further.push(other);
      }
    }
    edge = further;
  }
  return found;
}

// A shortest path from one node to another along values, empty if there is none.
function pathBetween(start, end) {
  return walkTo(start, end) ?? walkTo(end, start) ?? [];
}

function walkTo(start, end) {
  const goal = nodeKey(end);
  const before = new Map([[nodeKey(start), null]]);
  let edge = [start];
  while (edge.length) {
    const further = [];
    for (const node of edge) {
      if (nodeKey(node) === goal) {
        const path = [];
        for (let at = node; at; at = before.get(nodeKey(at))) path.unshift(at);
        return path;
      }
      for (const other of readersWithin(node)) {
        const key = nodeKey(other);
        if (before.has(key)) continue;
        before.set(key, node);
        further.push(other);
      }
    }
    edge = further;
  }
  return null;
}
