"use strict";
// Regions: what is inside of a box. A region is split into units when it is unfolded: ops, arguments,
// and groups of ops that are regions again, by scope, by what an op runs, or by place in a long list.

// Units that stand in one region; longer lists are cut into groups in program order.
const MOST_UNITS = 48;
// Lines from one unit that are drawn, and how many of more.
const [MOST_LINES, FIRST_LINES] = [8, 4];

class Unit {
  constructor(region, kind, given) {
    Object.assign(this, { region, kind, op: -1, arg: -1, inner: null, open: false, reads: 0, leaves: 0 }, given);
  }

  get graph() {
    return this.region.graph;
  }

  get instance() {
    return this.region.instance;
  }

  // The region that a group or an op unfolds to; null for what has no inside.
  get inside() {
    if (!this.inner && this.op >= 0 && this.graph.runs[this.op]) {
      const children = this.graph.children(this.instance, this.op);
      this.inner = children.length === 1
        ? Region.ofInstance(children[0], this)
        : new Region(this.instance, { id: `${this.id}!`, kind: "roles", outer: this, children });
    }
    return this.inner;
  }

  get folds() {
    return this.inner !== null || (this.op >= 0 && this.graph.runs[this.op] !== undefined);
  }

  // The ops that the unit stands for, without what they run.
  get ops() {
    return this.op >= 0 ? [this.op] : this.inner?.ops ?? [];
  }
}

class Region {
  constructor(instance, given) {
    Object.assign(this, { instance, graph: instance.graph, scope: 0, title: "", ops: [], args: [], units: null, outer: null, base: null }, given);
  }

  static ofInstance(instance, outer = null) {
    const { graph, row } = instance;
    const ops = new Int32Array(row.ops);
    for (let at = 0; at < row.ops; at += 1) ops[at] = row.op + at;
    const args = Array.from({ length: row.args }, (_, at) => row.value + at);
    return new Region(instance, { id: `${instance.key}:`, kind: "function", title: `@${row.name}`, ops, args, outer });
  }

  split() {
    if (this.units) return this;
    if (this.kind === "roles") this.splitRoles();
    else if (this.listed) this.finish(this.listed);
    else this.finish(this.splitScopes());
    this.connect();
    return this;
  }

  splitRoles() {
    this.units = this.children.map((instance, role) => {
      const [name] = this.graph.runs[instance.op].runs[role];
      const unit = new Unit(this, "group", { id: `${this.id}${role}`, label: name });
      unit.inner = Region.ofInstance(instance, unit);
      unit.inner.title = name;
      return unit;
    });
    this.unitOf = new Int32Array(0);
    this.argUnit = new Map();
  }

  // Ops of the scope itself, and a group for each scope inside of it.
  splitScopes() {
    const { graph, ops } = this;
    const { depths, parents, scope: scopeOf, slots } = graph;
    for (;;) {
      const groups = new Map();
      const found = [];
      for (const op of ops) {
        let scope = scopeOf[op];
        const own = depths[scope] <= depths[this.scope];
        while (depths[scope] > depths[this.scope] + 1) scope = parents[scope];
        let at = own ? undefined : groups.get(scope);
        if (at === undefined) {
          at = found.length;
          found.push({ first: op, op: own ? op : -1, scope, count: 0 });
          if (!own) groups.set(scope, at);
        }
        found[at].count += 1;
        slots[op] = at;
      }
      // A scope that holds everything says nothing, nor does one of a single op.
      if (found.length === 1 && groups.size && ops.length > 1) this.scope = found[0].scope;
      else return this.withArgs(this.gathered(found));
    }
  }

  // Gives each group its ops.
  gathered(found) {
    const { ops, graph: { slots } } = this;
    const sorted = new Int32Array(ops.length);
    let start = 0;
    for (const item of found) {
      item.ops = sorted.subarray(start, start + item.count);
      item.next = 0;
      start += item.count;
    }
    for (const op of ops) {
      const item = found[slots[op]];
      item.ops[item.next] = op;
      item.next += 1;
    }
    return found;
  }

  withArgs(found) {
    const { graph } = this;
    const args = [];
    for (const value of this.args) {
      const readers = graph.readersOf(value);
      const at = graph.slots[readers[0]];
      const alone = readers.length > 0 && found[at].count > 1 && readers.every((op) => graph.slots[op] === at);
      if (alone) (found[at].args ??= []).push(value);
      else args.push({ first: readers.length ? readers[0] - 0.5 : this.ops.length ? this.ops[0] - 1 : 0, arg: value });
    }
    return [...found, ...args].sort((a, b) => a.first - b.first || (a.arg ?? 0) - (b.arg ?? 0)).map((item) => this.unit(item));
  }

  unit(item) {
    const { instance, graph } = this;
    if (item.arg !== undefined) return new Unit(this, "arg", { id: `${instance.key}:a${item.arg}`, arg: item.arg });
    if (item.op >= 0 || item.count === 1) return new Unit(this, "op", { id: `${instance.key}:${item.first}`, op: item.first });
    const label = graph.scopes[item.scope];
    const unit = new Unit(this, "group", { id: `${instance.key}:s${item.scope}`, label });
    unit.inner = new Region(instance, { id: unit.id, kind: "scope", scope: item.scope, title: label, ops: item.ops, args: item.args ?? [], outer: unit });
    return unit;
  }

  // Sets the units; a long list becomes groups of groups, as many in each.
  finish(units) {
    if (units.length > MOST_UNITS) {
      const levels = Math.ceil(Math.log(units.length) / Math.log(MOST_UNITS));
      const size = Math.ceil(units.length / Math.ceil(units.length ** (1 / levels)));
      const cut = [];
      for (let at = 0; at < units.length; at += size) cut.push(this.chunk(units.slice(at, at + size), at));
      units = cut;
    }
    this.units = units;
    for (const unit of units) unit.region = this;
    const { slots } = this.graph;
    units.forEach((unit, at) => { for (const op of unit.ops) slots[op] = at; });
    this.unitOf = new Int32Array(this.ops.length);
    this.ops.forEach((op, at) => { this.unitOf[at] = slots[op]; });
    this.argUnit = new Map();
    units.forEach((unit, at) => { for (const arg of unit.inner?.args ?? (unit.arg >= 0 ? [unit.arg] : [])) this.argUnit.set(arg, at); });
  }

  chunk(units, at) {
    const first = units.find((unit) => unit.arg < 0) ?? units[0];
    const last = units.findLast((unit) => unit.arg < 0) ?? units.at(-1);
    const label = `${labelOf(first)} … ${labelOf(last)}`;
    const ops = new Int32Array(units.reduce((sum, unit) => sum + unit.ops.length, 0));
    let filled = 0;
    for (const unit of units) {
      ops.set(unit.ops, filled);
      filled += unit.ops.length;
    }
    ops.sort();
    const args = units.flatMap((unit) => unit.inner?.args ?? (unit.arg >= 0 ? [unit.arg] : []));
    const unit = new Unit(this, "group", { id: `${this.id}~${at}.${units.length}`, label, count: units.length });
    unit.inner = new Region(this.instance, { id: unit.id, kind: "list", title: label, ops, args, outer: unit, listed: units, scope: this.scope });
    return unit;
  }

  // The number of the unit that has an op, -1 for an op that is not in the region.
  indexOf(op) {
    let [low, high] = [0, this.ops.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.ops[middle] === op) return this.unitOf[middle];
      if (this.ops[middle] < op) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  // Edges between units, how many values each unit reads from outside, how many it gives away.
  connect() {
    const { graph, units, ops, unitOf } = this;
    const edges = new Map();
    const marks = (graph.marks ??= new Int32Array(graph.opCount));
    ops.forEach((op, at) => { marks[op] = unitOf[at] + 1; });
    const { operand, firstRead, firstValue, firstReader, reader, results, valueOp, outputOf } = graph;
    for (let place = 0; place < ops.length; place += 1) {
      const op = ops[place];
      const to = unitOf[place];
      const unit = units[to];
      for (let at = firstRead[op]; at < firstRead[op + 1]; at += 1) {
        const made = valueOp[operand[at]];
        const from = made < 0 ? this.argUnit.get(operand[at]) ?? -1 : marks[made] - 1;
        if (from < 0) unit.reads += 1;
        else if (from !== to) this.join(edges, from, to);
      }
      for (let value = firstValue[op]; value < firstValue[op] + results[op]; value += 1) {
        let at = firstReader[value];
        while (at < firstReader[value + 1] && marks[reader[at]]) at += 1;
        if (at < firstReader[value + 1] || outputOf.has(value)) unit.leaves += 1;
      }
    }
    ops.forEach((op) => { marks[op] = 0; });
    this.edges = this.routed([...edges.values()]);
  }

  // What is read everywhere would cover everything with lines: it has them to its first readers.
  routed(edges) {
    const { units } = this;
    const fans = new Map();
    edges.sort((a, b) => a.to - b.to);
    for (const { from } of edges) fans.set(from, (fans.get(from) ?? 0) + 1);
    const drawn = new Map();
    return edges.filter(({ from, to, count }) => {
      drawn.set(from, (drawn.get(from) ?? 0) + 1);
      if (fans.get(from) <= MOST_LINES || drawn.get(from) <= FIRST_LINES) return true;
      units[to].reads += count;
      units[from].leaves += count;
      return false;
    });
  }

  join(edges, from, to) {
    const key = from * this.units.length + to;
    const known = edges.get(key);
    if (known) known.count += 1;
    else edges.set(key, { from, to, count: 1 });
  }
}

// Operations, bytes and collectives of what a unit stands for, counted once.
function sumsOf(unit) {
  if (!unit.sums) {
    const { graph } = unit;
    const sums = { flops: 0, bytes: 0, time: 0, lost: 0, collectives: 0, count: 0, layout: null };
    for (const op of unit.ops) {
      sums.flops += graph.flopsOf(op);
      sums.bytes += graph.movedOf(op);
      if (graph.took) {
        const { time, lost } = graph.timesOf(op);
        sums.time += time;
        sums.lost += lost;
      }
      sums.collectives += graph.groups_(op) ? 1 : 0;
      sums.count += 1;
      const layout = graph.results[op] ? graph.layout[graph.firstValue[op]] : 0;
      sums.layout = sums.layout === null || sums.layout === layout ? layout : 0;
    }
    unit.sums = sums;
  }
  return unit.sums;
}

Graph.prototype.groups_ = function groupsOf(op) {
  return this.groups[this.groupOf[op]];
};

function labelOf(unit) {
  if (unit.kind === "group") return unit.label;
  if (unit.arg >= 0) return unit.graph.names[unit.arg];
  return unit.graph.nameOf(unit.op);
}
