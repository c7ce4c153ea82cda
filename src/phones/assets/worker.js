// Keeps the page for when there is no network. What the daemon says is never kept.

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
