// Keeps the page for when there is no network, and shows what waits while it is closed. What the daemon says is never
// kept.

const SHELL = ["/phone", "/phone/phone.css", "/phone/phone.js", "/phone/icon.svg", "/phone/manifest.json"];
const KEPT = "svc-phone";

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((kept) => kept.addAll(SHELL)).then(() => skipWaiting()));
});
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { pathname } = new URL(event.request.url);
  if (event.request.method !== "GET" || !SHELL.includes(pathname)) return;
  const fresh = async () => {
    const response = await fetch(event.request);
    if (response.ok) (await caches.open(KEPT)).put(pathname, response.clone());
    return response;
  };
  event.respondWith(fresh().catch(() => caches.match(pathname)));
});

// Who asks, and how much more waits; what is asked stands on the card alone. A browser asks for a notice for each message,
// whatever stands in it. One of the same thing takes the place of the one before.
addEventListener("push", (event) => {
  let said = {};
  try {
    said = event.data.json() ?? {};
  } catch {}
  const { id = "svc", title = "Something waits for you", project, more } = said;
  const body = [project, more && `${more} more wait${more > 1 ? "" : "s"}`].filter(Boolean).join(" · ");
  const told = { body, tag: id, data: id, icon: "/phone/icon.svg" };
  event.waitUntil(registration.showNotification(String(title), told));
});
addEventListener("notificationclick", (event) => {
  const id = event.notification.data ?? "";
  event.notification.close();
  const show = async () => {
    const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
    const page = pages.find((one) => new URL(one.url).pathname === "/phone");
    if (!page) return clients.openWindow(`/phone#${id}`);
    page.postMessage({ open: id });
    return page.focus();
  };
  event.waitUntil(show());
});
