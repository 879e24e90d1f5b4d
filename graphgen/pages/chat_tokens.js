"use strict";
// The tokens of an answer: a darker one was less likely; a pointer, or the arrow keys, shows what else was likely.

const LIKELY = [0.9, 0.6, 0.3, 0.1];

const visible = (text) => text.replace(/\n/g, "\u23ce").replace(/\t/g, "\u21e5").replace(/ /g, "\u00b7");

// A token as it is kept: its text, its log probability, and the same of the likely ones.
function keptToken(entry) {
  return [entry.token, entry.logprob, entry.top_logprobs.map((other) => [other.token, other.logprob])];
}

const percent = (logprob) => `${(100 * Math.exp(logprob)).toPrecision(3)} %`;

function tokenSpan([text, logprob]) {
  const place = LIKELY.findIndex((least) => Math.exp(logprob) >= least);
  const shown = text.includes("\n") ? text.replace(/\n/g, "\u23ce\n") : text;
  return make("span", { className: `token likely${place < 0 ? LIKELY.length : place}` }, shown);
}

function likelyTable([text, logprob, top]) {
  const rows = top.some(([other]) => other === text) ? top : [[text, logprob], ...top];
  const made = rows.map(([other, value]) => {
    const cells = [visible(other), percent(value), value.toFixed(3)].map((cell) => make("td", {}, cell));
    return make("tr", { className: other === text ? "taken" : "" }, ...cells);
  });
  return make("table", {}, make("tbody", {}, ...made));
}

function hideHover() {
  at("hover").hidden = true;
  document.querySelector(".token.chosen")?.classList.remove("chosen");
}

function hover(span, token) {
  hideHover();
  const box = at("hover");
  span.classList.add("chosen");
  box.replaceChildren(likelyTable(token));
  box.hidden = false;
  const place = span.getClientRects()[0] || span.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const below = place.bottom + 6;
  box.style.left = `${Math.max(8, Math.min(place.left, innerWidth - width - 8))}px`;
  box.style.top = `${below + height < innerHeight ? below : Math.max(8, place.top - height - 6)}px`;
}

function tokenView(tokens) {
  const spans = tokens.map(tokenSpan);
  const label = "Tokens; the arrow keys go from one to the next";
  const view = make("div", { className: "tokens", tabIndex: 0, ariaLabel: label }, ...spans);
  view.addEventListener("pointerover", ({ target }) => {
    const place = spans.indexOf(target);
    if (place >= 0) hover(target, tokens[place]);
  });
  view.addEventListener("pointerleave", hideHover);
  view.addEventListener("blur", hideHover);
  view.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined || !spans.length) return;
    event.preventDefault();
    const before = spans.findIndex((span) => span.classList.contains("chosen"));
    const place = Math.max(0, Math.min(before + step, spans.length - 1));
    hover(spans[place], tokens[place]);
  });
  return view;
}
