"use strict";
// What the browser keeps: the conversation and the settings. The key is never kept.

const KEPT = "graphgen.chat";
const FIELDS = ["served", "tokens", "temperature", "system"];

const isMessage = (found) =>
  (found?.role === "user" || found?.role === "assistant") && typeof found.content === "string";

// Messages and settings of the last visit; what is not of this form is passed over.
function readKept() {
  try {
    const { messages = [], settings } = JSON.parse(localStorage.getItem(KEPT)) || {};
    return { messages: messages.every(isMessage) ? messages : [], settings: settings || {} };
  } catch {
    return { messages: [], settings: {} };
  }
}

function keptSettings() {
  const values = Object.fromEntries(FIELDS.map((id) => [id, at(id).value]));
  // The list of models may not have come yet.
  return { ...values, served: values.served || readKept().settings.served, logprobs: at("logprobs").checked };
}

function showSettings(settings) {
  for (const id of FIELDS) if (typeof settings[id] === "string") at(id).value = settings[id];
  if (typeof settings.logprobs === "boolean") at("logprobs").checked = settings.logprobs;
}

// Whether the conversation is kept; where the store has no room, without the tokens.
function keep(messages) {
  const settings = keptSettings();
  for (const kept of [messages, messages.map(({ tokens, ...message }) => message)]) {
    try {
      localStorage.setItem(KEPT, JSON.stringify({ messages: kept, settings }));
      return true;
    } catch {
      // Full, or switched off.
    }
  }
  return false;
}
