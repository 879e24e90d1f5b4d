"use strict";
// The conversation: what is typed goes to the server, and the answer is shown as it comes.

const at = (id) => document.getElementById(id);
const ENDS = {
  length: "cut at the limit: Settings has the number of tokens",
  tool_calls: "the answer calls a tool",
};
let messages = [];
let running = null;

// An error that the reader is told in its own words.
class Told extends Error {}

async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Told("The connection to the server broke off: it may have ended. Your message is below; send it again.");
  }
}

async function ask(path, options = {}) {
  const key = at("key").value;
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  return reached(fetch(path, { ...options, headers }));
}

async function failure(response) {
  let said = `The server answers with status ${response.status}`;
  try {
    said = (await response.json()).error.message;
  } catch {
    // A proxy's page, perhaps: the status is all that is known.
  }
  const more = response.status === 401 ? ". Settings has a field for the key" : "";
  return new Told(said + more);
}

async function findModels() {
  const response = await ask("v1/models");
  if (!response.ok) throw await failure(response);
  const { data } = await response.json();
  const chosen = at("served").value || readKept().settings.served;
  const options = data.map(({ id, parent }) => new Option(parent ? `${id} (adapter)` : id, id));
  at("served").replaceChildren(...options);
  if (data.some(({ id }) => id === chosen)) at("served").value = chosen;
  at("model").textContent = at("served").value;
}

async function warmUp() {
  while (!(await ask("ready")).ok) {
    at("state").textContent = "The server warms up";
    await new Promise((done) => setTimeout(done, 1000));
  }
  at("state").textContent = "";
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done) throw new Told("The answer broke off: the server has closed the connection.");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

function asked() {
  const system = at("system").value.trim();
  const turns = messages.map(({ role, content, reasoning }) =>
    ({ role, content, ...(reasoning && { reasoning_content: reasoning }) }));
  return {
    model: at("served").value,
    messages: system ? [{ role: "system", content: system }, ...turns] : turns,
    stream: true,
    max_tokens: Number(at("tokens").value),
    temperature: Number(at("temperature").value),
    ...(at("logprobs").checked && { logprobs: true, top_logprobs: 5 }),
  };
}

async function openAnswer(signal) {
  const response = await ask("v1/chat/completions", { method: "POST", signal, body: JSON.stringify(asked()) });
  if (response.ok) return response;
  const error = await failure(response);
  if (!at("logprobs").checked || !/^(top_)?logprobs /.test(error.message)) throw error;
  // A model that samples on the device gives none.
  at("logprobs").checked = false;
  return openAnswer(signal);
}

function describe({ tokens, begun, first, end }) {
  const seconds = (performance.now() - first) / 1000;
  const speed = tokens > 1 && seconds > 0 ? `, ${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  const wait = `, first after ${((first - begun) / 1000).toFixed(2)} s`;
  at("state").textContent = `${plural(tokens, "token")}${speed}${wait}${end ? `, end: ${ENDS[end] || end}` : ""}`;
}

// Takes the answer's events into a message, and calls `changed` after each.
async function readAnswer(message, signal, changed) {
  const facts = { tokens: 0, begun: performance.now(), first: 0, end: "" };
  const response = await openAnswer(signal);
  for await (const event of eventsOf(response.body)) {
    if (event.error) throw new Told(event.error.message);
    const choice = event.choices[0];
    if (!choice) continue;
    const listed = (choice.logprobs?.content || []).map(keptToken);
    message.tokens.push(...listed);
    message.content += choice.delta.content || "";
    message.reasoning += choice.delta.reasoning_content || "";
    if (choice.delta.content || choice.delta.reasoning_content || listed.length) {
      facts.first ||= performance.now();
      facts.tokens += listed.length || 1;
    }
    facts.end = choice.finish_reason || facts.end;
    describe({ ...facts, first: facts.first || performance.now() });
    changed();
  }
}

function thought(text) {
  const made = make("details", { className: "thought" }, make("summary", {}, "Reasoning"));
  made.append(make("div", {}, text));
  return made;
}

function tokenButton(message, text) {
  const button = make("button", { type: "button", ariaPressed: "false" }, "Tokens");
  button.addEventListener("click", () => {
    const shows = button.ariaPressed === "false";
    button.ariaPressed = String(shows);
    hideHover();
    if (shows) text.replaceChildren(tokenView(message.tokens));
    else text.replaceChildren(written(message.content, true));
  });
  return make("div", { className: "below" }, button);
}

// Fills the element of an answer with what is known of it.
function fill(element, message, complete, error) {
  const open = element.querySelector(".thought")?.open;
  const text = make("div", { className: "written" });
  text.append(written(message.content, complete));
  element.replaceChildren(text);
  if (message.reasoning) element.prepend(Object.assign(thought(message.reasoning), { open }));
  if (complete && message.tokens?.length) element.append(tokenButton(message, text));
  if (error) element.append(make("p", { className: "failure", role: "alert" }, error));
}

function showMessage(message) {
  const element = make("article", { className: `message ${message.role}` });
  if (message.role === "user") element.textContent = message.content;
  else fill(element, message, true);
  at("talk").append(element);
  return element;
}

// Draws at most once a frame, and follows the answer unless the reader has scrolled away from it.
function drawer(element, message) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      if (!running) return;
      const talk = at("talk");
      const follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60;
      fill(element, message, false);
      if (follows) talk.scrollTop = talk.scrollHeight;
    });
  };
}

function busy(controller) {
  running = controller;
  at("send").hidden = controller !== null;
  at("stop").hidden = controller === null;
}

// The reason in words; none for an answer that the reader has stopped.
function reason(error) {
  if (error.name === "AbortError") return "";
  return error instanceof Told ? error.message : `This page failed: ${error.message}`;
}

function end(element, message, error) {
  const stopped = error && !reason(error);
  const answered = message.content || message.reasoning;
  if (stopped) at("state").textContent = "Stopped";
  if (error && !(stopped && answered)) {
    // What is not answered is not part of the conversation, and may be sent again.
    const { content } = messages.pop();
    at("text").value ||= content;
  } else {
    messages.push(message);
  }
  fill(element, message, true, error && reason(error));
  at("talk").scrollTop = at("talk").scrollHeight;
  if (!keep(messages)) at("state").textContent += " (the browser does not keep this conversation)";
}

async function send(text) {
  const controller = new AbortController();
  busy(controller);
  at("state").textContent = "";
  const turn = { role: "user", content: text };
  messages.push(turn);
  showMessage(turn);
  const message = { role: "assistant", content: "", reasoning: "", tokens: [] };
  const element = showMessage(message);
  at("talk").scrollTop = at("talk").scrollHeight;
  let failed;
  try {
    if (!at("served").value) await findModels();
    await readAnswer(message, controller.signal, drawer(element, message));
  } catch (error) {
    failed = error;
  }
  // Another conversation may have begun meanwhile.
  if (running !== controller) return;
  busy(null);
  end(element, message, failed);
}

function clear() {
  running?.abort();
  busy(null);
  messages = [];
  at("talk").replaceChildren();
  at("state").textContent = "";
  hideHover();
  keep(messages);
  at("text").focus();
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text || running) return;
  at("text").value = "";
  send(text);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", clear);
at("talk").addEventListener("scroll", hideHover);
at("settings").addEventListener("change", () => keep(messages));
at("served").addEventListener("change", () => { at("model").textContent = at("served").value; });
at("key").addEventListener("change", () => begin());

function begin() {
  return findModels().then(warmUp).catch((error) => { at("state").textContent = reason(error); });
}

const kept = readKept();
showSettings(kept.settings);
messages = kept.messages;
messages.forEach(showMessage);
at("talk").scrollTop = at("talk").scrollHeight;
begin();
