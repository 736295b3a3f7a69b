/* Asks for the numbers again while somebody looks: not while the tab is hidden, nor while rows are selected, nor when it
   was told to stop.  On the page of a row only the fields change that nobody can edit. */
"use strict";
(() => {
  // On a narrow screen a row is a card, in which each cell says the name of its column.
  const heads = [...document.querySelectorAll("#result_list thead th")].map((head) => head.textContent.trim());
  const name = (row) => [...row.cells].forEach((cell, place) => cell.setAttribute("data-label", heads[place]));
  document.querySelectorAll("#result_list tbody tr").forEach(name);

  const live = document.getElementById("pgqueue-live");
  const head = document.querySelector("#result_list thead tr");
  if (live && head && head.querySelector(".sortable")) {
    head.setAttribute("data-label", live.dataset.sort);
  }
  const button = document.getElementById("pgqueue-live-switch");
  const state = document.getElementById("pgqueue-live-state");
  if (!live || !button) {
    return;
  }
  const LEAST_MS = 5000;
  // A site that hangs gives no answer, and the browser waits for minutes: old numbers would look like new ones.
  const MOST_MS = 30000;
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

  const selected = () => document.querySelector("#result_list .action-select:checked") !== null;

  function show(told) {
    if (told.html !== undefined) {
      replace(told.html);
      say("");
    } else if (told.page !== undefined) {
      const changed = refresh(new DOMParser().parseFromString(told.page, "text/html"));
      say(changed ? live.dataset.changed.replace("{count}", changed) : "");
    } else if (selected()) {
      say(live.dataset.selected);
    } else {
      const changed = update(told.rows);
      say(changed ? live.dataset.changed.replace("{count}", changed) : "");
      offer(told.fresh ? live.dataset.fresh.replace("{count}", told.fresh) : "");
    }
  }

  // The rows that the list shows, in its order; null has left the table.  Returns how many changed in words.
  function update(rows) {
    let changed = 0;
    const shown = document.querySelectorAll("#result_list tbody tr");
    rows.forEach((cells, place) => {
      const row = shown[place];
      if (!row || row.classList.contains("pgqueue-gone")) {
        return;
      }
      const before = words(row);
      if (cells === null) {
        leaveBehind(row);
      } else {
        const fresh = document.createElement("tr");
        fresh.innerHTML = cells.join("");
        name(fresh);
        [...fresh.cells].forEach((cell, number) => put(cell, row.cells[number]));
      }
      changed += words(row) !== before;
    });
    return changed;
  }

  // The page as it is now.  Returns how many fields changed in words.
  function refresh(page) {
    let changed = 0;
    const [before, now] = [fields(document), fields(page)];
    before.forEach((old, name) => {
      const field = now.get(name);
      if (!field || chosen(old)) {
        return;
      }
      keep(old, field);
      changed += words(old) !== words(field);
      put(field, old);
    });
    // Such as a form that nobody may send any more: it stays until somebody wants the new one.
    const same = String([...before.keys()]) === String([...now.keys()]) && actions(document) === actions(page);
    offer(same ? "" : live.dataset.different);
    return changed;
  }

  function fields(page) {
    const found = new Map();
    page.querySelectorAll(".form-row .readonly").forEach((field) => {
      const name = [...field.closest("[class*='field-']").classList].find((one) => one.startsWith("field-"));
      found.set(name, field);
    });
    return found;
  }

  const actions = (page) => [...page.querySelectorAll(".pgqueue-buttons button")].map((one) => one.getAttribute("form")).join();

  // Somebody copies from it.
  function chosen(field) {
    const selection = document.getSelection();
    return !selection.isCollapsed && field.contains(selection.anchorNode);
  }

  // What is folded out stays so.
  function keep(old, field) {
    const folds = field.querySelectorAll("details");
    old.querySelectorAll("details").forEach((fold, place) => {
      if (folds[place]) {
        folds[place].open = fold.open;
      }
    });
  }

  // What changed in its numbers alone, such as "in 5 min", is shown, and not said.
  const words = (row) => row.textContent.replace(/\d+/g, "");

  function put(cell, old) {
    if (!old || old.isEqualNode(cell)) {
      return;
    }
    const what = "a, summary";
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = [...old.querySelectorAll(what)].indexOf(focused);
    old.replaceWith(cell);
    const found = [...cell.querySelectorAll(what)];
    const again = focused && (found.find((one) => focused.href && one.href === focused.href) || found[place]);
    if (again) {
      again.focus({ preventScroll: true });
    }
  }

  function leaveBehind(row) {
    row.classList.add("pgqueue-gone");
    const label = document.createElement("span");
    label.className = "pgqueue-label pgqueue-grey";
    label.textContent = live.dataset.gone;
    const box = row.querySelector(".action-select");
    if (box) {
      box.disabled = true;
    }
    const cell = row.querySelector(".field-status, .field-state") || row.cells[row.cells.length - 1];
    cell.replaceChildren(label);
  }

  function offer(text, address = "") {
    const link = document.getElementById("pgqueue-live-fresh");
    link.hidden = !text;
    link.setAttribute("href", address);
    if (link.textContent !== text) {
      link.textContent = text;
    }
  }

  function replace(html) {
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
    if (selected()) {
      say(live.dataset.selected);
      plan(LEAST_MS);
      return;
    }
    const asking = (asked = new AbortController());
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      asking.abort();
    }, MOST_MS);
    try {
      const answer = await fetch(live.dataset.url, { signal: asked.signal, headers: { Accept: "application/json" } });
      if (answer.redirected || answer.status === 403) {
        say(live.dataset.refused);
        return;
      }
      const told = await answer.json();
      if (told.problem !== undefined) {
        throw new Error(told.problem);
      }
      if (told.gone !== undefined) {
        say("");
        offer(live.dataset.left, told.gone);
        return;
      }
      show(told);
      wait = Math.max(LEAST_MS, SHARE * told.took_ms);
    } catch (error) {
      if (error.name === "AbortError" && !isLate) {
        return;
      }
      say(live.dataset.failed);
      wait = Math.min(60000, wait * 2);
    } finally {
      clearTimeout(late);
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
