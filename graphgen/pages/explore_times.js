"use strict";
// Measured times of ops beside their bounds, where the page has a recording. Seconds of one run.

// duration(0.00274) is "2.74 ms".
function duration(seconds) {
  if (!seconds) return "0";
  const [unit, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([least]) => seconds >= least) ?? [1e-9, "ns"];
  return `${(seconds / unit).toFixed(2)} ${name}`;
}

// What an op took by itself; 0 for one that was not measured.
Graph.prototype.ownTime = function ownTime(op) {
  return this.took ? Math.max(this.took[op], 0) : 0;
};

// What an op lost to its bound by itself.
Graph.prototype.ownLoss = function ownLoss(op) {
  return this.took && this.least[op] >= 0 ? Math.max(this.ownTime(op) - this.least[op], 0) : 0;
};

// The time and the loss of an op and of what it runs: {time, lost}.
Graph.prototype.timesOf = function timesOf(op) {
  const made = { time: this.ownTime(op), lost: this.ownLoss(op) };
  for (const [, fn] of this.runs[op]?.runs ?? []) {
    const inside = this.timesIn(fn);
    made.time += inside.time;
    made.lost += inside.lost;
  }
  return made;
};

Graph.prototype.timesIn = function timesIn(fn) {
  this.functionTimes ??= new Map();
  if (!this.functionTimes.has(fn)) {
    const sum = { time: 0, lost: 0 };
    const { op: first, ops } = this.functions[fn];
    for (let op = first; this.took && op < first + ops; op += 1) {
      const { time, lost } = this.timesOf(op);
      sum.time += time;
      sum.lost += lost;
    }
    this.functionTimes.set(fn, sum);
  }
  return this.functionTimes.get(fn);
};

// The line of a unit that was measured.
function timeLine(graph, time, lost) {
  if (!time) return [];
  return [["tiny", `${duration(time)}${lost > time / 100 ? `, ${duration(lost)} lost` : ""}`]];
}

// What was measured of an op, for the pane of what is chosen.
function timeFacts(graph, op) {
  const { measured } = graph.head;
  const own = graph.ownTime(op);
  const { time } = graph.timesOf(op);
  if (!measured || !time) return [];
  const share = measured.seconds ? `, ${((100 * time) / measured.seconds).toFixed(1)} % of a run` : "";
  const facts = [[measured.alone ? "alone" : "measured", `${duration(time)}${share}`]];
  if (time > own) facts.push(["of that itself", duration(own)]);
  if (graph.ran[op] > 1) facts.push(["ran", `${graph.ran[op]} times a run`]);
  if (graph.least[op] > 0) facts.push(["bound", `${duration(graph.least[op])}, ${((100 * graph.least[op]) / own).toFixed(1)} % of the time`]);
  if (graph.ownLoss(op)) facts.push(["lost", duration(graph.ownLoss(op))]);
  return facts;
}

// The table of measured ops of a program and of what it runs: those that lose most first.
function measuredTimes({ graph, fn }) {
  const { measured } = graph.head;
  if (!measured) return;
  const root = graph.roots[fn];
  const found = [];
  for (let op = 0; op < graph.opCount; op += 1) {
    if (graph.took[op] < 0) continue;
    const instance = graph.someInstance(graph.fnOf[op], root);
    if (instance?.chain[0] === root) found.push({ instance, op });
  }
  const value = ({ op }) => graph.ownLoss(op);
  found.sort((a, b) => value(b) - value(a) || graph.ownTime(b.op) - graph.ownTime(a.op));
  const rows = ({ instance, op }) => [linkToNode({ instance, op }), graph.opcode(op), graph.ran[op], duration(graph.ownTime(op)),
    graph.least[op] < 0 ? "-" : duration(graph.least[op]), graph.least[op] < 0 ? "-" : duration(graph.ownLoss(op)), graph.scopePath(graph.scope[op])];
  section("Measured times", make("p", {}, measured.text),
    rowsOf(["", "op", "times", measured.alone ? "alone" : "measured", "bound", "lost", "scope"], found, rows));
}
