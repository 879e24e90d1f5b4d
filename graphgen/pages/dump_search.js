"use strict";
// Search over all programs, a block at a time, so that the page answers while it looks.

const MOST_FOUND = 400;
// The number of the search that runs; an older one stops.
let searching = 0;

async function showSearch(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  searching += 1;
  const mine = searching;
  const title = make("h2", { id: "count" }, "searching …");
  const list = make("div", { className: "body" });
  content.className = "list";
  content.replaceChildren(title, list);
  let count = 0;
  // What is found at the same place of layers alike is one row: equal but for names and numbers.
  const rows = new Map();
  for (const program of programs) {
    for (const value of program.args) {
      if (!words.every((word) => `%${value.name} ${value.type} ${value.kind} ${value.layout ?? ""}`.toLowerCase().includes(word))) continue;
      count += 1;
      if (list.childElementCount < MOST_FOUND) list.append(make("p", {}, linkTo(program, value), ` ${value.kind} ${value.type}`));
    }
    for (let number = 0; number < program.chunkCount; number += 1) {
      const { ops } = await program.read(number);
      if (mine !== searching) return;
      const found = ops.filter((op) => matches(op, words));
      count += found.length;
      found.forEach((op) => addRow(rows, op, list));
      title.textContent = `${count} found so far`;
    }
  }
  title.textContent = `${count} found`;
  if (list.childElementCount >= MOST_FOUND) title.after(make("p", { className: "soft" }, `the first ${MOST_FOUND} rows are shown`));
}

function matches(op, words) {
  const types = op.results.map((value) => `${value.type} ${value.layout ?? ""}`).join(" ");
  const text = `${written(op)} : ${types} ${line(op)} ${op.place?.[2] ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function addRow(rows, op, list) {
  const scope = (op.place?.[2] ?? "").replace(/\d+/g, "#");
  const key = `${op.program.name} ${op.op} ${op.attrs} ${line(op)} ${scope} ${op.results.map((value) => value.type)}`;
  const known = rows.get(key);
  if (known) {
    known.count += 1;
    const row = rowOf(known.op, known.count);
    known.row?.replaceWith(row);
    if (known.row) known.row = row;
    return;
  }
  const row = list.childElementCount < MOST_FOUND ? rowOf(op) : null;
  if (row) list.append(row);
  rows.set(key, { op, count: 1, row });
}
