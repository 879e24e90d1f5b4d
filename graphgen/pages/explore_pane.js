"use strict";
// A pane: one module's graph with its canvas, what is unfolded, chosen and in sight.

const SCALES = [0.02, 3];
// Visible ops that "unfold all" stops at.
const MOST_UNFOLDED = 400;
// At first groups are unfolded while so few units are seen.
const COMFORTABLE = 24;
// Boxes that a path unfolds.
const MOST_OPENED = 12;

class Pane {
  // act.chosen(pane), act.folded(pane, unit, open) and act.moved() are called after the user's deeds.
  constructor(graph, act) {
    Object.assign(this, { graph, act, scale: 1, x: 0, y: 0, rule: "kind", selected: null, selectedUnit: null });
    Object.assign(this, { lit: new Map(), links: [], hitUnits: new Set(), inView: [], regions: new Map(), whole: {} });
    this.canvas = make("canvas", { className: "scene", tabIndex: 0 });
    this.canvas.setAttribute("aria-label", `graph of ${graph.head.title}`);
    this.map = make("canvas", { className: "map" });
    this.title = make("b", {}, graph.head.title);
    this.crumbs = make("span", { className: "crumbs" });
    this.element = make("div", { className: "pane" }, make("div", { className: "head" }, this.title, this.crumbs),
      make("div", { className: "stage" }, this.canvas, this.map));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("dblclick", (event) => this.double(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.map.addEventListener("pointerdown", (event) => this.grabMap(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // Shows a program, or the surroundings of one op alone.
  show(instance, near = null) {
    const key = near ? `near ${near.key}` : instance.key;
    if (this.key === key) return false;
    this.key = key;
    this.instance = instance;
    this.near = near;
    this.root = near ? near.region : this.regionOf(instance);
    this.whole = wholeOf(instance.chain[0]);
    if (!this.root.seen) this.unfoldFew();
    this.root.seen = true;
    this.arrange();
    this.fit();
    return true;
  }

  regionOf(instance) {
    if (!this.regions.has(instance.key)) this.regions.set(instance.key, Region.ofInstance(instance));
    return this.regions.get(instance.key);
  }

  // Unfolds the smallest groups while the graph stays small.
  unfoldFew() {
    let shown = this.root.split().units.length;
    for (let queue = [...this.root.units]; queue.length;) {
      const groups = queue.filter((unit) => unit.kind === "group" && unit.inner.kind !== "list");
      const smallest = groups.sort((a, b) => a.ops.length - b.ops.length)[0];
      if (!smallest || smallest.ops.length > 4000) return;
      const { units } = smallest.inner.split();
      if (shown + units.length > COMFORTABLE) return;
      shown += units.length;
      smallest.open = true;
      queue = [...groups.slice(1), ...units];
    }
  }

  arrange() {
    this.drawn = flatten(this.root);
    this.light();
  }

  // ---- what is chosen ----------------------------------------------------------------------------

  // The unit that stands for a node in what is unfolded now; null if it is not in this program.
  unitOf(node) {
    let region = this.root;
    for (const instance of this.near ? [node.instance] : node.instance.chain) {
      if (instance === node.instance.chain[0] && instance !== this.instance && !this.near) return null;
      const next = node.instance.chain[node.instance.chain.indexOf(instance) + 1];
      const wanted = next ? { op: next.op } : node;
      for (;;) {
        region.split();
        const at = wanted.op >= 0 ? region.indexOf(wanted.op) : region.argUnit.get(wanted.arg) ?? -1;
        const unit = region.units[at];
        if (!unit) return null;
        const here = wanted.op >= 0 ? unit.op === wanted.op : unit.arg === wanted.arg;
        if (here && !next) return unit;
        if (!unit.open) return unit;
        region = unit.inside;
        if (here) break;
      }
      if (next && region.kind === "roles") {
        const role = region.split().units[next.role];
        if (!role.open) return role;
        region = role.inside;
      }
    }
    return null;
  }

  // Unfolds what hides the nodes of a path, as far as it stays a picture that can be read.
  revealAll(nodes) {
    let opened = 0;
    for (const node of nodes) {
      if (opened < MOST_OPENED) opened += this.reveal(node, false) ? 1 : 0;
    }
    this.arrange();
  }

  // Unfolds what hides a node; whether anything had to be.
  reveal(node, arrange = true) {
    let changed = false;
    for (let steps = 0; steps < 1000; steps += 1) {
      const unit = this.unitOf(node);
      if (!unit || (unit.instance === node.instance && (node.op >= 0 ? unit.op === node.op : unit.arg === node.arg))) break;
      if (!unit.folds) break;
      unit.open = true;
      changed = true;
    }
    if (changed && arrange) this.arrange();
    return changed;
  }

  select(node, jump = true) {
    this.selected = node;
    this.group = null;
    if (node) {
      const opened = this.reveal(node);
      this.light();
      if (this.selectedUnit && (jump || opened) && !this.inSight(this.selectedUnit)) this.centre(this.selectedUnit);
    } else this.light();
    this.draw();
  }

  selectGroup(unit) {
    this.selected = null;
    this.group = unit;
    this.light();
    this.draw();
  }

  // Marks what the chosen op reads and what reads it, or the nodes of a path.
  light() {
    this.selectedUnit = this.group && this.drawn.byId.has(this.group.id) ? this.group : this.selected ? this.unitOf(this.selected) : null;
    this.lit = new Map();
    this.links = [];
    const mark = (node, colour) => {
      const unit = this.unitOf(node);
      if (unit && unit !== this.selectedUnit) this.lit.set(unit.id, colour);
      return unit;
    };
    if (this.path?.length) {
      const units = this.path.map((node) => mark(node, "path") ?? null);
      units.forEach((unit, at) => {
        const before = units[at - 1];
        if (unit && before && unit !== before && !encloses(unit, before) && !encloses(before, unit)) this.links.push({ from: before, to: unit, colour: "path" });
      });
    } else if (this.selected && this.selectedUnit) {
      const depth = this.depth ?? 1;
      for (const [next, colour] of [[sourcesOf, "from"], [readersOf, "to"]]) {
        for (const { node, distance } of reach(this.selected, next, depth).values()) {
          if (!distance) continue;
          const unit = mark(node, colour);
          if (distance > 1 || !unit || unit === this.selectedUnit || encloses(unit, this.selectedUnit) || this.links.length > 300) continue;
          this.links.push(colour === "from" ? { from: unit, to: this.selectedUnit, colour } : { from: this.selectedUnit, to: unit, colour });
        }
      }
    }
    this.hitUnits = new Set((this.hits ?? []).slice(0, 500).map((node) => this.unitOf(node)?.id));
    this.crumb();
  }

  crumb() {
    const around = [];
    for (let unit = this.selectedUnit?.around; unit; unit = unit.around) around.unshift(unit);
    const program = this.near ? `around %${this.graph.nameOf(this.near.node.op)}` : `@${this.instance.row.name}`;
    this.crumbs.replaceChildren(program, ...around.flatMap((unit) => [" › ", make("a", { href: "#", textContent: short(titleOf(unit), 34),
      onclick: (event) => { event.preventDefault(); this.toggle(unit); } })]));
  }

  // ---- folding -----------------------------------------------------------------------------------

  toggle(unit, told = true) {
    if (!unit.folds) return;
    // The title of the box stays where the unit was.
    const [left, top] = [unit.left * this.scale + this.x, unit.top * this.scale + this.y];
    const middle = left + (unit.width * this.scale) / 2;
    unit.open = !unit.open;
    this.arrange();
    if (this.drawn.byId.has(unit.id)) {
      this.x = middle - (unit.left + unit.width / 2) * this.scale;
      this.y = top - unit.top * this.scale;
    }
    this.draw();
    if (told) this.act.folded(this, unit);
  }

  unfoldAll() {
    for (let again = true; again;) {
      again = false;
      for (const unit of this.drawn.units) {
        if (unit.open || !unit.folds || unit.op >= 0) continue;
        if (this.drawn.units.length + unit.inside.split().units.length > MOST_UNFOLDED) continue;
        unit.open = true;
        again = true;
      }
      if (again) this.drawn = flatten(this.root);
    }
    this.arrange();
    this.fit();
    this.act.folded(this, null);
  }

  foldAll() {
    for (const unit of this.drawn.units) unit.open = false;
    this.arrange();
    this.fit();
    this.act.folded(this, null);
  }

  // Ids of what is unfolded, for the address.
  get open() {
    return this.drawn.units.filter((unit) => unit.open && unit.folds).map((unit) => unit.id);
  }

  set open(ids) {
    for (const unit of this.drawn.units) unit.open = false;
    const wanted = new Set(ids);
    const walk = (region) => {
      for (const unit of region.split().units) {
        if (!wanted.has(unit.id) || !unit.folds) continue;
        unit.open = true;
        walk(unit.inside);
      }
    };
    walk(this.root);
    this.arrange();
  }

  // ---- moving ------------------------------------------------------------------------------------

  draw() {
    if (this.waiting || !this.drawn) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      paint(this);
    });
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const whole = Math.min(width / (this.drawn.width + 40), height / (this.drawn.height + 40), 1.2);
    this.scale = Math.min(Math.max(whole, SCALES[0]), SCALES[1]);
    this.x = (width - this.drawn.width * this.scale) / 2;
    this.y = Math.max((height - this.drawn.height * this.scale) / 2, 20 * this.scale);
    this.draw();
  }

  centre(unit) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.scale = Math.min(Math.max(this.scale, 0.8), 1.4);
    if (unit.open && unit.folds) {
      const whole = Math.min(width / (unit.width + 40), height / (unit.height + 40), 1.2);
      this.scale = Math.max(whole, 0.3);
    }
    this.x = width / 2 - (unit.left + unit.width / 2) * this.scale;
    const room = unit.height * this.scale;
    this.y = (room > height - 40 ? 20 : (height - room) / 2) - unit.top * this.scale;
    this.draw();
  }

  inSight(unit) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [left, top] = [unit.left * this.scale + this.x, unit.top * this.scale + this.y];
    return this.scale > 0.4 && left >= 0 && top >= 0 && left + unit.width * this.scale <= width && top + unit.height * this.scale <= height;
  }

  zoom(by, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.scale * by, SCALES[0]), SCALES[1]);
    const ratio = scale / this.scale;
    this.x = px - (px - this.x) * ratio;
    this.y = py - (py - this.y) * ratio;
    this.scale = scale;
    this.draw();
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.draw();
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
  }

  grab(event) {
    const start = [event.clientX, event.clientY];
    let [px, py] = start;
    let moved = false;
    this.act.entered(this);
    const drag = (next) => {
      if (Math.hypot(next.clientX - start[0], next.clientY - start[1]) > 4) moved = true;
      if (moved) this.pan(next.clientX - px, next.clientY - py);
      [px, py] = [next.clientX, next.clientY];
    };
    const end = (last) => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", end);
      if (!moved) this.click(last);
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", end);
  }

  grabMap(event) {
    const jump = (next) => {
      const box = this.map.getBoundingClientRect();
      const { scale, left, top } = this.mapPlace;
      this.x = this.canvas.clientWidth / 2 - ((next.clientX - box.left - left) / scale) * this.scale;
      this.y = this.canvas.clientHeight / 2 - ((next.clientY - box.top - top) / scale) * this.scale;
      this.draw();
    };
    const end = () => {
      removeEventListener("pointermove", jump);
      removeEventListener("pointerup", end);
    };
    jump(event);
    addEventListener("pointermove", jump);
    addEventListener("pointerup", end);
  }

  // The innermost unit at a place of the window, and whether it is the title of a box.
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - this.x) / this.scale, (event.clientY - box.top - this.y) / this.scale];
    const found = this.inView.findLast((unit) => unit.left <= x && x <= unit.left + unit.width && unit.top <= y && y <= unit.top + unit.height);
    if (!found) return {};
    const open = found.open && found.folds;
    return { unit: found, open, title: open && y <= found.top + HEAD, mark: found.folds && y <= found.top + HEAD && x <= found.left + 22 };
  }

  // A click chooses; on the mark of a unit, on a group and on the title of a box it folds.
  click(event) {
    const { unit, open, title, mark } = this.hit(event);
    if (!unit || (open && !title)) return unit ? undefined : this.act.chosen(this, null);
    if (title || mark || unit.kind === "group") return this.toggle(unit);
    return this.act.chosen(this, { instance: unit.instance, op: unit.op, arg: unit.arg });
  }

  double(event) {
    const { unit, open } = this.hit(event);
    if (unit?.folds && unit.op >= 0 && !open) this.toggle(unit);
  }

  hover(event) {
    const { unit, open, title } = this.hit(event);
    this.canvas.title = !unit || (open && !title) ? "" : tipOf(unit);
    this.canvas.style.cursor = unit && (!open || title) ? "pointer" : "grab";
  }
}

function encloses(box, unit) {
  for (let around = unit.around; around; around = around.around) if (around === box) return true;
  return false;
}

function tipOf(unit) {
  const { graph } = unit;
  if (unit.kind === "group") {
    const { count, flops, bytes, time } = sumsOf(unit);
    return `${unit.label}: ${plural(count, "op")}, ${size(flops, "flops")}, ${size(bytes)}${time ? `, ${duration(time)}` : ""}`;
  }
  if (unit.arg >= 0) return `%${graph.names[unit.arg]} : ${graph.typeOf(unit.arg)}`;
  return writtenOp(graph, unit.op);
}

// An op as a line of text.
function writtenOp(graph, op) {
  const results = graph.resultsOf(op).map((value) => `%${graph.names[value]}`).join(", ");
  const operands = [...graph.operandsOf(op)].map((value) => `%${graph.names[value]}`).join(", ");
  const types = graph.resultsOf(op).map((value) => graph.typeOf(value)).join(", ");
  return `${results ? `${results} = ` : ""}${graph.opcode(op)}(${operands})${graph.attrs[graph.attrs_[op]]} : ${types}`;
}
