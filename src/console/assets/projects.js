// The page at the door: each project is asked for itself, with its own rules.
async function ask(el) {
  try {
    const { running, waiting } = await (await fetch(`/p/${el.dataset.name}/api/status`)).json();
    el.textContent = running === undefined ? "locked" : `${running} at work, ${waiting} to decide`;
  } catch {
    el.textContent = "no answer";
  }
}
async function all() {
  await Promise.all([...document.querySelectorAll("[data-name]")].map(ask));
  setTimeout(all, 3000);
}
all();
