// Keeps a page as it is now, and copies commands. A page works without it: it is only older then.
"use strict";

const gone = document.getElementById("gone");
document.querySelector("nav [aria-current]")?.scrollIntoView({inline: "nearest", block: "nearest"});
let tag = "", waiting = false, last = new Date();

function isBusy() { // somebody fills a form in, marks a text, or has scrolled within a table
  const at = document.activeElement;
  return (at && at.closest("main") && /^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test(at.tagName)) ||
    String(document.getSelection()) !== "" ||
    document.querySelector("main form[method=post]") !== null;
}

async function renew() {
  if (waiting || document.hidden || isBusy()) return;
  waiting = true;
  try {
    const answer = await fetch(location.href, {headers: tag ? {"If-None-Match": tag} : {}, redirect: "error"});
    if (answer.status === 401) { location.reload(); return; }
    last = new Date();
    gone.hidden = true;
    if (answer.status === 304 || !answer.ok) return;
    tag = answer.headers.get("etag") || "";
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.getElementById("main"), fresh = page.getElementById("main");
    if (isBusy() || !fresh || fresh.innerHTML === main.innerHTML) return;
    const link = document.activeElement && document.activeElement.getAttribute("href");
    const across = [...main.querySelectorAll(".wide, pre")].map(one => [one.scrollLeft, one.scrollTop]);
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll(".wide, pre").forEach((one, i) => across[i] && one.scrollTo(...across[i]));
    if (link) { // the keyboard stays where it was
      const again = [...main.querySelectorAll("a")].find(one => one.getAttribute("href") === link);
      if (again) again.focus({preventScroll: true});
    }
  } catch {
    say();
  } finally {
    waiting = false;
  }
}

function say() {
  gone.querySelector("span").textContent = last.toLocaleTimeString();
  gone.hidden = false;
}

document.addEventListener("click", async event => {
  const text = event.target.dataset && event.target.dataset.copy;
  if (!text) return;
  await navigator.clipboard.writeText(text);
  event.target.textContent = "Copied";
});

if (document.querySelector("header form")) {
  let events = null;
  const listen = () => {
    if (document.hidden) { if (events) events.close(); events = null; return; }
    if (events) return;
    events = new EventSource(document.body.dataset.events);
    events.addEventListener("look", renew);
    events.onerror = () => {
      say();
      if (events.readyState !== EventSource.CLOSED) return; // it tries again by itself
      events = null;
      setTimeout(() => { renew(); listen(); }, 2000);
    };
  };
  document.addEventListener("visibilitychange", listen);
  listen();
}
