"use strict";
// Colours of units by a rule, and the legend of the rule.

const KINDS = ["product", "elementwise", "reduction", "movement", "composite", "collective", "control", "external", "source", "other"];
const RULES = ["kind", "flops", "bytes", "time", "lost", "memory", "sharding", "difference", "proof"];
// The rules that the page has data for.
const rulesOf = (graphs, paired) => RULES.filter((rule) => (rule === "difference" ? paired
  : rule === "proof" ? graphs.some((graph) => graph.proof)
  : !isTime(rule) || graphs.some((graph) => graph.took)));
// Rules by a share of what the whole program has.
const SHARED = new Set(["flops", "bytes", "time", "lost"]);
// Shares of the whole program from this on have a colour of their own.
const LEAST_SHARE = 1e-4;
const LEAST_TIME = 1e-3;
const STATES = [["only here", "only"], ["same", "same"], ["changed", "changed"], ["not compared", "shade"]];
// Verdicts of a proof on a value, from none to the worst.
const PROOFS = [["not compared", "shade"], ["proved", "proved"], ["equal in real arithmetic", "real"],
  ["equal but for narrow numbers", "narrow"], ["undecided", "unknown"], ["refuted", "only"]];

const theme = {};

// Colours of the style sheet, read when the page opens and when the screen turns dark or light.
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "small", "line", "paper", "shade", "accent", "hit", "group", "box", "from", "to", "path",
    "cold", "hot", "only", "same", "changed", "proved", "real", "narrow", "unknown", ...KINDS.map((kind) => `kind-${kind}`)]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.chroma = style.getPropertyValue("--chroma").trim();
  theme.tone = style.getPropertyValue("--tone").trim();
}

// A colour between the cold one and the hot one.
function mixed(part) {
  const parse = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [cold, hot] = [parse(theme.cold), parse(theme.hot)];
  return `rgb(${cold.map((one, at) => Math.round(one + (hot[at] - one) * Math.min(Math.max(part, 0), 1))).join(" ")})`;
}

// A sharding has one colour wherever it stands; whole values are plain.
function layoutHue(layout) {
  if (!layout || /^\{(replicated|[-,]*)\}$/.test(layout)) return "";
  let hash = 7;
  for (const letter of layout) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
  return `hsl(${(hash * 137.5 + 215) % 360} ${theme.chroma} ${theme.tone})`;
}

const isTime = (rule) => rule === "time" || rule === "lost";
const shareOf = (value, whole, rule) => (value > 0 && whole > 0
  ? Math.max(0.02, 1 + Math.log10(Math.min(value / whole, 1)) / -Math.log10(isTime(rule) ? LEAST_TIME : LEAST_SHARE)) : 0);

// The fill of a unit; rule.whole has the sums of the program that is drawn.
function fillOf(unit, rule, whole) {
  const { graph } = unit;
  if (SHARED.has(rule)) {
    if (unit.arg >= 0) return theme.shade;
    return mixed(Math.max(shareOf(sumsOf(unit)[rule], whole[rule], rule), 0));
  }
  if (rule === "memory") return unit.arg >= 0 || !whole.live ? theme.shade : mixed(liveOf(unit) / (whole.peak || 1));
  if (rule === "sharding") {
    const layout = unit.arg >= 0 ? graph.layoutOf(unit.arg) : graph.layouts[sumsOf(unit).layout ?? 0];
    return layoutHue(layout) || theme.paper;
  }
  if (rule === "difference" && graph.state) {
    if (unit.arg >= 0) return theme.shade;
    if (unit.op >= 0 && !graph.runs[unit.op]) return theme[STATES[graph.state[unit.op]][1]];
    return differing(unit) ? theme.changed : theme.same;
  }
  if (rule === "proof") return theme[PROOFS[graph.proof ? verdictOf(unit) : 0][1]];
  if (unit.kind === "group") return theme.group;
  return unit.arg >= 0 ? theme.shade : theme[`kind-${graph.kind(unit.op)}`];
}

// The worst verdict on the values of a unit.
function verdictOf(unit) {
  const { graph } = unit;
  if (unit.arg >= 0) return graph.proof[unit.arg];
  if (unit.verdict === undefined) {
    unit.verdict = Math.max(0, ...unit.ops.map((op) => Math.max(0, ...graph.resultsOf(op).map((value) => graph.proof[value]))));
  }
  return unit.verdict;
}

// The number of ops that differ in a unit and in what its calls run.
function differing(unit) {
  const { graph } = unit;
  if (!graph.state) return 0;
  if (unit.differ === undefined) unit.differ = unit.ops.reduce((sum, op) => sum + differingIn(graph, op), 0);
  return unit.differ;
}

function differingIn(graph, op) {
  if (!graph.dissolves(op, true)) return graph.state[op] % 2 ? 0 : 1;
  graph.differs ??= new Map();
  const fn = graph.runs[op].runs[0][1];
  if (!graph.differs.has(fn)) {
    const { op: first, ops } = graph.functions[fn];
    let count = 0;
    for (let inner = first; inner < first + ops; inner += 1) count += differingIn(graph, inner);
    graph.differs.set(fn, count);
  }
  return graph.differs.get(fn);
}

// The most bytes alive while an op of a unit runs.
function liveOf(unit) {
  if (unit.live === undefined) {
    const { graph, instance } = unit;
    unit.live = 0;
    for (const op of unit.ops) {
      const place = livePlace(instance, op);
      if (!place) continue;
      unit.live = Math.max(unit.live, place.bytes);
    }
  }
  return unit.live;
}

// Where an op is in the live memory of its program: {root, position, bytes}.
function livePlace(instance, op) {
  const { base, position } = instance.graph.positionOf(instance, op, false);
  if (base.parent) return livePlace(base.parent, base.op);
  const live = base.graph.live[base.fn];
  return live ? { root: base, position, bytes: live.bytes[position] } : null;
}

// Sums of a program, that colours are shares of.
function wholeOf(instance) {
  const { graph, row, fn } = instance;
  if (!instance.whole) {
    let [flops, bytes] = [0, 0];
    for (let op = row.op; op < row.op + row.ops; op += 1) {
      flops += graph.flopsOf(op);
      bytes += graph.movedOf(op);
    }
    const live = graph.live[fn];
    instance.whole = { flops, bytes, ...graph.timesIn(fn), live: Boolean(live), peak: live ? live.bytes.reduce((most, one) => Math.max(most, one), 0) : 0 };
  }
  return instance.whole;
}

// The legend of a rule as elements.
function legendOf(rule, whole) {
  const swatch = (colour, text) => {
    const mark = make("i", { className: "swatch" });
    mark.style.background = colour;
    return make("span", { className: "key" }, mark, text);
  };
  if (rule === "kind") return KINDS.map((kind) => swatch(theme[`kind-${kind}`], kind));
  if (rule === "proof") return PROOFS.map(([text, name]) => swatch(theme[name], text));
  if (rule === "difference") return STATES.map(([text, name]) => swatch(theme[name], text));
  if (rule === "sharding") return [make("span", { className: "soft" }, "one colour a sharding; whole values are plain")];
  if (rule === "memory") {
    if (!whole.live) return [make("span", { className: "soft" }, "sizes depend on symbols")];
    return [0, 0.5, 1].map((part) => swatch(mixed(part), size(Math.round(part * whole.peak))));
  }
  const timed = isTime(rule);
  if (!whole[rule]) return [make("span", { className: "soft" }, timed ? "nothing was measured" : `no ${rule} are known: they depend on symbols`)];
  const all = timed ? duration(whole[rule]) : size(whole[rule], rule === "flops" ? "flops" : "B");
  return [timed ? 0.001 : 0.0001, timed ? 0.03 : 0.01, 1].map((part) => swatch(mixed(shareOf(part, 1, rule)), `${part * 100} % of ${all}${rule === "lost" ? " above the bounds" : ""}`));
}
