// Keep the order's progress up to date: ask again as soon as the answer says that it is worth it.
const progress = document.getElementById("progress");
const news = document.getElementById("news");

function askAgain(waitMs) {
  if (waitMs) setTimeout(ask, waitMs);
}

async function ask() {
  let waitMs = 3000; // when the shop does not answer, for example while it restarts
  try {
    const response = await fetch(progress.dataset.url, { headers: { Accept: "application/json" } });
    if (response.ok) {
      const answer = await response.json();
      waitMs = answer.wait_ms;
      show(answer);
    }
  } catch (error) {
    console.warn("The shop does not answer:", error);
  }
  askAgain(waitMs);
}

let shown = "";

// Replace nothing that has not changed: it would take the focus away. Who listens instead of looking hears the news only.
function show({ html, jobs }) {
  if (html === shown) return;
  progress.innerHTML = shown = html;
  news.textContent = jobs.map(([label, status]) => `${label}: ${status}.`).join(" ");
}

askAgain(Number(progress.dataset.waitMs));
