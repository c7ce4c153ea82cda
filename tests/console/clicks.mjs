// Clicks through the console as a person would, against a daemon, a marketplace and real rehearsed agents.

import { runAll } from "./lib.mjs";
import { browser, daemon, market, scenarios } from "./clicks-world.mjs";
import "./clicks-agents.mjs";
import "./clicks-queue.mjs";
import "./clicks-start.mjs";
import "./clicks-daily.mjs";
import "./clicks-reading.mjs";
import "./clicks-review.mjs";
import "./clicks-notices.mjs";
import "./clicks-places.mjs";
import "./clicks-connection.mjs";

await daemon.start();
const failed = await runAll(scenarios, browser, daemon);
await browser.close();
await daemon.remove();
await market.stop();
// At once: a browser's helper process may hold on to a pipe for long.
process.exit(failed);
