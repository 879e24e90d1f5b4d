"use strict";
// Search by words: each has to be in the name, the opcode, a type, an attribute, a scope or a line.

// Rows that are shown, and places that are sorted into rows.
const [MOST_FOUND, MOST_SORTED] = [200, 4000];

// A table of texts as one text, in which a word is found at once.
class TextIndex {
  constructor(texts) {
    this.text = `${texts.join("\n").toLowerCase()}\n`;
    this.starts = new Int32Array(texts.length + 1);
    for (let at = 0, start = 0; at < texts.length; at += 1) {
      start += texts[at].length + 1;
      this.starts[at + 1] = start;
    }
  }

  // 1 for each text that has the word.
  marks(word) {
    const { text, starts } = this;
    const found = new Uint8Array(starts.length - 1);
    let row = 0;
    for (let place = text.indexOf(word); place >= 0; place = text.indexOf(word, starts[row + 1])) {
      while (starts[row + 1] <= place) row += 1;
      found[row] = 1;
    }
    return found;
  }
}

function textsOf(graph) {
  graph.texts ??= {
    name: new TextIndex(graph.names.map((one) => `%${one}`)),
    code: new TextIndex(graph.codes.map(([one]) => one)),
    type: new TextIndex(graph.types.map(([one]) => one)),
    layout: new TextIndex(graph.layouts),
    attrs: new TextIndex(graph.attrs.map((one) => one.replaceAll("\n", " "))),
    scope: new TextIndex(graph.scopes.map((_, at) => graph.scopePath(at))),
    place: new TextIndex(graph.places.map(([file, line]) => `${file}:${line}`)),
  };
  return graph.texts;
}

// Tables of texts are searched once; then an op is found by looking up its columns.
function searchGraph(graph, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Uint8Array(graph.opCount).fill(1);
  const values = new Uint8Array(graph.type.length).fill(1);
  for (const word of words) {
    const { name, code, type, layout, attrs, scope, place } = Object.fromEntries(
      Object.entries(textsOf(graph)).map(([key, table]) => [key, table.marks(word)]));
    for (let op = 0; op < graph.opCount; op += 1) {
      if (!found[op] || code[graph.code[op]] || attrs[graph.attrs_[op]] || scope[graph.scope[op]] || place[graph.place[op]]) continue;
      let any = 0;
      for (let value = graph.firstValue[op]; value < graph.firstValue[op] + graph.results[op]; value += 1) {
        any |= name[value] | type[graph.type[value]] | layout[graph.layout[value]];
      }
      if (!any) found[op] = 0;
    }
    for (const row of graph.functions) {
      for (let value = row.value; value < row.value + row.args; value += 1) {
        const kind = argKind(graph, value).includes(word) ? 1 : 0;
        values[value] &= name[value] | type[graph.type[value]] | layout[graph.layout[value]] | kind;
      }
    }
  }
  return { found, values };
}

// The nodes that a search finds in a program, in order: arguments first, then ops.
function findNodes(pane, text) {
  const { graph } = pane;
  const { found, values } = searchGraph(graph, text);
  const nodes = [];
  let elsewhere = 0;
  const [root] = pane.instance.chain;
  const instanceOf = (fn) => {
    const one = graph.someInstance(fn, root);
    return one?.chain[0] === root ? one : null;
  };
  const collect = (first, count, marks, key) => (fn) => {
    let instance = null;
    for (let at = first(fn); at < first(fn) + count(fn); at += 1) {
      if (!marks[at]) continue;
      instance ??= instanceOf(fn);
      if (instance) nodes.push({ instance, [key]: at });
      else elsewhere += 1;
    }
  };
  const { functions } = graph;
  const order = functions.map((_, fn) => fn);
  order.forEach(collect((fn) => functions[fn].value, (fn) => functions[fn].args, values, "arg"));
  order.forEach(collect((fn) => functions[fn].op, (fn) => functions[fn].ops, found, "op"));
  return { nodes, elsewhere };
}

// What is found at the same place of layers alike is one row.
function showFound(text, results) {
  detail.replaceChildren();
  const count = results.reduce((sum, one) => sum + one.nodes.length, 0);
  const others = results.reduce((sum, one) => sum + one.elsewhere, 0);
  detail.append(make("h2", { id: "count" }, `${count} found`),
    make("p", { className: "soft" }, `${others ? `and ${others} in other programs; ` : ""}n and p go to the next and the one before`));
  for (const { pane, nodes } of results) {
    if (results.length > 1) detail.append(make("h3", {}, `${pane.graph.head.title}: ${nodes.length}`));
    const rows = new Map();
    for (const node of nodes.slice(0, MOST_SORTED)) {
      const key = rowKey(node);
      const known = rows.get(key);
      if (known) known.count += 1;
      else if (rows.size < MOST_FOUND) rows.set(key, { node, count: 1 });
    }
    detail.append(table([], [...rows.values()].map(({ node, count: times }) =>
      [linkToNode(node), make("span", { className: "soft" }, `${whatOf(node)}${times > 1 ? ` × ${times}` : ""}`),
        make("span", { className: "soft" }, node.op >= 0 ? short(node.instance.graph.scopePath(node.instance.graph.scope[node.op]), 34) : "")])));
    if (nodes.length > MOST_SORTED) detail.append(make("p", { className: "soft" }, `rows of the first ${MOST_SORTED}`));
    if (rows.size >= MOST_FOUND) detail.append(make("p", { className: "soft" }, `the first ${MOST_FOUND} kinds are shown`));
  }
}

function rowKey({ instance, op = -1, arg = -1 }) {
  const { graph } = instance;
  if (op < 0) return `${instance.fn} ${graph.names[arg].replace(/\d+/g, "#")} ${graph.type[arg]}`;
  const scope = graph.scope[op];
  const plain = (graph.plainScopes ??= [])[scope] ??= graph.scopePath(scope).replace(/\d+/g, "#");
  return `${instance.fn} ${graph.code[op]} ${graph.attrs_[op]} ${graph.place[op]} ${plain} ${graph.results[op] ? graph.type[graph.firstValue[op]] : ""}`;
}
