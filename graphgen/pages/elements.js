"use strict";
// Small makers of elements, shared by the pages.

// make("p", {className: "soft"}, "text", child, ...) is an element.
function make(tag, given = {}, ...children) {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...children);
  return element;
}

// size(2048, "B") is "2.05 kB"; what is not a number stays as it is.
function size(value, unit = "B") {
  if (typeof value !== "number") return String(value ?? "-");
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [by, letter] = steps.find(([least]) => value >= least) || [1, ""];
  return by === 1 ? `${value} ${unit}`.trim() : `${(value / by).toFixed(2)} ${letter}${unit}`;
}

function plural(count, word) {
  const many = /(s|ch)$/.test(word) ? `${word}es` : `${word}s`;
  return `${count} ${count === 1 ? word : many}`;
}

function table(headers, rows) {
  const head = make("tr", {}, ...headers.map((text) => make("th", {}, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell ?? "-"))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

// The hash of the address as an object: "#layer=model.layers.0&op=dot.3".
function readHash() {
  // The sign of a value before its name is no escape: "#op=%add.3".
  const plain = location.hash.slice(1).replace(/(^|&)op=%(?!25.)/, "$1op=");
  return Object.fromEntries(new URLSearchParams(plain));
}

function hashOf(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
  // Names stay readable: only what would end a parameter is escaped.
  const escaped = (text) => String(text).replace(/[%&#+ ]/g, encodeURIComponent);
  return `#${given.map(([key, value]) => `${key}=${escaped(value)}`).join("&")}`;
}

// Puts a hash in the address without an entry in the history.
function replaceHash(hash) {
  const [page] = document.URL.split("#");
  history.replaceState(null, "", hash === "#" ? page : `${page}${hash}`);
}
