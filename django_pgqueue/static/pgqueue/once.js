// A double click, or another one while the answer is on its way, sends a form once: it would do the same twice.
"use strict";

(() => {
  const AGAIN_MS = 10000;
  // The action of a list may be one of the project's own, whose answer is a file: the page stays, and is used again.
  const OF_A_LIST_MS = 1000;
  const sent = new WeakMap();

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) {
      return;
    }
    const again = form.id === "changelist-form" ? OF_A_LIST_MS : AGAIN_MS;
    if (event.timeStamp - (sent.get(form) ?? -Infinity) < again) {
      event.preventDefault();
    } else {
      sent.set(form, event.timeStamp);
    }
  });
})();
