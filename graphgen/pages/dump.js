"use strict";
// The page of graphgen inspect --html: what is shown follows from the hash of its address, as in
// #program=decode&layer=model.layers.0&op=dot.3, #op=dot.3, or #search=all_reduce.

const parts = document.getElementById("parts");
const search = document.getElementById("search");
let shown = null;

function goTo(program, name, more = {}) {
  location.hash = hashOf({ program: program.name, ...more, op: name });
}

async function route() {
  const { program: name, layer, op, view, at, search: text } = readHash();
  if (text) return find(text);
  searching += 1;
  search.value = "";
  const program = programs.find((one) => one.name === name?.replace(/^@/, ""));
  if (name && !program) return missing(`the page has no program @${name}`);
  const found = op ? await named(op.replace(/^%/, ""), program) : null;
  if (op && !found) return missing(`the page has no op %${op.replace(/^%/, "")}`);
  const chosen = found?.program ?? program ?? (layer ? await withLayer(layer) : programs[0]);
  if (found?.arg) return argument(chosen, found.arg, layer, view);
  if (found) return showHome(chosen, found.op, view);
  if (!layer) return view === "memory" && chosen.live ? memory(chosen, Number(at ?? NaN)) : overview(chosen);
  const home = chosen && (await chosen.layer(layer));
  return home ? showLayer(chosen, home, view) : missing(`the page has no layer ${layer}`);
}

// The first program with a name, the given one before others.
async function named(name, first) {
  for (const program of first ? [first] : programs) {
    const found = await program.find(name);
    if (found) return { ...found, program };
  }
  return null;
}

async function withLayer(layer) {
  for (const program of programs) if (await program.layer(layer)) return program;
  return programs[0];
}

function missing(text) {
  shown = null;
  mark(null);
  content.className = "";
  content.replaceChildren(make("h2", { id: "missing" }, text), make("p", { className: "soft" }, "Names are those that graphgen inspect and graphgen explain print."));
}

function find(text) {
  shown = null;
  if (search.value.trim() !== text) search.value = text;
  mark(null);
  return showSearch(text);
}

function overview(program) {
  shown = null;
  detail.replaceChildren();
  mark(program.button);
  showOverview(program);
  content.scrollTop = 0;
}

function memory(program, at) {
  shown = null;
  detail.replaceChildren();
  mark(program.memoryButton);
  return showMemory(program, at);
}

async function argument(program, value, layer, view) {
  const home = layer && (await program.layer(layer));
  if (home) await showLayer(program, home, view);
  else overview(program);
  await showArgument(program, value);
}

async function showLayer(program, { part, instance }, view, op = -1) {
  const asList = view === "list";
  mark(program.partButtons[part]);
  if (op < 0) detail.replaceChildren();
  if (shown?.is(program, part, instance, asList)) return false;
  shown = new LayerView(program, part, instance, asList);
  await shown.open(op);
  return true;
}

async function showHome(program, index, view) {
  const opened = await showLayer(program, await program.home(index), view, index);
  const op = await program.op(index);
  showValue(program, op.results[0] ?? { name: op.op, type: "", readers: [], uses: 0 }, op);
  // The detail has taken its room from the drawing.
  if (opened) shown.canvas?.fit();
  shown.select(op);
}

function mark(button) {
  for (const other of parts.querySelectorAll("a")) other.classList.toggle("on", other === button);
}

function listPrograms() {
  for (const program of programs) {
    const entry = (target, name, words) => make("a", { href: hashOf({ program: program.name, ...target }), title: name },
      make("span", { className: "name" }, name), make("small", {}, words));
    program.button = entry({}, "Overview", plural(program.count, "op"));
    parts.append(make("h2", {}, `@${program.name}`), program.button);
    if (program.live) {
      program.memoryButton = entry({ view: "memory" }, "Memory", `${size(program.facts.peak_bytes)} alive at most`);
      parts.append(program.memoryButton);
    }
    program.partButtons = program.parts.map(([label, count, ops, first]) =>
      entry({ layer: first }, label, `${plural(ops, "op")}${count > 1 ? ` x ${count}` : ""}`));
    parts.append(...program.partButtons);
  }
}

search.addEventListener("input", () => {
  location.replace(search.value.trim() ? hashOf({ search: search.value.trim() }) : "#");
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target.tagName !== "INPUT") {
    event.preventDefault();
    search.focus();
  }
  if (event.key === "Escape") {
    search.blur();
    location.hash = "";
  }
});

// Routes follow each other: a later address waits until the earlier one is drawn.
let routing = Promise.resolve();
function follow() {
  routing = routing.then(route).catch((error) => console.error(error));
  return routing;
}

document.querySelector("h1").textContent = `@${head.module.name}`;
document.getElementById("summary").textContent = [
  `level ${head.module.level}${head.module.ranks > 1 ? `, ${head.module.ranks} ranks` : ""}`,
  head.module.opaque && `kept as they are: ${head.module.opaque}`,
  head.module.dropped && `left out: ${head.module.dropped}`].filter(Boolean).join("; ");
listPrograms();
addEventListener("hashchange", follow);
follow();
