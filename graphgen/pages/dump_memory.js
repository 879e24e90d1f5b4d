"use strict";
// The curve of live memory: bytes of intermediate values over the ops, and what is alive at any one.

const [CURVE_WIDTH, CURVE_HEIGHT, CURVE_LEFT, CURVE_TOP] = [900, 240, 70, 14];
const MOST_ALIVE = 40;

async function showMemory(program, at) {
  const live = await program.block(`live-${program.number}`);
  const columns = columnsOf(live.bytes);
  const peak = columns.reduce((best, column) => (column.bytes > best.bytes ? column : best));
  const list = make("div", { id: "alive" });
  content.className = "";
  content.replaceChildren(make("h2", {}, `Live memory of @${program.name}`),
    make("p", { className: "soft" }, "Intermediate values, op by op in program order, states updated in place, nothing fused; "
      + "arguments are not counted. Click the curve to see what is alive there."),
    make("div", { className: "figure" }, curve(columns, peak, live.bytes.length, (column) => go(program, column.op))), list);
  await showAlive(program, live, Number.isInteger(at) && at < live.bytes.length ? at : peak.op, list, columns);
}

const go = (program, place) => { location.hash = hashOf({ program: program.name, view: "memory", at: place }); };

// At most a column for each two pixels; the highest op of each.
function columnsOf(bytes) {
  const count = Math.min(bytes.length, CURVE_WIDTH / 2);
  const columns = [];
  for (let column = 0; column < count; column += 1) {
    const [first, last] = [column, column + 1].map((side) => Math.floor((side * bytes.length) / count));
    let op = first;
    for (let place = first; place < last; place += 1) if (bytes[place] > bytes[op]) op = place;
    columns.push({ op, bytes: bytes[op] });
  }
  return columns;
}

function curve(columns, peak, count, choose) {
  const step = CURVE_WIDTH / columns.length;
  const y = (value) => CURVE_TOP + CURVE_HEIGHT * (1 - value / (peak.bytes || 1));
  const [right, bottom] = [CURVE_LEFT + CURVE_WIDTH, CURVE_TOP + CURVE_HEIGHT];
  const steps = columns.map((column, at) => `V${y(column.bytes).toFixed(1)}H${(CURVE_LEFT + (at + 1) * step).toFixed(1)}`);
  const picture = draw("svg", { class: "curve", viewBox: `0 0 ${right + 20} ${bottom + 34}`, width: right + 20, role: "img", "aria-label": "live memory" },
    draw("path", { class: "area", d: `M${CURVE_LEFT} ${bottom}${steps.join("")}V${bottom}Z` }),
    draw("path", { class: "axes", d: `M${CURVE_LEFT} ${CURVE_TOP}V${bottom}H${right}` }),
    draw("line", { id: "chosen", y1: CURVE_TOP, y2: bottom }));
  for (const part of [0, 0.5, 1]) {
    picture.append(draw("text", { x: CURVE_LEFT - 6, y: y(part * peak.bytes) + 4, "text-anchor": "end" }, size(Math.round(part * peak.bytes))));
    picture.append(draw("text", { x: CURVE_LEFT + part * CURVE_WIDTH, y: bottom + 16, "text-anchor": "middle" }, String(Math.round(part * count))));
  }
  picture.append(draw("text", { x: CURVE_LEFT + CURVE_WIDTH / 2, y: bottom + 31, "text-anchor": "middle", class: "axis" }, "op, in program order"));
  picture.addEventListener("click", (event) => {
    const scale = (right + 20) / picture.getBoundingClientRect().width;
    const at = Math.floor(((event.clientX - picture.getBoundingClientRect().left) * scale - CURVE_LEFT) / step);
    choose(columns[Math.min(Math.max(at, 0), columns.length - 1)]);
  });
  return picture;
}

// The values alive while an op runs: a value lives from its op, by `held` further ops.
async function showAlive(program, live, place, list, columns) {
  const names = await program.block(`names-${program.number}`);
  const nameOf = (op, result) => names[op].split(" ")[result] ?? "";
  const alive = live.alive.filter(([op, held]) => op <= place && place <= op + held).sort((a, b) => b[2] - a[2]);
  const line = document.getElementById("chosen");
  const x = CURVE_LEFT + ((place + 0.5) * CURVE_WIDTH) / live.bytes.length;
  for (const side of ["x1", "x2"]) line.setAttribute(side, x);
  const rows = alive.slice(0, MOST_ALIVE).map(([op, held, bytes, result]) =>
    [linkTo(program, { name: nameOf(op, result) }), size(bytes), `op ${op}`, op + held < live.bytes.length ? `op ${op + held}` : "the end"]);
  const peak = columns.every((column) => column.bytes <= live.bytes[place]) ? ", the peak" : "";
  list.replaceChildren(make("h3", {}, `Alive at op ${place}: ${size(live.bytes[place])}${peak}`),
    make("p", {}, "while ", names[place] ? linkTo(program, { name: nameOf(place, 0) }) : "an op without a result", " runs"),
    table(["", "bytes", "made by", "until"], rows));
  if (alive.length > MOST_ALIVE) list.append(make("p", { className: "soft" }, `and ${alive.length - MOST_ALIVE} smaller ones`));
}
