"use strict";
// The drawing of a view: nodes, edges and boxes as SVG, with zoom, pan and clicks.

const SCALES = [0.08, 3];
// Below this scale text cannot be read: a larger graph starts at its top instead of whole.
const READABLE = 0.8;

class Canvas {
  // act.op(op), act.fold(path), act.values(values) and act.leaving(values) are called for what is clicked.
  constructor(act) {
    this.act = act;
    this.svg = document.getElementById("canvas").content.firstElementChild.cloneNode(true);
    this.layer = this.svg.querySelector("#scene");
    this.element = make("div", { className: "canvas", tabIndex: 0 }, this.svg, this.buttons());
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  buttons() {
    const button = (text, title, onclick) => make("button", { textContent: text, title, onclick });
    return make("div", { className: "zoom" }, button("+", "zoom in", () => this.zoom(1.25)),
      button("−", "zoom out", () => this.zoom(0.8)), button("fit", "the whole layer", () => this.fit(SCALES[0])));
  }

  show(view) {
    this.extent = place(view);
    this.nodes = view.nodes;
    this.layer.replaceChildren(
      draw("g", { class: "boxes" }, ...[...view.boxes.values()].map((box) => this.box(box))),
      draw("g", { class: "edges" }, ...[...view.edges.values()].map(edgeOf)),
      draw("g", { class: "labels" }, ...[...view.edges.values()].filter((edge) => edge.label).map(labelOf)),
      draw("g", { class: "nodes" }, ...[...view.nodes.values()].map((node) => this.node(node))));
  }

  box(box) {
    const [x, y] = [box.x - box.width / 2, box.y - box.height / 2 - 6];
    const title = draw("text", { x: x + 8, y: y + 12, class: "title" }, `− ${box.path.split(".").at(-1)}`);
    title.addEventListener("click", () => this.act.fold(box.path));
    title.append(draw("title", {}, `fold ${box.path}`));
    return draw("g", { class: "box" }, draw("rect", { x, y, width: box.width, height: box.height + 6, rx: 6 }), title);
  }

  node(node) {
    const [x, y] = [node.x - node.width / 2, node.y - node.height / 2];
    const marks = [node.kind, node.kind === "op" && isCollective(node.op) ? "collective" : "",
      node.kind === "group" && node.ops.some(isCollective) ? "exchanges" : "",
      node.kind === "op" && !node.op.operands.length ? "plain" : "", node.kind === "from" ? node.values[0].what : ""];
    const drawn = draw("g", { class: `node ${marks.join(" ")}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "button" },
      draw("rect", { width: node.width, height: node.height, rx: node.kind === "op" ? 4 : 10, class: "shape" }));
    node.lines.forEach(([kind, text], at) =>
      drawn.append(draw("text", { x: node.width / 2, y: 15 + at * LINE, class: kind }, text)));
    if (node.badge) drawn.append(badge(node));
    drawn.append(draw("title", {}, titleOf(node)));
    drawn.addEventListener("click", () => this.click(node));
    drawn.addEventListener("keydown", (event) => { if (event.key === "Enter") this.click(node); });
    node.drawn = drawn;
    return drawn;
  }

  click(node) {
    if (this.moved) return;
    if (node.kind === "op") this.act.op(node.op);
    else if (node.kind === "group") this.act.fold(node.path);
    else if (node.kind === "from") this.act.values(node.values);
    else this.act.leaving(node.left);
  }

  // Lights up a node with its edges, and brings it into view.
  select(id, jump) {
    for (const lit of this.layer.querySelectorAll(".on")) lit.classList.remove("on");
    const node = this.nodes.get(id);
    if (!node) return;
    node.drawn.classList.add("on");
    for (const edge of this.layer.querySelectorAll(".edge")) {
      edge.classList.toggle("on", edge.dataset.from === id || edge.dataset.to === id);
    }
    if (jump) this.centre(node);
  }

  centre({ x, y }) {
    const { clientWidth, clientHeight } = this.element;
    this.scale = Math.max(this.scale, READABLE);
    this.move(clientWidth / 2 - x * this.scale, clientHeight / 2 - y * this.scale);
  }

  // The whole graph, or its top at a scale that can be read.
  fit(least = READABLE) {
    const { clientWidth, clientHeight } = this.element;
    const whole = Math.min(clientWidth / this.extent.width, clientHeight / this.extent.height, 1.15);
    this.scale = Math.max(whole, least, SCALES[0]);
    // Of a graph that is too wide the middle is where its first op is, but no side is left empty.
    const wide = this.extent.width * this.scale - clientWidth;
    const first = [...this.nodes.values()].find((node) => node.kind !== "from") ?? { x: 0 };
    const left = wide > 0 ? Math.min(Math.max(clientWidth / 2 - first.x * this.scale, -wide), 0) : -wide / 2;
    this.move(left, Math.max((clientHeight - this.extent.height * this.scale) / 2, 0));
  }

  move(x, y) {
    Object.assign(this, { x, y });
    this.layer.setAttribute("transform", `translate(${x} ${y}) scale(${this.scale})`);
  }

  // Zooms around a point of the window, else around the middle.
  zoom(by, at) {
    const { left, top, width, height } = this.element.getBoundingClientRect();
    const [px, py] = at ? [at.clientX - left, at.clientY - top] : [width / 2, height / 2];
    const scale = Math.min(Math.max(this.scale * by, SCALES[0]), SCALES[1]);
    const ratio = scale / this.scale;
    this.scale = scale;
    this.move(px - (px - this.x) * ratio, py - (py - this.y) * ratio);
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event);
  }

  grab(event) {
    const start = { x: this.x - event.clientX, y: this.y - event.clientY, at: [event.clientX, event.clientY] };
    this.moved = false;
    const drag = (next) => {
      if (Math.hypot(next.clientX - start.at[0], next.clientY - start.at[1]) > 4) this.moved = true;
      if (this.moved) this.move(start.x + next.clientX, start.y + next.clientY);
    };
    const end = () => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", end);
      // The click that ends a drag is none.
      setTimeout(() => { this.moved = false; });
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", end);
  }

  key(event) {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (steps[event.key]) this.move(this.x + steps[event.key][0], this.y + steps[event.key][1]);
    else if (event.key === "+") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}

function titleOf(node) {
  if (node.kind === "op") return `${written(node.op)} : ${node.op.results.map((value) => value.type).join(", ")}`;
  if (node.kind === "group") return `unfold ${node.path}`;
  return node.values.map((value) => `%${value.name} : ${value.type}`).join("\n");
}

// A sharding has a colour of its own, the same wherever it stands; whole values are grey.
function layoutColour(layout) {
  if (/^\{(replicated|[-,]*)\}$/.test(layout)) return "var(--line)";
  let hash = 7;
  for (const letter of layout) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
  return colour(hash);
}

function badge(node) {
  const text = short(node.badge);
  const width = text.length * 6.1 + 10;
  const [x, y] = [(node.width - width) / 2, node.height - 19];
  return draw("g", { class: "badge" },
    draw("rect", { x, y, width, height: 14, rx: 7, style: `fill:${layoutColour(node.badge)}` }),
    draw("text", { x: node.width / 2, y: y + 10.5 }, text));
}

// A smooth line through the points that the layout gives.
function edgeOf(edge) {
  const points = edge.points.map(({ x, y }) => [x.toFixed(1), y.toFixed(1)]);
  const middle = (a, b) => [(Number(a[0]) + Number(b[0])) / 2, (Number(a[1]) + Number(b[1])) / 2];
  let path = `M${points[0]}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    path += `Q${points[at]} ${at === points.length - 2 ? points[at + 1] : middle(points[at], points[at + 1])}`;
  }
  if (points.length === 2) path += `L${points[1]}`;
  return draw("path", { d: path, class: "edge", "data-from": edge.from, "data-to": edge.to, "marker-end": "url(#head)" });
}

function labelOf(edge) {
  return draw("g", {}, draw("rect", { x: edge.x - edge.width / 2, y: edge.y - 6.5, width: edge.width, height: 13, rx: 3 }),
    draw("text", { x: edge.x, y: edge.y + 3.5 }, edge.label));
}
