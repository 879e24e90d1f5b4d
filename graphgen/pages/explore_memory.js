"use strict";
// Memory over time: bytes alive while each op runs, and the buffers alive at an instant.

const memoryPanel = document.getElementById("memory");
const MOST_ALIVE = 60;
const [CHART_LEFT, CHART_TOP, CHART_BOTTOM] = [64, 8, 22];

// The memory of a program: by XLA's schedule where the file states one, else op by op.
class MemoryChart {
  constructor(graph, fn, buffers) {
    Object.assign(this, { graph, fn, buffers });
    this.bytes = buffers ? buffers.live : graph.live[fn].bytes;
    this.canvas = make("canvas", { className: "chart", tabIndex: 0 });
    this.canvas.setAttribute("aria-label", "memory over time");
    this.list = make("div", { className: "alive" });
    this.peak = this.bytes.reduce((best, value, at) => (value > this.bytes[best] ? at : best), 0);
    const grab = (event) => {
      const move = (next) => go(this.instantAt(next));
      const go = (at) => this.choose(at);
      const end = () => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", end);
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", end);
      move(event);
    };
    this.canvas.addEventListener("pointerdown", grab);
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -100, PageDown: 100 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.choose(Math.min(Math.max(this.at + step, 0), this.bytes.length - 1));
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
  }

  instantAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - CHART_LEFT) / (box.width - CHART_LEFT - 8);
    return Math.min(Math.max(Math.floor(part * this.bytes.length), 0), this.bytes.length - 1);
  }

  choose(at) {
    if (at === this.at) return;
    this.at = at;
    replaceHash(hashOf({ ...readHash(), view: "memory", at }));
    this.show();
  }

  show() {
    this.paint();
    const rows = this.buffers ? this.scheduled() : this.computed();
    rows.sort((a, b) => b.bytes - a.bytes);
    this.mark(rows);
    const peak = this.bytes[this.at] === this.bytes[this.peak] ? ", the peak" : "";
    const title = make("h3", {}, `Alive at ${this.at}: ${size(this.bytes[this.at])}${peak}, while `, this.running(), " runs");
    const headers = this.buffers ? ["buffer", "bytes", "padding", "kind", "lives", "shape", "layer"] : ["value", "bytes", "type", "made at", "until"];
    this.list.replaceChildren(title, table(headers, rows.slice(0, MOST_ALIVE).map((row) => row.cells)));
    if (rows.length > MOST_ALIVE) this.list.append(make("p", { className: "soft" }, `and ${rows.length - MOST_ALIVE} smaller ones`));
  }

  // Marks in the graph what makes the buffers alive.
  mark(rows) {
    const one = panes[this.graph.side];
    const root = this.graph.roots[this.fn];
    const nodeOf = (name) => {
      const [value] = this.graph.named(name);
      const instance = value === undefined ? null : this.graph.someInstance(this.graph.fnOfValue(value), root);
      return instance && makerOf(instance, value);
    };
    one.hits = rows.slice(0, MOST_ALIVE).map(({ node, name }) => node ?? nodeOf(name)).filter(Boolean);
    one.light();
    one.draw();
  }

  // The op that runs at the instant, as a link.
  running() {
    if (this.buffers) return this.linkByName(this.buffers.instructions[this.at] ?? "");
    return linkToNode(this.graph.at(this.graph.roots[this.fn], this.at, false));
  }

  linkByName(name) {
    return this.graph.named(name).length ? link(`%${name}`, { side: this.graph.side ? "b" : "", op: name }) : `%${name}`;
  }

  scheduled() {
    const lives = (times) => {
      for (let place = 0; place < times.length; place += 2) if (times[place] <= this.at && this.at <= times[place + 1]) return true;
      return false;
    };
    return this.buffers.buffers.filter((row) => lives(row[6])).map(([name, shape, bytes, padding, kind, layer, times]) => ({ bytes, name,
      cells: [this.linkByName(name), size(bytes), padding ? size(padding) : "-", kind, `${Math.min(...times)}-${Math.max(...times)}`, make("code", {}, short(shape, 40)), layer] }));
  }

  computed() {
    const { graph, at } = this;
    const live = graph.live[this.fn];
    const found = [];
    for (let row = 0; row < live.first.length; row += 1) {
      const until = live.first[row] + live.held[row];
      if (live.first[row] <= at && at <= until) found.push({ row, until, bytes: live.size[row] });
    }
    found.sort((a, b) => b.bytes - a.bytes);
    return found.map(({ row, until, bytes }, place) => {
      if (place >= MOST_ALIVE) return { bytes };
      const node = graph.at(graph.roots[this.fn], live.first[row], false);
      const value = graph.firstValue[node.op] + live.result[row];
      return { bytes, node, cells: [linkToNode(node, `%${graph.names[value]}`), size(bytes), graph.typeOf(value), live.first[row],
        until < this.bytes.length ? until : "the end"] };
    });
  }

  paint() {
    const { context, width, height } = sizeCanvas(this.canvas);
    const { bytes } = this;
    const [across, down] = [width - CHART_LEFT - 8, height - CHART_TOP - CHART_BOTTOM];
    if (across <= 0) return;
    const most = bytes[this.peak] || 1;
    const bottom = CHART_TOP + down;
    context.fillStyle = theme.accent;
    context.globalAlpha = 0.5;
    context.beginPath();
    context.moveTo(CHART_LEFT, bottom);
    const columns = Math.min(Math.ceil(across), bytes.length);
    for (let column = 0; column < columns; column += 1) {
      const [first, last] = [column, column + 1].map((side) => Math.floor((side * bytes.length) / columns));
      let highest = 0;
      for (let place = first; place < Math.max(last, first + 1); place += 1) highest = Math.max(highest, bytes[place]);
      const tall = bottom - (highest / most) * down;
      context.lineTo(CHART_LEFT + (column * across) / columns, tall);
      context.lineTo(CHART_LEFT + ((column + 1) * across) / columns, tall);
    }
    context.lineTo(CHART_LEFT + across, bottom);
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = theme.soft;
    context.strokeRect(CHART_LEFT + 0.5, CHART_TOP + 0.5, across, down);
    context.fillStyle = theme.soft;
    context.font = `10px ${FACE}`;
    context.textAlign = "right";
    for (const part of [0, 0.5, 1]) context.fillText(size(Math.round(part * most)), CHART_LEFT - 4, bottom - part * down + (part === 1 ? 9 : 3));
    context.textAlign = "left";
    context.fillText("0", CHART_LEFT, height - 8);
    context.textAlign = "right";
    context.fillText(`${bytes.length - 1}`, width - 8, height - 8);
    context.textAlign = "center";
    context.fillText(this.buffers ? "instruction, in XLA's schedule" : "op, in program order", CHART_LEFT + across / 2, height - 8);
    const x = CHART_LEFT + ((this.at + 0.5) * across) / bytes.length;
    context.strokeStyle = theme.path;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, CHART_TOP);
    context.lineTo(x, bottom);
    context.stroke();
  }
}

const charts = new Map();

async function showMemory(graph, fn, at) {
  const key = `${graph.side} ${fn}`;
  if (!charts.has(key)) {
    const buffers = graph.head.buffers ? await inflateJson(`buffers-${graph.side}`) : null;
    charts.set(key, buffers || graph.live[fn] ? new MemoryChart(graph, fn, buffers) : null);
  }
  const chart = charts.get(key);
  memoryPanel.hidden = false;
  if (!chart) {
    memoryPanel.replaceChildren(make("p", { className: "soft" }, "Sizes depend on symbols: give them with graphgen opt -p specialize{...} first."));
    return;
  }
  chart.at = Number.isInteger(at) && at >= 0 && at < chart.bytes.length ? at : chart.peak;
  const total = chart.buffers ? `${size(chart.buffers.total)} reserved${chart.buffers.stated === null ? "" : ", as XLA states"}; all buffers, arguments too`
    : "values that ops make, states updated in place, nothing fused; arguments are not counted";
  const close = make("button", { textContent: "close", title: "m", onclick: () => { location.hash = hashOf({ ...readHash(), view: "", at: "" }); } });
  memoryPanel.replaceChildren(make("div", { className: "head" }, make("b", {}, `Memory of @${graph.functions[fn].name}`), make("span", { className: "soft" }, total), close),
    chart.canvas, chart.list);
  chart.show();
}
