"use strict";
// One layer in the middle of the page: as a graph, or as a list of its ops.

const content = document.getElementById("content");
// Folded groups by program and part, for as long as the page is open: identical layers share them.
const foldsOf = new Map();
// Ops of a list, or of a graph without groups, that are shown at once.
const WINDOW = 200;

class LayerView {
  constructor(program, part, instance, asList) {
    Object.assign(this, { program, part, instance, asList, from: 0 });
    this.label = program.parts[part][0];
  }

  is(program, part, instance, asList) {
    return this.program === program && this.part === part && this.instance === instance && this.asList === asList;
  }

  async open(wanted) {
    const instances = await this.program.instances(this.part);
    const [name, runs] = instances[this.instance];
    this.name = name;
    this.ops = await this.program.ops(runs);
    const at = this.ops.findIndex((op) => op.index === wanted);
    if (at >= 0) this.from = Math.floor(at / WINDOW) * WINDOW;
    this.body = make("div", { className: "body" });
    content.className = this.asList ? "list" : "graph";
    content.replaceChildren(this.header(instances.length), this.body);
    this.fill(wanted);
  }

  fill(wanted) {
    this.pager();
    if (this.asList) this.list();
    else this.graph(wanted);
  }

  get hash() {
    return { program: this.program.name, layer: this.name, view: this.asList ? "list" : "" };
  }

  header(count) {
    const tabs = make("span", { className: "tabs" },
      make("a", { href: hashOf({ ...this.hash, view: "" }), className: this.asList ? "" : "on" }, "graph"),
      make("a", { href: hashOf({ ...this.hash, view: "list" }), className: this.asList ? "on" : "" }, "list"));
    const head = make("div", { className: "head" }, make("h2", {}, this.name), tabs);
    if (!this.asList) {
      head.append(make("button", { onclick: () => this.foldAll(false), textContent: "unfold all" }),
        make("button", { onclick: () => this.foldAll(true), textContent: "fold all" }));
    }
    if (count > 1) head.append(this.picker(count));
    this.pages = make("span", { className: "soft" });
    head.append(this.pages);
    return head;
  }

  // Which of the identical layers: by number, so that thousands of them are no list.
  picker(count) {
    const go = async (number) => {
      const instances = await this.program.instances(this.part);
      const [name] = instances[Math.min(Math.max(number, 0), count - 1)];
      location.hash = hashOf({ ...this.hash, layer: name });
    };
    const field = make("input", { id: "instance", type: "number", min: 1, max: count, value: this.instance + 1,
      onchange: () => go(field.valueAsNumber - 1) });
    const step = (text, by) => make("button", { textContent: text, onclick: () => go(this.instance + by) });
    return make("span", { className: "soft" }, step("‹", -1), " ", field, ` of ${count} alike `, step("›", 1));
  }

  // A layer of thousands of ops is shown in windows.
  pager() {
    const count = this.ops.length;
    if (count <= WINDOW) return this.pages.replaceChildren(plural(count, "op"));
    const turn = (by) => () => {
      this.from = Math.min(Math.max(this.from + by, 0), Math.floor((count - 1) / WINDOW) * WINDOW);
      this.fill();
    };
    const last = Math.min(this.from + WINDOW, count);
    const step = (text, by) => make("button", { textContent: text, onclick: turn(by) });
    return this.pages.replaceChildren(step("‹", -WINDOW), ` ops ${this.from + 1} to ${last} of ${count} `, step("›", WINDOW));
  }

  get window() {
    return this.ops.slice(this.from, this.from + WINDOW);
  }

  graph(wanted) {
    this.groups = groupsOf(this.window, this.name);
    const key = `${this.program.number} ${this.part} ${this.from}`;
    if (!foldsOf.has(key)) foldsOf.set(key, firstFolds(this.window, this.groups));
    this.folded = foldsOf.get(key);
    this.reveal(wanted);
    this.canvas = new Canvas({
      op: (op) => goTo(this.program, op.results[0]?.name ?? "", this.hash),
      values: (values) => (values.length === 1 ? goTo(this.program, values[0].name) : showStack(this.program, values)),
      leaving: (left) => showLeaving(this.program, left),
      fold: (path) => this.toggle(path),
    });
    this.body.replaceChildren(this.canvas.element);
    this.redraw();
    this.canvas.fit();
  }

  redraw() {
    this.canvas.show(viewOf(this.window, this.name, this.groups, this.folded));
  }

  // Unfolds what hides an op.
  reveal(index) {
    const hiding = [...this.folded].filter((path) => this.groups.get(path)?.includes(index));
    for (const path of hiding) this.folded.delete(path);
    return hiding.length > 0;
  }

  toggle(path) {
    if (!this.folded.delete(path)) this.folded.add(path);
    this.redraw();
    const node = this.canvas.nodes.get(`group ${path}`) ?? [...this.canvas.nodes.values()].find((one) => one.parent === path);
    if (node) this.canvas.centre(node);
  }

  foldAll(folded) {
    for (const path of this.groups.keys()) {
      if (folded) this.folded.add(path);
      else this.folded.delete(path);
    }
    this.redraw();
    this.canvas.fit();
  }

  list() {
    const weights = new Set(this.ops.flatMap((op) => op.operands).filter((value) => value.kind === "weights"));
    const parts = this.window.map((op) => rowOf(op));
    if (weights.size) {
      parts.unshift(make("h3", {}, "Weights"), table(["", "type", "bytes", "sharding"], [...weights].map((value) =>
        [linkTo(this.program, value), make("code", {}, value.type), size(value.bytes), value.layout ? chip(value.layout) : ""])),
      make("h3", {}, "Ops"));
    }
    this.body.replaceChildren(...parts);
  }

  select(op) {
    if (this.asList) {
      for (const row of this.body.querySelectorAll(".row")) row.classList.toggle("on", row.dataset.op === String(op.index));
      this.body.querySelector(".row.on")?.scrollIntoView({ block: "nearest" });
      return;
    }
    if (this.reveal(op.index)) this.redraw();
    this.canvas.select(`op ${op.index}`, !this.inSight(op));
  }

  // Whether the node of an op is on the screen already: a click must not move the drawing.
  inSight(op) {
    const node = this.canvas.nodes.get(`op ${op.index}`);
    if (!node) return true;
    const [box, pane] = [node.drawn.getBoundingClientRect(), this.canvas.element.getBoundingClientRect()];
    return box.left >= pane.left && box.right <= pane.right && box.top >= pane.top && box.bottom <= pane.bottom;
  }
}

function rowOf(op, times = 1) {
  const types = op.results.map((value) => value.type).join(", ");
  const layouts = [...new Set(op.results.map((value) => value.layout).filter(Boolean))];
  const row = make("a", { className: `row${isCollective(op) ? " collective" : ""}`,
    href: hashOf({ program: op.program.name, view: "list", op: op.results[0]?.name ?? "" }) },
    times > 1 ? make("span", { className: "times" }, `x ${times}`) : "",
    make("span", { className: "what", title: `${written(op)} : ${types}` }, written(op)),
    ...layouts.map(chip), make("span", { className: "type" }, types), make("span", { className: "at" }, line(op)));
  row.dataset.op = op.index;
  return row;
}
