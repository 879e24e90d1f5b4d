"use strict";
// Answers as elements: marked reads the markdown, DOMPurify keeps plain elements of what it makes.
// HTML in an answer is shown as it is written, and a picture is a link: nothing is fetched.

const escaped = (text) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

const markdown = new marked.Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
});

const PLAIN = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul", "#text"],
  ALLOWED_ATTR: ["href", "title", "start"],
  ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// A fragment of plain elements, whatever the HTML.
function purified(html) {
  const fragment = DOMPurify.sanitize(html, PLAIN);
  for (const link of fragment.querySelectorAll("a[href]")) {
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  }
  return fragment;
}

function addCopyButton(block) {
  const button = make("button", { className: "copy", type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    const copied = await navigator.clipboard.writeText(block.textContent).then(() => true, () => false);
    button.textContent = copied ? "Copied" : "Not allowed";
  });
  const frame = make("div", { className: "code" });
  block.replaceWith(frame);
  frame.append(block, button);
}

// The elements of a text; buttons stand beside code that is complete.
function written(text, complete) {
  const fragment = purified(markdown.parse(text));
  if (complete) {
    for (const block of fragment.querySelectorAll("pre")) addCopyButton(block);
  }
  return fragment;
}
