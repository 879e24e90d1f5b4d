"use strict";
// Places for the units of unfolded regions. dagre lays a region out once, with its units folded;
// unfolding one makes room in its row, so that everything else stays where it was.

// The advance of a letter of the monospaced face at 11 px, and the longest text of a unit.
const [LETTER, LONGEST] = [6.7, 30];
const [LINE, HEAD, PAD, GAP] = [14, 22, 14, 26];

const short = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 9)}…${text.slice(-8)}` : text);

// Lines of a unit: [style, text].
function linesOf(unit) {
  const { graph } = unit;
  if (unit.kind === "group") {
    const { count, collectives, time, lost } = sumsOf(unit);
    const more = collectives ? `, ${plural(collectives, "collective")}` : "";
    return [["bold", short(`▸ ${unit.label}`, 40)], ["tiny", count ? `${plural(count, "op")}${more}` : ""], ...timeLine(graph, time, lost)].filter(([, text]) => text);
  }
  const layout = unit.arg >= 0 ? graph.layoutOf(unit.arg) : graph.results[unit.op] ? graph.layoutOf(graph.firstValue[unit.op]) : "";
  return [...plainLines(unit), ...(layout ? [["badge", short(layout), layout]] : [])];
}

function plainLines(unit) {
  const { graph } = unit;
  if (unit.arg >= 0) return [["plain", short(`%${graph.names[unit.arg]}`)], ["tiny", short(`${argKind(graph, unit.arg)} ${graph.typeOf(unit.arg)}`, 34)]];
  const { op } = unit;
  const lines = [["bold", short(`${unit.folds ? "▸ " : ""}${graph.groups_(op) ? "⇄ " : ""}${graph.opcode(op)}`)]];
  const [, constant] = graph.opcode(op) === "constant" ? graph.attrs[graph.attrs_[op]].match(/value=(\S.*)/) ?? [] : [];
  if (constant) lines.push(["plain", short(constant)]);
  else if (graph.results[op]) lines.push(["plain", short(`%${graph.names[graph.firstValue[op]]}`)]);
  if (graph.results[op] === 1) lines.push(["tiny", short(graph.typeOf(graph.firstValue[op]), 34)]);
  else if (graph.results[op]) lines.push(["tiny", plural(graph.results[op], "value")]);
  const outputs = graph.resultsOf(op).flatMap((value) => graph.outputOf.get(value) ?? []);
  if (graph.took) lines.push(...timeLine(graph, sumsOf(unit).time, sumsOf(unit).lost));
  if (outputs.length) lines.push(["tiny", short(`→ ${outputs.map((one) => one.name).join(", ")}`, 34)]);
  return lines;
}

function argKind(graph, value) {
  const fn = graph.fnOfValue(value);
  return graph.head.programs[fn]?.kinds[value - graph.functions[fn].value] ?? "argument";
}

function measure(unit) {
  unit.lines ??= linesOf(unit);
  const widths = unit.lines.map(([style, text]) => text.length * (style === "tiny" ? LETTER * 0.9 : LETTER) + (style === "badge" ? 8 : 0));
  unit.foldedWidth = Math.max(...widths, 30) + 18;
  unit.foldedHeight = unit.lines.length * LINE + 10;
}

// dagre's places of a region whose units are folded; computed once.
function baseOf(region) {
  if (region.base) return region.base;
  region.split();
  region.units.forEach(measure);
  if (isChain(region)) return stack(region);
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: GAP, edgesep: 10, marginx: 0, marginy: 0 });
  region.units.forEach((unit, at) => {
    graph.setNode(String(at), { width: unit.foldedWidth, height: unit.foldedHeight });
  });
  // Groups may read each other: the edges against the order of the program are turned for the layout.
  const middle = region.units.map((unit) => (unit.arg >= 0 ? -1 : unit.ops.reduce((sum, op) => sum + op, 0) / unit.ops.length));
  for (const edge of region.edges) edge.turned = middle[edge.from] > middle[edge.to];
  const ends = (edge) => (edge.turned ? [String(edge.to), String(edge.from)] : [String(edge.from), String(edge.to)]);
  for (const edge of region.edges) graph.setEdge(...ends(edge), { weight: Math.min(edge.count, 4) });
  dagre.layout(graph);
  const rows = new Map();
  region.units.forEach((unit, at) => {
    const { x, y } = graph.node(String(at));
    Object.assign(unit, { baseX: x, baseY: y });
    const row = rows.get(Math.round(y)) ?? { y, units: [], height: 0 };
    row.units.push(unit);
    row.height = Math.max(row.height, unit.foldedHeight);
    rows.set(Math.round(y), row);
  });
  for (const edge of region.edges) {
    const bends = graph.edge(...ends(edge)).points.slice(1, -1);
    edge.bends = edge.turned ? bends.reverse() : bends;
  }
  region.base = [...rows.values()].sort((a, b) => a.y - b.y);
  for (const row of region.base) row.units.sort((a, b) => a.baseX - b.baseX);
  return region.base;
}

// Each unit reads the one before it and nothing else here, as in a list of layers.
function isChain({ units, edges }) {
  return edges.length === units.length - 1 && edges.every(({ from, to }, at) => from === at && to === at + 1);
}

// A chain is a column, which needs no search for an order.
function stack(region) {
  let top = 0;
  region.base = region.units.map((unit) => {
    const y = top + unit.foldedHeight / 2;
    Object.assign(unit, { baseX: 0, baseY: y });
    top += unit.foldedHeight + GAP;
    return { y, units: [unit], height: unit.foldedHeight };
  });
  for (const edge of region.edges) edge.bends = [];
  return region.base;
}

// Sets x, y, width and height of units (their middle, from the region's corner), and the region's size.
function place(region) {
  const rows = baseOf(region);
  let below = 0;
  let before = null;
  for (const row of rows) {
    row.wider = [];
    row.tall = 0;
    for (const unit of row.units) {
      const inner = unit.open ? unit.inside : null;
      if (inner) place(inner);
      unit.width = inner ? Math.max(inner.width + 2 * PAD, unit.label?.length * LETTER + 40 || 0, unit.foldedWidth) : unit.foldedWidth;
      unit.height = inner ? inner.height + HEAD + PAD : unit.foldedHeight;
      row.tall = Math.max(row.tall, unit.height);
      if (unit.width > unit.foldedWidth) row.wider.push({ at: unit.baseX, by: unit.width - unit.foldedWidth });
    }
    const gap = before ? row.y - row.height / 2 - (before.y + before.height / 2) : 0;
    row.top = below + gap;
    below = row.top + row.tall;
    before = row;
  }
  const across = (row, x) => row.wider.reduce((sum, { at, by }) => sum + (x > at ? by / 2 : x < at ? -by / 2 : 0), x);
  let [least, most] = [Infinity, -Infinity];
  for (const row of rows) {
    for (const unit of row.units) {
      unit.x = across(row, unit.baseX);
      unit.y = row.top + row.tall / 2;
      least = Math.min(least, unit.x - unit.width / 2);
      most = Math.max(most, unit.x + unit.width / 2);
    }
  }
  for (const edge of region.edges) {
    edge.places = edge.bends.flatMap(({ x, y }) => {
      const row = rowAt(rows, y);
      if (!row.inside) return [{ x, y: downTo(row, y) }];
      // Beside a box that is unfolded an edge runs straight down, or up where it was turned.
      const { top, tall } = row.row;
      const sides = [{ x: across(row.row, x), y: top }, { x: across(row.row, x), y: top + tall }];
      return edge.turned ? sides.reverse() : sides;
    });
    for (const { x } of edge.places) [least, most] = [Math.min(least, x - 4), Math.max(most, x + 4)];
  }
  if (!rows.length) [least, most] = [0, 40];
  for (const unit of region.units) unit.x -= least;
  for (const edge of region.edges) for (const point of edge.places) point.x -= least;
  Object.assign(region, { width: most - least, height: Math.max(below, 10) });
}

// The row that a height of the folded layout is in, or the rows it is between.
function rowAt(rows, y) {
  for (let at = 0; at < rows.length; at += 1) {
    const row = rows[at];
    if (y < row.y - row.height / 2 - 0.5) return { row: rows[at - 1] ?? row, next: row, inside: false };
    if (y <= row.y + row.height / 2 + 0.5) return { row, inside: true };
  }
  return { row: rows.at(-1), inside: true };
}

function downTo({ row, next, inside }, y) {
  if (inside) return row.top + row.tall / 2 + ((y - row.y) * row.tall) / row.height;
  const [from, to] = [row.y + row.height / 2, next.y - next.height / 2];
  const part = to > from ? (y - from) / (to - from) : 0.5;
  return row.top + row.tall + part * (next.top - row.top - row.tall);
}

// Visible units and edges with absolute places, the outer ones first.
function flatten(root) {
  const drawn = { units: [], edges: [], byId: new Map() };
  const walk = (region, left, top, around) => {
    for (const edge of region.edges ?? []) {
      const [from, to] = [region.units[edge.from], region.units[edge.to]];
      const down = edge.turned ? -1 : 1;
      const points = [{ x: left + from.x, y: top + from.y + (down * from.height) / 2 },
        ...edge.places.map(({ x, y }) => ({ x: left + x, y: top + y })), { x: left + to.x, y: top + to.y - (down * to.height) / 2 }];
      drawn.edges.push({ from, to, count: edge.count, points, down });
    }
    for (const unit of region.units) {
      const inside = unit.open ? unit.inside : null;
      Object.assign(unit, { left: left + unit.x - unit.width / 2, top: top + unit.y - unit.height / 2, around });
      drawn.units.push(unit);
      drawn.byId.set(unit.id, unit);
      if (inside) walk(inside, unit.left + (unit.width - inside.width) / 2, unit.top + HEAD, unit);
    }
  };
  place(root);
  walk(root, 0, 0, null);
  return Object.assign(drawn, { width: root.width, height: root.height });
}
