"use strict";
// A picture of the ranks on the mesh: those that exchange with each other have one colour.

// The name space of SVG is that of the page's own drawing.
const SVG = document.getElementById("shapes").namespaceURI;

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    // An attribute of style is what the page's policy forbids; the property is not.
    if (key === "style") element.style.cssText = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// Colours far apart from each other, for any number of groups.
const colour = (index) => `hsl(${(index * 137.5 + 215) % 360} var(--chroma) var(--tone))`;

// Rows and columns: the last axis of the mesh runs along a row. Without two axes the groups say how
// the ranks lie: neighbours make a row, ranks at a distance a column.
function gridOf(module, ranks, groups) {
  const axes = Object.entries(module.mesh);
  const [name, last] = axes.at(-1) ?? ["rank", ranks];
  const fits = axes.reduce((product, [, count]) => product * count, 1) === ranks;
  if (fits && axes.length > 1 && last <= 32) {
    return { columns: last, across: name, down: axes.slice(0, -1).map(([axis]) => axis).join(" x ") };
  }
  const [first, second] = groups?.[0] ?? [];
  const row = second - first === 1 ? groups[0].length : second - first;
  if (groups?.length > 1 && row > 1 && row <= 32 && ranks % row === 0) return { columns: row, across: "rank", down: "" };
  return { columns: Math.min(ranks, ranks > 64 ? 16 : 8), across: fits ? name : "rank", down: "" };
}

function meshPicture(module, { groups, pairs }) {
  const named = (groups ?? pairs).flat();
  const { partitions = 1, replicas = 1 } = module.partitioning ?? {};
  const ranks = Math.max(module.ranks, partitions * replicas, ...named.map((rank) => rank + 1));
  const { columns, across, down } = gridOf(module, ranks, groups);
  const [cell, gap, left, top] = [ranks > 256 ? 16 : 24, 3, down ? 18 : 2, 18];
  const spot = (rank) => [left + (rank % columns) * (cell + gap), top + Math.floor(rank / columns) * (cell + gap)];
  const width = left + Math.max(columns * (cell + gap), across.length * 7) + 2;
  const height = top + Math.ceil(ranks / columns) * (cell + gap) + 2;
  const picture = draw("svg", { class: "mesh", width, height, role: "img", "aria-label": `${ranks} ranks` });
  picture.append(draw("text", { x: left, y: 12, class: "axis" }, `${across} →`));
  if (down) picture.append(draw("text", { x: 12, y: top, class: "axis", transform: `rotate(90 12 ${top})`, dy: 4 }, `${down} →`));
  const together = groups?.length ? groups : [[...Array(ranks).keys()]];
  const groupOf = new Map(groups ? together.flatMap((group, at) => group.map((rank) => [rank, at])) : []);
  for (let rank = 0; rank < ranks; rank += 1) {
    const [x, y] = spot(rank);
    const at = groupOf.get(rank);
    const fill = at === undefined ? "var(--shade)" : colour(at);
    const square = draw("rect", { x, y, width: cell, height: cell, rx: 3, style: `fill:${fill}`, class: "rank" });
    square.append(draw("title", {}, at === undefined ? `rank ${rank}` : `rank ${rank}, group ${at}: ${together[at].join(", ")}`));
    picture.append(square);
    if (cell > 16) picture.append(draw("text", { x: x + cell / 2, y: y + cell / 2 + 4, class: "number" }, String(rank)));
  }
  for (const [from, to] of pairs ?? []) picture.append(arrow(spot(from), spot(to), cell));
  const words = groups ? `${plural(together.length, "group")} of ${together[0].length}` : plural(pairs.length, "transfer");
  return make("figure", { className: "exchange" }, picture, make("figcaption", {}, `${words}, on ${plural(ranks, "rank")}`));
}

// A bent arrow between two squares, so that there and back are two lines.
function arrow([x1, y1], [x2, y2], cell) {
  const [ax, ay, bx, by] = [x1 + cell / 2, y1 + cell / 2, x2 + cell / 2, y2 + cell / 2];
  const long = Math.hypot(bx - ax, by - ay) || 1;
  const [sx, sy] = [(-(by - ay) / long) * 9, ((bx - ax) / long) * 9];
  const d = `M${ax + sx} ${ay + sy} Q${(ax + bx) / 2 + 2 * sx} ${(ay + by) / 2 + 2 * sy} ${bx + sx} ${by + sy}`;
  return draw("path", { d, class: "transfer", "marker-end": "url(#head)" });
}
