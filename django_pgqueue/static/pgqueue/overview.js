/* Asks for the numbers again while somebody looks: not while the tab is hidden, nor when it was told to stop. */
"use strict";
(() => {
  const live = document.getElementById("pgqueue-live");
  const button = document.getElementById("pgqueue-live-switch");
  const state = document.getElementById("pgqueue-live-state");
  if (!live || !button) {
    return;
  }
  const LEAST_MS = 5000;
  // The page may not keep the database busy for more than a twentieth of the time.
  const SHARE = 20;
  let timer = null;
  let asked = null;
  let stopped = false;
  let wait = LEAST_MS;

  const say = (text) => {
    if (state.textContent !== text) {
      state.textContent = text;
    }
  };

  function show(html) {
    const focused = live.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const scroller = live.querySelector(".pgqueue-scroll");
    const left = scroller ? scroller.scrollLeft : 0;
    live.innerHTML = html;
    if (scroller && left) {
      live.querySelector(".pgqueue-scroll").scrollLeft = left;
    }
    const again = focused && live.querySelector(`[data-key="${focused}"]`);
    if (again) {
      again.focus({ preventScroll: true });
    }
  }

  async function look() {
    plan(null);
    asked = new AbortController();
    try {
      const answer = await fetch(live.dataset.url, { signal: asked.signal, headers: { Accept: "application/json" } });
      if (answer.redirected || answer.status === 403) {
        say(live.dataset.refused);
        return;
      }
      const told = await answer.json();
      if (told.html === undefined) {
        throw new Error(told.problem);
      }
      show(told.html);
      say("");
      wait = Math.max(LEAST_MS, SHARE * told.took_ms);
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      say(live.dataset.failed);
      wait = Math.min(60000, wait * 2);
    }
    plan(wait);
  }

  function plan(ms) {
    clearTimeout(timer);
    timer = ms === null || stopped || document.hidden ? null : setTimeout(look, ms);
  }

  // What is on its way is not waited for: it would overwrite what was said since.
  function leave() {
    plan(null);
    if (asked) {
      asked.abort();
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      leave();
    } else if (!stopped) {
      look();
    }
  });

  button.addEventListener("click", () => {
    stopped = !stopped;
    button.setAttribute("aria-pressed", String(stopped));
    say(stopped ? live.dataset.stopped : "");
    if (stopped) {
      leave();
    } else {
      look();
    }
  });

  button.hidden = false;
  plan(LEAST_MS);
})();
