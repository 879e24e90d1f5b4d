"use strict";
// The tables of graphgen inspect about a program.

const MOST_ROWS = 400;

const tables = document.getElementById("tables");

function section(title, ...children) {
  tables.append(make("h3", {}, title), ...children);
}

function showOverview(graph, fn) {
  const { facts, kinds: argKinds } = graph.head.programs[fn];
  const row = graph.functions[fn];
  const program = { graph, fn, row, facts, side: graph.side ? "b" : "" };
  tables.replaceChildren(make("h2", {}, `@${facts.name}`));
  const kinds = Object.entries(facts.arguments).filter(([, part]) => part.count);
  section("Arguments", table(["", "count", "bytes", ""], kinds.map(([kind, part]) =>
    [kind, part.count, size(part.bytes), part.guessed ? "guessed from use" : ""])));
  partitioning(graph);
  work(facts);
  measuredTimes(program);
  layers(program);
  collectives(program);
  bodies(program);
  largest(program);
  outputs(program);
  const values = argKinds.map((kind, at) => ({ kind, value: row.value + at }));
  section(`Arguments (${values.length})`, rowsOf(["", "kind", "type", "bytes", "sharding"], values, ({ kind, value }) =>
    [linkToNode({ instance: graph.roots[fn], arg: value }), kind, graph.typeOf(value), size(graph.bytesOf(value)),
      graph.layoutOf(value) ? chip(graph.layoutOf(value)) : ""]));
}

// A table of the first rows, and a button for the others.
function rowsOf(headers, items, cells) {
  const box = make("div", {}, table(headers, items.slice(0, 40).map(cells)));
  if (items.length > 40) {
    const all = make("button", { textContent: `show ${items.length > MOST_ROWS ? "the first " : "all "}${Math.min(items.length, MOST_ROWS)}`,
      onclick: () => box.replaceChildren(table(headers, items.slice(0, MOST_ROWS).map(cells))) });
    box.append(all);
  }
  return box;
}

function work(facts) {
  const flops = Object.entries(facts.flops).map(([kind, count]) => `${size(count, "flops")} in ${kind}`).join(", ");
  const alive = facts.peak_bytes === null ? "memory depends on symbols" : `${size(facts.peak_bytes)} alive at most`;
  section("Work", make("p", {}, `${flops || "no arithmetic"}; ${size(facts.bytes_moved)} moved without fusion; ${alive}`));
}

function partitioning(graph) {
  const found = graph.head.module.partitioning;
  if (!found) return;
  const meshes = Object.entries(found.meshes).map(([name, axes]) => `mesh @${name} ${axes}`);
  const words = [plural(found.partitions, "partition"), plural(found.replicas, "replica"), ...meshes,
    found.before_partitioning ? "not partitioned yet: sizes are global" : "sizes are of one rank"];
  section("Partitioning", make("p", {}, words.join("; ")));
}

function layers(program) {
  const rows = program.facts.layers.map((item) => [
    link(item.count > 1 ? `${item.first} to ${item.last}` : item.first, { side: program.side, program: program.row.name, layer: item.first }),
    item.count, item.ops, size(item.flops, ""), size(item.bytes_moved), size(item.weight_bytes)]);
  if (rows.length) section("Layers", table(["", "count", "ops each", "flops each", "moved each", "weights each"], rows));
}

function collectives({ facts, graph }) {
  if (facts.collectives.length) {
    section("Collectives", table(["", "count", "bytes", "type", "algorithm", "on the mesh"], facts.collectives.map((item) =>
      [item.op, item.count, size(item.bytes), item.type, item.algorithm, exchangeOf(graph, item)])));
  }
  if (facts.custom_calls.length) {
    section("Custom calls", table(["", "count", "configuration"], facts.custom_calls.map((item) =>
      [item.target, item.count, make("code", {}, JSON.stringify(item.configuration))])));
  }
}

// The groups of a row as a picture; they are JSON in the facts.
function exchangeOf(graph, item) {
  const lists = JSON.parse(item.groups);
  return meshPicture(graph.head.module, item.op === "collective_permute" ? { pairs: lists } : { groups: lists });
}

function bodies({ facts, side }) {
  if (facts.bodies.length) {
    section("Loops and branches", table(["", "function", "turns", "ops"], facts.bodies.map((item) =>
      [item.op, link(`@${item.name}`, { side, program: item.name }), item.turns,
        Object.values(item.histogram).reduce((sum, count) => sum + count, 0)])));
  }
}

function largest(program) {
  const rows = program.facts.largest.map((item) => [
    item.name ? byName(program, item.name) : "-", size(item.bytes), item.type, item.op ?? "argument", item.layer,
    (item.where_is_of_a_reader ? "read at " : "") + item.where]);
  if (rows.length) section("Largest tensors", table(["", "bytes", "type", "made by", "layer", "line"], rows));
}

function outputs({ facts, graph, fn, row }) {
  const rows = facts.outputs.map((item, at) => ({ ...item, value: row.outputs[at][1] }));
  section(`Outputs (${rows.length})`, rowsOf(["", "value", "name", "type", "takes over"], rows, (item) =>
    [item.index, linkToNode(makerOf(graph.roots[fn], item.value)), item.name, item.type,
      item.argument ? `argument ${item.takes_over}, %${item.argument}` : "-"]));
}

const byName = (program, name) => link(`%${name}`, { side: program.side, program: program.row.name, op: name });
