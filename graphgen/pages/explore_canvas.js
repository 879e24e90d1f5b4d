"use strict";
// Painting of a pane: boxes, edges, units and the small map, on two canvases.

// Below this height of a line text is a grey bar, and below the second one nothing.
const [READABLE, VISIBLE] = [4.5, 2];
// How far from a bend an edge begins to turn.
const ROUND = 16;
const FACE = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

function sizeCanvas(canvas) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

function paint(pane) {
  const { context, width, height } = sizeCanvas(pane.canvas);
  pane.width = width;
  pane.height = height;
  const { scale, x, y } = pane;
  const seen = { left: -x / scale, top: -y / scale, right: (width - x) / scale, bottom: (height - y) / scale };
  context.translate(x, y);
  context.scale(scale, scale);
  const shown = pane.drawn.units.filter((unit) => unit.left < seen.right && unit.left + unit.width > seen.left
    && unit.top < seen.bottom && unit.top + unit.height > seen.top);
  for (const unit of shown) if (unit.open && unit.folds) paintBox(context, pane, unit);
  paintEdges(context, pane, seen);
  for (const unit of shown) if (!unit.open || !unit.folds) paintUnit(context, pane, unit);
  paintLinks(context, pane);
  pane.inView = shown;
  paintMap(pane, seen);
}

function paintBox(context, pane, unit) {
  const { scale, rule } = pane;
  context.fillStyle = theme.box;
  context.strokeStyle = pane.selectedUnit === unit ? theme.accent : theme.line;
  context.lineWidth = pane.selectedUnit === unit ? 3 : 1 / Math.min(scale, 1);
  context.beginPath();
  context.roundRect(unit.left, unit.top, unit.width, unit.height, 6);
  context.fill();
  context.stroke();
  context.save();
  context.clip();
  context.fillStyle = unit.op >= 0 || rule !== "kind" ? fillOf(unit, rule, pane.whole) : theme.line;
  context.fillRect(unit.left, unit.top, unit.width, HEAD - 4);
  context.restore();
  if (LINE * scale < READABLE) return;
  context.fillStyle = theme.ink;
  context.font = `bold 11px ${FACE}`;
  context.textAlign = "left";
  context.fillText(`▾ ${titleOf(unit)}`, unit.left + 6, unit.top + 13);
}

function titleOf(unit) {
  if (unit.kind === "group") return short(unit.label, 60);
  return short(`${unit.graph.opcode(unit.op)} %${unit.graph.nameOf(unit.op)}`, 60);
}

function paintEdges(context, pane, seen) {
  const lit = pane.lit.size > 0;
  context.lineWidth = 1 / Math.min(pane.scale, 1);
  context.strokeStyle = theme.soft;
  context.globalAlpha = lit ? 0.25 : 0.7;
  context.beginPath();
  const heads = [];
  for (const edge of pane.drawn.edges) {
    const { points } = edge;
    const last = points.length - 1;
    if (Math.max(points[last].y, points[0].y) < seen.top || Math.min(points[last].y, points[0].y) > seen.bottom) continue;
    if (points.every((point) => point.x < seen.left) || points.every((point) => point.x > seen.right)) continue;
    context.moveTo(points[0].x, points[0].y);
    for (let at = 1; at < last; at += 1) corner(context, points[at - 1], points[at], points[at + 1]);
    context.lineTo(points[last].x, points[last].y);
    heads.push({ ...points[last], down: edge.down });
  }
  context.stroke();
  if (pane.scale > 0.3) {
    context.fillStyle = theme.soft;
    context.beginPath();
    for (const { x, y, down } of heads) arrowHead(context, x, y, down);
    context.fill();
  }
  context.globalAlpha = 1;
}

// A line towards a bend, and around it.
function corner(context, before, { x, y }, after) {
  const near = (other) => {
    const far = Math.hypot(other.x - x, other.y - y) || 1;
    const part = Math.min(ROUND / far, 0.5);
    return [x + (other.x - x) * part, y + (other.y - y) * part];
  };
  context.lineTo(...near(before));
  context.quadraticCurveTo(x, y, ...near(after));
}

function arrowHead(context, x, y, down = 1) {
  context.moveTo(x, y);
  context.lineTo(x - 3.2, y - 6 * down);
  context.lineTo(x + 3.2, y - 6 * down);
}

function paintUnit(context, pane, unit) {
  const { scale, rule } = pane;
  const { left, top, width, height } = unit;
  const mark = pane.lit.get(unit.id);
  const chosen = pane.selectedUnit === unit;
  context.globalAlpha = pane.lit.size && !mark && !chosen ? 0.45 : 1;
  context.fillStyle = fillOf(unit, rule, pane.whole);
  context.strokeStyle = chosen ? theme.accent : mark ? theme[mark] : unit.folds ? theme.accent : theme.soft;
  context.lineWidth = chosen ? 3.5 : mark ? 2.5 : 1;
  context.setLineDash(unit.arg >= 0 ? [4, 3] : []);
  context.beginPath();
  context.roundRect(left, top, width, height, unit.kind === "group" ? 10 : 4);
  context.fill();
  context.stroke();
  context.setLineDash([]);
  if (pane.hitUnits.has(unit.id)) {
    context.fillStyle = theme.hit;
    context.strokeStyle = theme.accent;
    context.beginPath();
    context.arc(left + width - 2, top + 2, 5, 0, 7);
    context.fill();
    context.stroke();
  }
  paintStubs(context, unit);
  const line = LINE * scale;
  context.textAlign = "center";
  unit.lines.forEach(([style, text, layout], at) => {
    const y = top + 15 + at * LINE;
    if (line < VISIBLE) return;
    if (style === "badge") {
      context.fillStyle = layoutHue(layout) || theme.line;
      context.beginPath();
      context.roundRect(left + 5, y - 10, width - 10, 13, 6);
      context.fill();
    }
    context.fillStyle = style === "tiny" ? theme.small : theme.ink;
    if (line < READABLE) {
      context.globalAlpha *= 0.4;
      context.fillRect(left + width * 0.2, y - 6, width * 0.6, 4);
      context.globalAlpha = pane.lit.size && !mark && !chosen ? 0.45 : 1;
      return;
    }
    context.font = `${style === "bold" ? "bold " : ""}${style === "tiny" || style === "badge" ? 10 : 11}px ${FACE}`;
    context.fillText(text, left + width / 2, y);
  });
  context.globalAlpha = 1;
}

// Short lines where values come from, or go, outside of the box around.
function paintStubs(context, unit) {
  if (!unit.reads && !(unit.leaves && unit.around)) return;
  const middle = unit.left + unit.width / 2;
  context.strokeStyle = theme.soft;
  context.lineWidth = 1;
  context.setLineDash([2, 2]);
  context.beginPath();
  if (unit.reads) {
    context.moveTo(middle - 10, unit.top - 9);
    context.lineTo(middle - 10, unit.top);
  }
  if (unit.leaves && unit.around) {
    context.moveTo(middle + 10, unit.top + unit.height);
    context.lineTo(middle + 10, unit.top + unit.height + 9);
  }
  context.stroke();
  context.setLineDash([]);
}

// Lines between the chosen op and what it reads and what reads it, across the borders of boxes.
function paintLinks(context, pane) {
  for (const { from, to, colour } of pane.links) {
    const [x1, y1, x2, y2] = [from.left + from.width / 2, from.top + from.height, to.left + to.width / 2, to.top];
    const bend = Math.min(Math.max(Math.abs(y2 - y1) / 2, 30), 160);
    context.strokeStyle = theme[colour];
    context.fillStyle = theme[colour];
    context.lineWidth = 2 / Math.min(pane.scale, 1);
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    context.stroke();
    context.beginPath();
    arrowHead(context, x2, y2);
    context.fill();
  }
}

function paintMap(pane, seen) {
  const { context, width, height } = sizeCanvas(pane.map);
  const scale = Math.min(width / pane.drawn.width, height / pane.drawn.height);
  const left = (width - pane.drawn.width * scale) / 2;
  const top = (height - pane.drawn.height * scale) / 2;
  pane.mapPlace = { scale, left, top };
  for (const unit of pane.drawn.units) {
    context.fillStyle = unit.open && unit.folds ? theme.line : pane.lit.has(unit.id) ? theme.path : fillOf(unit, pane.rule, pane.whole);
    context.globalAlpha = unit.open && unit.folds ? 0.4 : 1;
    context.fillRect(left + unit.left * scale, top + unit.top * scale, Math.max(unit.width * scale, 1), Math.max(unit.height * scale, 1));
  }
  context.globalAlpha = 1;
  if (pane.selectedUnit) {
    const unit = pane.selectedUnit;
    context.fillStyle = theme.accent;
    context.fillRect(left + (unit.left + unit.width / 2) * scale - 2, top + (unit.top + unit.height / 2) * scale - 2, 4, 4);
  }
  context.strokeStyle = theme.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left + seen.left * scale, top + seen.top * scale, (seen.right - seen.left) * scale, (seen.bottom - seen.top) * scale);
}
