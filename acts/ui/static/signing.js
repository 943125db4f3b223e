// Decisions signed with an approver's own key (docs/security.md, "From a program of your own"). The browser keeps the key where no
// script can read it, this one included; it signs nothing but the subject whose text has the digest that is named.
"use strict";

const panel = document.getElementById("signing");
const file = document.getElementById("key"), signer = document.getElementById("signer");
const forget = document.getElementById("forget"), said = document.getElementById("said");
const ALGORITHM = { name: "Ed25519" };
let key = null;

const say = (text) => { said.textContent = text; };
const encode = (text) => new TextEncoder().encode(text);
const digest = async (text) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", encode(text)))]
  .map((byte) => byte.toString(16).padStart(2, "0")).join("");

function canonical(value) { // RFC 8785, which takes its order and its numbers from JavaScript
  if (typeof value === "number" && Math.abs(value) >= 2 ** 53) throw new Error("a number is too large for a browser");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`;
}

function kept(mode, action) { // what the browser keeps for this address
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("acts", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const asking = action(opening.result.transaction("keys", mode).objectStore("keys"));
      asking.onsuccess = () => { opening.result.close(); resolve(asking.result); };
      asking.onerror = () => reject(asking.error);
    };
  });
}

const change = (action) => kept("readwrite", action).catch(() => {}); // where nothing is kept, the page has the key until it is left
const keep = () => change((store) => store.put({ key, name: signer.value }, "approver"));

function show() {
  file.parentElement.hidden = key !== null;
  signer.parentElement.hidden = forget.hidden = key === null;
}

file.addEventListener("change", async () => {
  const text = await file.files[0].text(), name = file.files[0].name;
  file.value = "";
  try {
    const body = /^-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----\s*$/.exec(text)[1];
    const der = Uint8Array.from(atob(body.replace(/\s/g, "")), (one) => one.charCodeAt(0));
    key = await crypto.subtle.importKey("pkcs8", der, ALGORITHM, false, ["sign"]);
  } catch {
    say(`${name} is no private key of Ed25519 in PEM, without a passphrase, as acts keygen makes them`);
    return;
  }
  signer.value = signer.value || name.replace(/\.[^.]*$/, "");
  say("");
  show();
  await keep();
});
signer.addEventListener("change", keep);
forget.addEventListener("click", async () => {
  key = null;
  show();
  await change((store) => store.delete("approver"));
});

async function post(path, body, headers) {
  const answer = await fetch(path, { method: "POST", body, headers });
  return answer.json();
}

async function contentOf(form, data) { // what is decided besides yes and no, and its digest in the statement
  const path = new URL(form.action).pathname;
  if (path === "/change") {
    const edit = { call: data.get("call"), with: JSON.parse(data.get("new")) };
    return [edit, { edit: await digest(canonical(edit)) }];
  }
  if (path !== "/answer") return [{}, {}];
  data.set("step", "check");
  const { problems, output } = await post(path, data);
  if (problems.length) throw new Error(problems.join("; "));
  return [{ output }, { output: await digest(canonical(output)) }];
}

async function decide(form, word, shown) {
  if (await digest(shown.content) !== shown.subject) throw new Error("what is shown is not what would be signed");
  const data = new FormData(form), [content, digests] = await contentOf(form, data);
  let reason = (data.get("reason") || data.get("note") || "").replace(/\r\n?/g, "\n").trim();
  if (word === "ask") [word, reason] = ["reject", panel.dataset.question + reason];
  const own = { decision: word, by: signer.value.trim(), ...(reason && { reason }) };
  const time = new Date().toISOString();
  const signature = await crypto.subtle.sign(ALGORITHM, key, encode(canonical({ ...shown.statement, ...digests, ...own, time })));
  const value = btoa(String.fromCharCode(...new Uint8Array(signature)));
  const { run, wait, version, subject } = shown;
  const sent = { run, wait, version, subject, ...own, ...content, signature: { time, value } };
  const answer = await post("/api/decide", JSON.stringify(sent), { "X-CSRF-Token": panel.dataset.csrf });
  if (!answer.ok) throw new Error(answer.problem);
}

async function approveMany(form) { // each with a signature of its own
  const boxes = [...form.querySelectorAll("input[name=seen]:checked:enabled")];
  if (form.elements.count.value.trim() !== `${boxes.length}`) throw new Error(`${boxes.length} are ticked, and the number that you typed is another one`);
  let problems = "";
  for (const box of boxes) {
    try {
      await decide(form, "approve", JSON.parse(box.dataset.shown));
      box.disabled = true;
    } catch (error) { problems += ` ${box.getAttribute("aria-label")}: ${error.message}.`; }
  }
  say(`${boxes.filter((box) => box.disabled).length} of ${boxes.length} approved.${problems}`);
}

const forms = document.querySelectorAll("form[data-sign]");
forms.forEach((form) => form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (key === null) { say("Choose your key first"); file.focus(); return; }
  say("");
  const word = form.dataset.sign || event.submitter.value;
  const sent = word === "many" ? approveMany(form)
    : decide(form, word, JSON.parse(panel.dataset.sign)).then(() => location.replace(panel.dataset.card));
  sent.catch((error) => say(`Nothing was sent: ${error.message}`));
}));

(async () => {
  panel.hidden = false;
  try {
    await crypto.subtle.generateKey(ALGORITHM, false, ["sign", "verify"]);
  } catch { // an old browser, or an address without https, which gives pages no keys
    say("This browser cannot sign here: it has no Ed25519, or the page came without https. Sign in a terminal.");
    return;
  }
  const old = await kept("readonly", (store) => store.get("approver")).catch(() => null);
  if (old) { key = old.key; signer.value = old.name; }
  forms.forEach((form) => { form.hidden = false; });
  show();
})();
