"use strict";
// Programs of the page. Ops are in compressed blocks, unpacked when something in them is shown.

const head = JSON.parse(document.getElementById("data").textContent);

async function unpack(id) {
  const packed = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

class Program {
  constructor(row, number) {
    Object.assign(this, row, { number, name: row.facts.name });
    this.args = row.args.map(([name, type, bytes, kind, readers, uses, layout], id) =>
      ({ id, name, type, bytes, kind, readers, uses, layout, op: -1, what: kind }));
    this.outputsOf = new Map();
    for (const [output, value] of row.outputs) {
      this.outputsOf.set(value, [...(this.outputsOf.get(value) || []), output]);
    }
    this.blocks = new Map();
  }

  block(name) {
    if (!this.blocks.has(name)) this.blocks.set(name, unpack(name));
    return this.blocks.get(name);
  }

  // Identical layers of one part: [[name, runs of ops], ...].
  async instances(part) {
    return (await this.block(`parts-${this.number}`))[part];
  }

  // The ops of runs [first, count, first, count, ...].
  async ops(runs) {
    const found = [];
    for (let at = 0; at < runs.length; at += 2) {
      for (let op = runs[at]; op < runs[at] + runs[at + 1];) {
        const chunk = await this.chunk(Math.floor(op / this.chunkSize));
        const last = Math.min(runs[at] + runs[at + 1], chunk.first + chunk.ops.length);
        found.push(...chunk.ops.slice(op - chunk.first, last - chunk.first));
        op = last;
      }
    }
    return found;
  }

  get chunkSize() {
    return head.chunk;
  }

  get chunkCount() {
    return Math.ceil(this.count / head.chunk);
  }

  async op(index) {
    return (await this.ops([index, 1]))[0];
  }

  chunk(number) {
    const name = `ops-${this.number}-${number}`;
    if (!this.blocks.has(name)) this.blocks.set(name, this.read(number));
    return this.blocks.get(name);
  }

  // A chunk that is not kept, for search.
  async read(number) {
    const raw = await unpack(`ops-${this.number}-${number}`);
    return { first: raw.first, ops: this.linked(raw) };
  }

  // Rows as objects whose operands are values, each with its op's index (-1: an argument).
  linked(raw) {
    const values = new Map(Object.entries(raw.values).map(([id, [name, type, op, what, layout]]) =>
      [Number(id), { name, type, op, what, layout }]));
    let next = raw.start;
    const ops = raw.ops.map(([op, results, attrs, reads, place, more], at) => {
      const index = raw.first + at;
      const made = results.map(([name, type, bytes, readers, uses, layout]) => {
        const value = { id: next, name, type, bytes, readers, uses, layout, op: index, what: op };
        values.set(next, value);
        next += 1;
        return value;
      });
      return { index, program: this, op, results: made, attrs, reads, place: raw.places[place], more };
    });
    const local = new Map(ops.map((op) => [op.index, [op.results[0]?.name ?? op.op, op.op]]));
    for (const op of ops) {
      op.operands = op.reads.map((id) => values.get(id) ?? this.args[id]);
      for (const value of op.results) {
        value.readers = value.readers.map((reader) => {
          const [name, what] = local.get(reader) ?? raw.readers[reader];
          return { op: reader, name, what };
        });
      }
    }
    return ops;
  }

  // Where a name is: {op: index}, {arg: value} or null.
  async find(name) {
    if (!this.byName) {
      const names = await this.block(`names-${this.number}`);
      this.byName = new Map();
      names.forEach((line, op) => line.split(" ").forEach((one) => this.byName.set(one, { op })));
      for (const arg of this.args) this.byName.set(arg.name, { arg });
    }
    return this.byName.get(name) ?? null;
  }

  // The part and instance that an op is in: {part, instance} by number.
  async home(index) {
    const parts = await this.block(`parts-${this.number}`);
    const inside = (runs) => {
      for (let at = 0; at < runs.length; at += 2) {
        if (runs[at] <= index && index < runs[at] + runs[at + 1]) return true;
      }
      return false;
    };
    for (let part = 0; part < parts.length; part += 1) {
      const instance = parts[part].findIndex(([, runs]) => inside(runs));
      if (instance >= 0) return { part, instance };
    }
    return null;
  }

  // The layer of a name: {part, instance} by number.
  async layer(name) {
    const parts = await this.block(`parts-${this.number}`);
    for (let part = 0; part < parts.length; part += 1) {
      const instance = parts[part].findIndex(([one]) => one === name);
      if (instance >= 0) return { part, instance };
    }
    return null;
  }
}

const programs = head.programs.map((row, number) => new Program(row, number));

const line = (op) => (op.place ? `${op.place[0]}:${op.place[1]}` : "");

function written(op) {
  const results = op.results.map((value) => `%${value.name}`).join(", ");
  const operands = op.operands.map((value) => `%${value.name}`).join(", ");
  return `${results ? `${results} = ` : ""}${op.op}(${operands})${op.attrs}`;
}

const isCollective = (op) => Boolean(op.more.groups || op.more.pairs);
