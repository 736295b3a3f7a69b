// A double click, or another one while the answer is on its way, sends a form once: it would enqueue the same jobs again.
"use strict";

(() => {
  const AGAIN_MS = 10000;
  const sent = new WeakMap();

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) {
      return;
    }
    if (event.timeStamp - (sent.get(form) ?? -Infinity) < AGAIN_MS) {
      event.preventDefault();
    } else {
      sent.set(form, event.timeStamp);
    }
  });
})();
