"use strict";
// Modules of the page as columns of numbers, unpacked once. An op is a number, so is a value.

const head = JSON.parse(document.getElementById("data").textContent);

async function inflate(id) {
  const packed = document.getElementById(id).textContent;
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(packed)
    : Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

const inflateJson = async (id) => JSON.parse(new TextDecoder().decode(await inflate(id)));

const ARRAYS = { B: Uint8Array, H: Uint16Array, I: Uint32Array, d: Float64Array };

async function inflateColumns(id, rows) {
  const data = await inflate(id);
  return Object.fromEntries(rows.map(([name, code, first, count]) => [name, new ARRAYS[code](data, first, count)]));
}

// A function in a place: a program itself, or what one op of an outer instance runs.
class Instance {
  constructor(graph, fn, key, parent = null, op = -1, role = 0) {
    Object.assign(this, { graph, fn, key, parent, op, role });
    this.row = graph.functions[fn];
  }

  // Instances from the program to this one.
  get chain() {
    return this.parent ? [...this.parent.chain, this] : [this];
  }
}

class Graph {
  constructor(side, row, tables, columns) {
    Object.assign(this, { side, head: row, live: [] }, tables, columns);
    this.opCount = this.code.length;
    this.names = this.names.split("\n");
    this.scopes = this.scopes.split("\n");
    // For the unit that an op is in, while a region is split.
    this.slots = new Int32Array(this.opCount);
    this.number();
    this.readers();
    this.depths = new Int32Array(this.scopes.length);
    for (let at = 1; at < this.scopes.length; at += 1) this.depths[at] = this.depths[this.parents[at]] + 1;
    this.paths = [""];
    this.instances = new Map();
    this.roots = this.functions.slice(0, this.entries).map((_, fn) => this.instance(fn, String(fn)));
    this.outputOf = new Map();
    for (const fn of this.functions) {
      fn.outputs.forEach(([name, value], at) => {
        this.outputOf.set(value, [...(this.outputOf.get(value) ?? []), { name, at }]);
      });
    }
    this.spans = [new Map(), new Map()];
  }

  // The first result of each op, the op of each value (-1: an argument), operands as values.
  number() {
    const valueCount = this.type.length;
    this.firstValue = new Int32Array(this.opCount + 1);
    this.firstRead = new Int32Array(this.opCount + 1);
    this.fnOf = new Uint32Array(this.opCount);
    this.valueOp = new Int32Array(valueCount).fill(-1);
    let reads = 0;
    this.functions.forEach((row, fn) => {
      let value = row.value + row.args;
      for (let op = row.op; op < row.op + row.ops; op += 1) {
        this.fnOf[op] = fn;
        this.firstValue[op] = value;
        this.firstRead[op] = reads;
        for (let made = 0; made < this.results[op]; made += 1) this.valueOp[value + made] = op;
        value += this.results[op];
        reads += this.reads[op];
      }
    });
    this.firstValue[this.opCount] = valueCount;
    this.firstRead[this.opCount] = reads;
    const packed = this.operands;
    this.operand = new Int32Array(reads);
    for (let op = 0; op < this.opCount; op += 1) {
      for (let at = this.firstRead[op]; at < this.firstRead[op + 1]; at += 1) {
        const back = packed[at] & 1 ? -((packed[at] + 1) / 2) : packed[at] / 2;
        this.operand[at] = this.firstValue[op] - 1 - back;
      }
    }
  }

  // The ops that read each value, in program order, each once.
  readers() {
    const count = new Int32Array(this.type.length + 1);
    const each = (visit) => {
      for (let op = 0; op < this.opCount; op += 1) {
        for (let at = this.firstRead[op]; at < this.firstRead[op + 1]; at += 1) {
          if (this.operand.indexOf(this.operand[at], this.firstRead[op]) === at) visit(this.operand[at], op);
        }
      }
    };
    each((value) => { count[value + 1] += 1; });
    for (let value = 1; value < count.length; value += 1) count[value] += count[value - 1];
    this.firstReader = count;
    const next = count.slice();
    this.reader = new Int32Array(count[count.length - 1]);
    each((value, op) => { this.reader[next[value]] = op; next[value] += 1; });
  }

  readersOf(value) {
    return this.reader.subarray(this.firstReader[value], this.firstReader[value + 1]);
  }

  operandsOf(op) {
    return this.operand.subarray(this.firstRead[op], this.firstRead[op + 1]);
  }

  resultsOf(op) {
    return Array.from({ length: this.results[op] }, (_, at) => this.firstValue[op] + at);
  }

  opcode(op) {
    return this.codes[this.code[op]][0];
  }

  kind(op) {
    return this.codes[this.code[op]][1];
  }

  nameOf(op) {
    return this.results[op] ? this.names[this.firstValue[op]] : this.opcode(op);
  }

  typeOf(value) {
    return this.types[this.type[value]][0];
  }

  bytesOf(value) {
    return this.types[this.type[value]][1];
  }

  layoutOf(value) {
    return this.layouts[this.layout[value]];
  }

  // The dotted name of a scope.
  scopePath(scope) {
    if (this.paths[scope] === undefined) {
      const parent = this.parents[scope];
      this.paths[scope] = parent ? `${this.scopePath(parent)}.${this.scopes[scope]}` : this.scopes[scope];
    }
    return this.paths[scope];
  }

  // The number of a dotted scope, -1 for none.
  scopeOf(path) {
    return this.scopes.findIndex((name, at) => path.endsWith(name) && this.scopePath(at) === path);
  }

  lineOf(op) {
    const [file, line] = this.places[this.place[op]];
    return file ? `${file}:${line}` : "";
  }

  flopsOf(op) {
    return this.work[this.work_[op]][0];
  }

  movedOf(op) {
    return this.work[this.work_[op]][1];
  }

  instance(fn, key, parent, op, role) {
    if (!this.instances.has(key)) this.instances.set(key, new Instance(this, fn, key, parent, op, role));
    return this.instances.get(key);
  }

  // What an op of an instance runs, by role.
  child(instance, op, role) {
    const [, fn] = this.runs[op].runs[role];
    return this.instance(fn, `${instance.key}/${op}.${role}`, instance, op, role);
  }

  children(instance, op) {
    return (this.runs[op]?.runs ?? []).map((_, role) => this.child(instance, op, role));
  }

  // Instances by key, made as far as needed; null for a key of another file.
  instanceOf(key) {
    const [root, ...steps] = key.split("/");
    let found = this.roots[root] ?? null;
    for (const step of steps) {
      const [op, role] = step.split(".").map(Number);
      if (!found || !this.runs[op]?.runs[role] || this.fnOf[op] !== found.fn) return null;
      found = this.child(found, op, role);
    }
    return found;
  }

  // Calls dissolve in the positions that memory and pairs are in; kernels do in pairs only.
  dissolves(op, kernels) {
    const run = this.runs[op];
    return run !== undefined && run.op === "call" && (kernels || !run.kernel);
  }

  // The first position of each op of a function, and after them the number of all.
  positions(fn, kernels) {
    const known = this.spans[Number(kernels)];
    if (!known.has(fn)) {
      const { op: first, ops } = this.functions[fn];
      const starts = new Int32Array(ops + 1);
      for (let at = 0; at < ops; at += 1) {
        const inner = this.dissolves(first + at, kernels) ? this.positions(this.runs[first + at].runs[0][1], kernels) : null;
        starts[at + 1] = starts[at] + (inner ? inner[inner.length - 1] : 1);
      }
      known.set(fn, starts);
    }
    return known.get(fn);
  }

  // The op at a position of an instance: {instance, op}.
  at(instance, position, kernels) {
    const starts = this.positions(instance.fn, kernels);
    let [low, high] = [0, starts.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= position) low = middle;
      else high = middle;
    }
    // Calls of empty functions have no position.
    while (starts[low + 1] === starts[low] && low + 1 < starts.length - 1) low += 1;
    const op = instance.row.op + low;
    if (!this.dissolves(op, kernels)) return { instance, op };
    return this.at(this.child(instance, op, 0), position - starts[low], kernels);
  }

  // The instance around that no call made, and the position in it.
  positionOf(instance, op, kernels) {
    const position = this.positions(instance.fn, kernels)[op - instance.row.op];
    if (!instance.parent || !this.dissolves(instance.op, kernels)) return { base: instance, position };
    const outer = this.positionOf(instance.parent, instance.op, kernels);
    return { base: outer.base, position: outer.position + position };
  }

  // The values of a name, in every function.
  named(name) {
    const found = [];
    for (let at = this.names.indexOf(name); at >= 0; at = this.names.indexOf(name, at + 1)) found.push(at);
    return found;
  }

  fnOfValue(value) {
    if (this.valueOp[value] >= 0) return this.fnOf[this.valueOp[value]];
    let [low, high] = [0, this.functions.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.functions[middle].value <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Some instance of a function: one in a given program, if that runs it.
  someInstance(fn, first = null) {
    if (fn < this.entries) return this.roots[fn];
    this.callers ??= this.allCallers();
    this.known ??= new Map();
    const key = `${fn} ${first?.key ?? ""}`;
    if (!this.known.has(key)) {
      let best = null;
      for (const [op, role] of this.callers.get(fn) ?? []) {
        const outer = this.someInstance(this.fnOf[op], first);
        const better = outer && (!best || (first && outer.chain[0] === first && best.chain[0] !== first));
        if (better) best = this.child(outer, op, role);
      }
      this.known.set(key, best);
    }
    return this.known.get(key);
  }

  allCallers() {
    const found = new Map();
    for (const [op, { runs }] of Object.entries(this.runs)) {
      runs.forEach(([, fn], role) => found.set(fn, [...(found.get(fn) ?? []), [Number(op), role]]));
    }
    return found;
  }
}

async function openGraph(side) {
  const row = head.modules[side];
  const [tables, columns] = await Promise.all([inflateJson(`tables-${side}`), inflateColumns(`columns-${side}`, row.columns)]);
  const { work, attrs, groups, ...rest } = columns;
  const graph = new Graph(side, row, tables, { ...rest, work_: work, attrs_: attrs, groupOf: groups });
  graph.live = await Promise.all(row.live.map((rows, at) => rows && inflateColumns(`live-${side}-${at}`, rows)));
  return graph;
}

const nodeKey = ({ instance, op = -1, arg = -1 }) => `${instance.key}:${op >= 0 ? op : `a${arg}`}`;
