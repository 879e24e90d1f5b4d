"use strict";
// The page of graphgen explore: what is shown follows from the hash of its address, as in
// #program=decode&op=dot.3, #layer=model.layers.0, #search=all_reduce or #view=memory&at=12.

const partsPanel = document.getElementById("parts");
const paneRow = document.getElementById("panes");
const search = document.getElementById("search");
const rules = document.getElementById("rules");
const legend = document.getElementById("legend");
const help = document.getElementById("help");
const panes = [];
let current = 0;
let pathStart = null;
let found = { at: -1, nodes: [] };

const pane = () => panes[current];
const knownRules = () => rulesOf(panes.map((one) => one.graph), pairs.size > 0);

// ---- what the user does --------------------------------------------------------------------------

const act = {
  entered(one) {
    current = panes.indexOf(one);
    for (const other of panes) other.element.classList.toggle("current", panes.length > 1 && other === one);
  },
  chosen(one, node) {
    act.entered(one);
    if (node && pathStart) return act.path(one, node);
    if (!node) {
      pathStart = null;
      return goTo({ op: "", in: "", side: "", search: "", near: "", path: "" });
    }
    return goTo({ ...addressOf(node), search: "", path: "", near: readHash().near ?? "" });
  },
  folded(one, unit) {
    keepAddress();
    if (!unit || panes.length < 2) return;
    const other = panes[1 - panes.indexOf(one)];
    const same = sameUnit(one, unit, other);
    if (same && same.open !== unit.open) other.toggle(same, false);
  },
  deepen(one, depth) {
    for (const each of panes) each.depth = depth;
    one.light();
    one.draw();
    keepAddress();
  },
  alone(one, node) {
    goTo({ ...addressOf(node), near: one.depth && one.depth > 1 ? one.depth : 2, open: "" });
  },
  pathFrom(one, node) {
    pathStart = node;
    say(`path from %${node.op >= 0 ? one.graph.nameOf(node.op) : one.graph.names[node.arg]}: choose its end`);
  },
  path(one, node) {
    const start = pathStart;
    pathStart = null;
    say("");
    goTo({ ...addressOf(node), search: "", path: nodeKey(start), near: "" });
  },
};

// The group or op of the other pane that stands for the same.
function sameUnit(one, unit, other) {
  if (unit.op >= 0) {
    const node = otherNode({ instance: unit.instance, op: unit.op }, other.graph);
    return node && other.unitOf(node);
  }
  const path = (each) => (each ? [...path(each.around), each.op >= 0 ? "" : each.label] : []);
  const wanted = path(unit).join(" › ");
  return other.drawn.units.find((each) => each.op < 0 && each.folds && path(each).join(" › ") === wanted);
}

function goTo(more) {
  const next = hashOf({ ...readHash(), open: "", ...more });
  if (location.hash === next) return follow();
  location.hash = next;
  return undefined;
}

// The address of what is unfolded and coloured, without a new entry in the history.
function keepAddress() {
  const given = readHash();
  const one = pane();
  const more = { color: one.rule === "kind" ? "" : one.rule, depth: one.depth > 1 ? one.depth : "", open: one.open.join(",") };
  replaceHash(hashOf({ ...given, ...more }));
}

const say = (text) => { document.getElementById("said").textContent = text; };

// ---- routes --------------------------------------------------------------------------------------

async function route() {
  const given = readHash();
  const one = given.side === "b" && panes[1] ? panes[1] : given.side === undefined && !given.op ? pane() : panes[0];
  act.entered(one);
  paintRule(knownRules().includes(given.color) ? given.color : "kind");
  for (const each of panes) each.depth = Number(given.depth) || 1;
  const program = given.program?.replace(/^@/, "");
  const fn = program ? one.graph.functions.findIndex((row) => row.name === program) : -1;
  if (program && fn < 0) return missing(`the page has no program @${program}`);
  const node = given.op ? nodeOf(one, given, fn) : null;
  if (given.op && !node) return missing(`the page has no op %${given.op.replace(/^%/, "")}`);
  const inner = fn >= one.graph.entries && !node ? one.graph.someInstance(fn) : null;
  const layer = given.layer ? nodeOfLayer(one, given.layer, fn) : null;
  if (given.layer && !layer) return missing(`the page has no layer ${given.layer}`);
  const root = (node ?? layer?.node ?? (inner && { instance: inner }))?.instance.chain[0] ?? one.graph.roots[Math.max(fn, 0)] ?? one.graph.roots[0];
  show(one, root, given, node);
  mark(one, root, given);
  await views(one, root, given);
  if (given.open !== undefined && given.open !== "") {
    one.open = given.open.split(",");
    if (!node) one.fit();
  }
  if (given.search) return find(given.search);
  search.value = "";
  for (const each of panes) Object.assign(each, { hits: given.view === "memory" ? each.hits : [], path: null });
  return choose(one, node, given, { layer, inner });
}

// The program in its pane, and its partner in the other one.
function show(one, root, given, node) {
  one.show(root, given.near && node?.op >= 0 ? surroundings(one, node, Number(given.near)) : null);
  const other = panes[1 - panes.indexOf(one)];
  if (other) other.show(otherBase(root, other.graph) ?? other.instance ?? other.graph.roots[0]);
}

function surroundings(one, node, depth) {
  const reached = [sourcesOf, readersOf].flatMap((next) => [...reach(node, next, depth).values()].map((each) => each.node));
  const inside = reached.filter((each) => each.instance === node.instance);
  const ops = Int32Array.from(new Set(inside.filter((each) => each.op >= 0).map((each) => each.op))).sort();
  const args = [...new Set(inside.filter((each) => !(each.op >= 0)).map((each) => each.arg))];
  const region = new Region(node.instance, { id: `near:${nodeKey(node)}`, kind: "near", ops, args });
  region.listed = [...args.map((arg) => region.unit({ arg })), ...[...ops].map((op) => region.unit({ op, first: op, count: 1 }))];
  return { key: `${nodeKey(node)} ${depth}`, node, region };
}

function choose(one, node, given, { layer, inner }) {
  const start = given.path ? nodeFromKey(one, given.path) : null;
  if (node && start) {
    one.path = pathBetween(start, node);
    one.revealAll(one.path);
    if (!one.path.length) say("no path along values");
  }
  one.select(node);
  const other = panes[1 - panes.indexOf(one)];
  if (other) {
    const same = node && pairs.size ? otherNode(node, other.graph) : null;
    if (same && same.instance.chain[0] !== other.instance) other.show(same.instance.chain[0]);
    other.select(same);
  }
  if (node && one.path?.length) showPath(one, one.path);
  else if (node) showNode(one, node);
  else greet(one);
  if (layer) openGroup(one, layer);
  if (inner) openInstance(one, inner);
  if (given.open === undefined || given.open === "") return;
}

function openGroup(one, { node, scope }) {
  for (let steps = 0; steps < 100; steps += 1) {
    const unit = one.unitOf(node);
    if (!unit || !unit.folds) break;
    unit.open = true;
    one.arrange();
    if (unit.inner?.scope === scope) return one.centre(unit);
  }
  const around = [];
  for (let unit = one.unitOf(node); unit; unit = unit.around) around.push(unit);
  const box = around.find((unit) => unit.inner && one.graph.scopePath(unit.inner.scope) === one.graph.scopePath(scope)) ?? around[1] ?? around[0];
  return box && one.centre(box);
}

function openInstance(one, instance) {
  const at = { instance: instance.parent, op: instance.op };
  one.reveal(at);
  const unit = one.unitOf(at);
  if (!unit) return;
  unit.open = true;
  if (unit.inside.kind === "roles") unit.inside.split().units[instance.role].open = true;
  one.arrange();
  one.centre(unit);
}

// The node of an address: by name, or by number after a #.
function nodeOf(one, given, fn) {
  const { graph } = one;
  const name = given.op.replace(/^%/, "");
  const exact = given.in ? graph.instanceOf(given.in) : null;
  if (name.startsWith("#")) {
    const root = exact ?? graph.roots[Math.max(fn, 0)];
    return root && nodeFromKey(one, `${root.key}:${name.slice(1)}`);
  }
  const nodes = graph.named(name).map((value) => {
    const of = graph.fnOfValue(value);
    const instance = exact?.fn === of ? exact : graph.someInstance(of, graph.roots[fn] ?? null);
    return instance && makerOf(instance, value);
  }).filter(Boolean);
  const better = (node) => (exact ? node.instance === exact : fn >= 0 ? node.instance.fn === fn || node.instance.chain[0].fn === fn : true);
  return nodes.find((node) => fn >= 0 && node.instance.fn === fn && better(node)) ?? nodes.find(better) ?? (fn >= 0 ? null : nodes[0] ?? null);
}

function nodeFromKey(one, key) {
  const [place, number] = key.split(":");
  const instance = one.graph.instanceOf(place ?? "");
  if (!instance || number === undefined) return null;
  const [value, { row }] = [Number(number.replace("a", "")), instance];
  if (number.startsWith("a")) return value >= row.value && value < row.value + row.args ? { instance, arg: value } : null;
  return value >= row.op && value < row.op + row.ops ? { instance, op: value } : null;
}

// The first op of a layer: a scope, with everything below it.
function nodeOfLayer(one, layer, fn) {
  const { graph } = one;
  const scope = graph.scopeOf(layer);
  if (scope < 0) return null;
  const inside = new Uint8Array(graph.scopes.length);
  for (let at = 0; at < inside.length; at += 1) inside[at] = at === scope || (at && inside[graph.parents[at]]) ? 1 : 0;
  for (const [at, row] of graph.functions.entries()) {
    if (fn >= 0 && fn < graph.entries && at < graph.entries && at !== fn) continue;
    for (let op = row.op; op < row.op + row.ops; op += 1) {
      if (!inside[graph.scope[op]]) continue;
      const instance = graph.someInstance(at, graph.roots[fn] ?? null);
      if (instance) return { node: { instance, op }, scope };
    }
  }
  return null;
}

function missing(text) {
  detail.replaceChildren(make("h2", { id: "missing" }, text), make("p", { className: "soft" }, "Names are those that graphgen inspect and graphgen explain print."));
}

async function views(one, root, given) {
  const listed = given.view === "tables";
  document.getElementById("tables").hidden = !listed;
  paneRow.hidden = listed;
  if (listed) showOverview(one.graph, root.fn);
  if (given.view === "memory") await showMemory(one.graph, root.fn, given.at === undefined ? NaN : Number(given.at));
  else memoryPanel.hidden = true;
}

// ---- search --------------------------------------------------------------------------------------

function find(text) {
  if (search.value.trim() !== text) search.value = text;
  const results = panes.map((each) => ({ pane: each, ...findNodes(each, text) }));
  for (const { pane: each, nodes } of results) {
    each.hits = nodes;
    each.path = null;
    each.light();
    each.draw();
  }
  found = { at: -1, text, nodes: results.flatMap((one) => one.nodes) };
  showFound(text, results);
}

// The next place of a search, or the one before.
function jump(step) {
  if (!found.nodes.length) return;
  found.at = (found.at + step + found.nodes.length + (found.at < 0 && step < 0 ? 1 : 0)) % found.nodes.length;
  const node = found.nodes[found.at];
  const one = panes[node.instance.graph.side];
  act.entered(one);
  one.select(node);
  say(`${found.at + 1} of ${found.nodes.length}`);
  showNode(one, node);
}

// ---- around the graph ----------------------------------------------------------------------------

function greet(one) {
  const { graph } = one;
  const { row } = one.instance;
  const most = histogram(graph, row).slice(0, 16);
  detail.replaceChildren(make("h2", {}, `@${row.name}`), make("p", { className: "soft" }, `${plural(row.ops, "op")}. A click on a box unfolds it, on an op says what it is; ? lists the keys.`),
    table(["op", "count"], most.map(([name, count]) => [link(name, { search: name }), count])));
  const changes = [...pairs.values()].filter(({ names }) => names[graph.side] === row.name).flatMap((each) => each.changes);
  if (panes.length > 1) {
    detail.append(make("h3", {}, `differences (${changes.length})`), ...(changes.length ? changes.slice(0, 60).map((text) => make("p", { className: "differs" }, text))
      : [make("p", { className: "soft" }, pairs.size ? "none: the modules compute the same in the same way" : "no programs go together")]));
  }
}

// The ops of a function by name with their counts, the most frequent first.
function histogram(graph, row) {
  if (!row.histogram) {
    const counts = new Uint32Array(graph.codes.length);
    for (let op = row.op; op < row.op + row.ops; op += 1) counts[graph.code[op]] += 1;
    row.histogram = [...counts].map((count, at) => [graph.codes[at][0], count]).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  }
  return row.histogram;
}

function paintRule(rule) {
  rules.value = rule;
  for (const each of panes) each.rule = rule;
  if (pane().instance) legend.replaceChildren(...legendOf(rule, pane().whole));
  for (const each of panes) each.draw();
}

function mark(one, root, given) {
  legend.replaceChildren(...legendOf(one.rule, one.whole));
  for (const entry of partsPanel.querySelectorAll("a")) {
    const { side = "", program, view = "" } = entry.dataset;
    entry.classList.toggle("on", side === (one.graph.side ? "b" : "") && program === root.row.name && view === (given.view ?? "") && !entry.dataset.layer);
  }
}

function listParts() {
  for (const { graph } of panes) {
    const side = graph.side ? "b" : "";
    if (panes.length > 1) partsPanel.append(make("h2", { className: "file" }, graph.head.title));
    for (const [fn, row] of graph.functions.slice(0, graph.entries).entries()) {
      const { facts } = graph.head.programs[fn];
      const entry = (view, name, words, more = {}) => {
        const element = make("a", { href: hashOf({ side, program: row.name, view, ...more }), title: name },
          make("span", { className: "name" }, name), make("small", {}, words));
        Object.assign(element.dataset, { side, program: row.name, view, ...more });
        return element;
      };
      partsPanel.append(make("h2", {}, `@${row.name}`), entry("", "Graph", plural(row.ops, "op")), entry("tables", "Tables", "arguments, layers, outputs"));
      if (graph.live[fn] || graph.head.buffers) {
        partsPanel.append(entry("memory", "Memory", facts.peak_bytes === null ? "over time" : `${size(facts.peak_bytes)} alive at most`));
      }
      for (const layer of facts.layers.slice(0, 40)) {
        if (graph.scopeOf(layer.first) > 0) {
          const name = layer.count > 1 ? `${layer.first} to ${layer.last}` : layer.first;
          partsPanel.append(entry("", name, `${plural(layer.ops, "op")}${layer.count > 1 ? ` × ${layer.count}` : ""}`, { layer: layer.first }));
        }
      }
    }
  }
}

// ---- keys ----------------------------------------------------------------------------------------

// The op before or after the chosen one in program order.
function stepOp(step) {
  const one = pane();
  const { selected } = one;
  const instance = selected?.instance ?? one.instance;
  const op = (selected?.op >= 0 ? selected.op : instance.row.op - (step > 0 ? 1 : 0)) + step;
  if (op >= instance.row.op && op < instance.row.op + instance.row.ops) act.chosen(one, { instance, op });
}

function stepAlong(next) {
  const one = pane();
  const node = one.selected && next(one.selected).find((each) => each.instance === one.selected.instance);
  if (node) act.chosen(one, node);
}

function foldAtChosen(around) {
  const one = pane();
  const unit = one.selectedUnit;
  const target = around ? unit?.around : unit?.folds ? unit : null;
  if (target) one.toggle(target);
}

const KEYS = [
  ["/", "search", () => search.focus()],
  ["n", "next place found", () => jump(1)],
  ["p", "place found before", () => jump(-1)],
  ["j", "next op in program order", () => stepOp(1)],
  ["k", "op before in program order", () => stepOp(-1)],
  ["u", "up, to what is read first", () => stepAlong(sourcesOf)],
  ["d", "down, to the first reader", () => stepAlong(readersOf)],
  ["Enter", "unfold or fold the chosen op", () => foldAtChosen(false)],
  ["f", "fold the box around", () => foldAtChosen(true)],
  ["e", "unfold everything, up to a few hundred units", () => pane().unfoldAll()],
  ["E", "fold everything", () => pane().foldAll()],
  ["c", "next colours", () => recolour(1)],
  ["m", "memory over time", () => goTo({ view: readHash().view === "memory" ? "" : "memory", at: "" })],
  ["t", "tables", () => goTo({ view: readHash().view === "tables" ? "" : "tables" })],
  ["0", "all of the graph", () => pane().fit()],
  ["+", "zoom in", () => pane().zoom(1.25)],
  ["-", "zoom out", () => pane().zoom(0.8)],
  ["ArrowLeft", "move", () => pane().pan(60, 0)],
  ["ArrowRight", "", () => pane().pan(-60, 0)],
  ["ArrowUp", "", () => pane().pan(0, 60)],
  ["ArrowDown", "", () => pane().pan(0, -60)],
  ["s", "other side", () => panes.length > 1 && act.entered(panes[1 - current])],
  ["?", "these keys", () => (help.open ? help.close() : help.showModal())],
  ["Escape", "choose nothing", () => leave()],
];

function leave() {
  search.blur();
  say("");
  if (help.open) help.close();
  else act.chosen(pane(), null);
}

function recolour(step) {
  const known = knownRules();
  paintRule(known[(known.indexOf(pane().rule) + step) % known.length]);
  keepAddress();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (typing && event.key === "Enter" && event.target === search) {
    search.blur();
    jump(1);
    return;
  }
  if (typing && event.key !== "Escape") return;
  if (event.key === "Enter" && event.target.tagName === "A") return;
  const found_ = KEYS.find(([key]) => key === event.key);
  if (!found_) return;
  event.preventDefault();
  found_[2]();
});

// ---- the beginning -------------------------------------------------------------------------------

// Routes follow each other: a later address waits until the earlier one is drawn.
let routing = Promise.resolve();
function follow() {
  routing = routing.then(route).catch((error) => console.error(error));
  return routing;
}

// A frame of a notebook has no address of its own, and its links would lead to the notebook.
document.addEventListener("click", (event) => {
  const entry = event.target.closest?.('a[href^="#"]');
  if (!entry || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = entry.getAttribute("href");
});

async function begin() {
  readTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    paintRule(pane().rule);
  });
  const graphs = await Promise.all(head.modules.map((_, side) => openGraph(side)));
  await openPairs(graphs);
  for (const graph of graphs) panes.push(new Pane(graph, act));
  paneRow.replaceChildren(...panes.map((each) => each.element));
  rules.append(...knownRules().map((rule) => make("option", { value: rule, textContent: rule })));
  rules.addEventListener("change", () => { paintRule(rules.value); keepAddress(); });
  help.append(table(["key", ""], KEYS.filter(([, words]) => words).map(([key, words]) => [make("code", {}, key.replace("ArrowLeft", "arrows")), words])),
    make("button", { textContent: "close", onclick: () => help.close() }));
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  const [{ module }] = head.modules;
  document.querySelector("h1").textContent = head.modules.map((each) => `@${each.module.name}`).join(" | ");
  document.getElementById("summary").textContent = [
    `level ${module.level}${module.ranks > 1 ? `, ${module.ranks} ranks` : ""}`, Object.keys(module.sizes).length && `work for ${Object.entries(module.sizes).map((pair) => pair.join("=")).join(", ")}`, module.invalid && `invalid: ${module.invalid.length}`,
    module.opaque && `kept as they are: ${module.opaque}`, module.dropped && `left out: ${module.dropped}`].filter(Boolean).join("; ");
  listParts();
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => location.replace(hashOf({ ...readHash(), op: "", in: "", search: search.value.trim() })), 120);
  });
  addEventListener("hashchange", follow);
  await route();
}

routing = begin().catch((error) => console.error(error));
// The first layout of a region is slow before the engine has compiled dagre; so is the first search.
const idly = (step) => (self.requestIdleCallback ?? setTimeout)(step);
routing.then(() => idly(() => {
  for (const { root } of panes) for (const unit of root.units.slice(0, 2)) if (unit.kind === "group") baseOf(unit.inner);
  setTimeout(() => { for (const { graph } of panes) idly(() => textsOf(graph)); }, 400);
}));

// What the page shows, for scripts that ask.
const explorer = {
  // Waits until everything is drawn.
  settled: () => routing.then(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); })),
  state: (side = current) => {
    const one = panes[side];
    return {
      program: one.instance.row.name,
      selected: one.selected ? (one.selected.op >= 0 ? one.graph.nameOf(one.selected.op) : one.graph.names[one.selected.arg]) : null,
      selectedInView: Boolean(one.selectedUnit && one.inView.includes(one.selectedUnit) && one.inSight(one.selectedUnit)),
      drawn: one.drawn.units.map(labelOf),
      folded: one.drawn.units.filter((unit) => unit.folds && !unit.open).map(labelOf),
      unfolded: one.drawn.units.filter((unit) => unit.folds && unit.open).map(labelOf),
      inView: one.inView.map(labelOf),
      lit: Object.fromEntries([...one.lit].map(([id, colour]) => [labelOf(one.drawn.byId.get(id)), colour])),
      marked: one.drawn.units.filter((unit) => one.hitUnits.has(unit.id)).map(labelOf),
      rule: one.rule, scale: one.scale, edges: one.drawn.edges.length,
    };
  },
};
