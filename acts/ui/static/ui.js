// What a page gains by a script: it follows what happens, keys move through it, a form is checked as one types.
// Nothing here decides: that is done by the forms, which work without it.
"use strict";

const main = document.getElementById("live");
let rows = -1, waiting = null, source = null;

async function refresh() {
  waiting = null;
  const answer = await fetch(main.dataset.subject ? document.querySelector("#stale a").href : location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  if (!fresh) return;
  if (!fresh.dataset.live) source.close(); // the run has ended
  if (main.dataset.subject) { // a card: what somebody reads, or writes, does not change under their hands
    if (fresh.dataset.subject === main.dataset.subject) return;
    document.getElementById("stale").hidden = false;
    main.querySelectorAll(".decide button").forEach((button) => { button.disabled = true; });
    return;
  }
  if (fresh.dataset.subject) return location.reload(); // it waits again
  if (main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
  const open = [...main.querySelectorAll("details")].map((part) => part.open);
  const here = listed().map(target)[rows];
  main.replaceChildren(...fresh.childNodes);
  rows = here ? listed().map(target).indexOf(here) : -1;
  main.querySelectorAll("details").forEach((part, at) => { part.open = open[at] || false; });
  mark();
}

if (main.dataset.live) {
  source = new EventSource(main.dataset.live);
  source.onerror = () => { document.getElementById("gone").hidden = source.readyState !== EventSource.CLOSED; };
  source.onmessage = (event) => { if (event.data !== main.dataset.now) waiting = waiting || setTimeout(refresh, 700 + 1500 * Math.random()); }; // 200 viewers do not come at once
}

const listed = () => [...main.querySelectorAll("[data-row]")];
const target = (row) => row.querySelector("a").getAttribute("href");

function mark() {
  listed().forEach((row, at) => row.classList.toggle("here", at === rows));
  const row = listed()[rows];
  if (row) { row.querySelector("a").focus(); row.scrollIntoView({ block: "nearest" }); }
}

function act(key) { // on a card: to the button, which Enter presses; in the inbox: to the card, to be read before it is approved
  const id = { a: "approve", r: "reason", e: "change" }[key];
  const part = document.getElementById(id);
  if (part) { part.focus(); if (key === "e") part.click(); return true; }
  const row = listed()[rows];
  if (row) location.href = target(row) + (key === "a" ? "" : `#${id}`);
  return Boolean(row);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (event.key === "j" || event.key === "k") {
    rows = Math.max(0, Math.min(listed().length - 1, rows + (event.key === "j" ? 1 : -1)));
    mark();
  } else if (!"are".includes(event.key) || !act(event.key)) return;
  event.preventDefault();
});

if (location.hash.length > 1) {
  const part = document.getElementById(location.hash.slice(1));
  if (part && part.id === "change") location.replace(part.href); // "back" leads to the inbox
  else if (part) part.focus();
}

document.addEventListener("click", (event) => { // a rejection, or a question, needs words
  const needs = event.target.dataset && event.target.dataset.needs;
  const field = needs && document.getElementById(needs);
  if (field && !field.value.trim()) { event.preventDefault(); field.focus(); field.placeholder = "Say why, please"; }
});

const form = document.querySelector("form[data-check]");
if (form) {
  let timer = null;
  const check = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const data = new FormData(form);
      data.set("step", "check");
      const answer = await fetch("/change", { method: "POST", body: data });
      if (!answer.ok) return;
      const list = document.getElementById("problems"), notes = [...form.querySelectorAll("[data-of]")];
      let rest = (await answer.json()).problems;
      for (const note of notes) { // each beside its field
        const isOwn = (text) => text.split(/: |\//, 1)[0] === note.dataset.of;
        note.textContent = rest.filter(isOwn).join("; ");
        rest = rest.filter((text) => !isOwn(text));
      }
      list.replaceChildren(...rest.map((text) => { const item = document.createElement("li"); item.textContent = text; return item; }));
      list.hidden = rest.length === 0;
    }, 400);
  };
  form.addEventListener("input", check);
  if ([...form.elements].some((part) => part.value !== (part.defaultValue ?? part.value))) check(); // typed before the script came
}
