// What was used within a range and on each day, from the snapshots of the counters that the daemon keeps.

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** Of less time than this no pace is told. */
const PACE_MS = 600_000;
const DAYS_SHOWN = 14;
const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** Hours, and what they are called. */
export const RANGES = [
  ["", "All that is kept"],
  ["168", "Last 7 days"],
  ["24", "Last 24 hours"],
  ["1", "Last hour"],
];

/** The snapshots, and the present last. */
export function history(snapshots, tokens, cost, unpriced) {
  const points = snapshots.map((one) => ({
    time: Date.parse(one.timestamp),
    tokens: one.tokensUsed,
    cost: one.costUsd ?? 0,
    unpriced: one.unpricedTokens ?? 0,
  }));
  if (points.length) points.push({ time: Date.now(), tokens, cost, unpriced });
  return points;
}

/** The points of the last `hours`, as what was used since those began; without hours all, as they are. */
export function within(points, hours) {
  if (!hours || !points.length) return points;
  const from = Date.now() - hours * HOUR_MS;
  const at = points.findIndex(({ time }) => time >= from);
  // The counters stood still between two snapshots, or nearly so.
  const before = at > 0 ? { ...points[at - 1], time: from } : points[0];
  return [before, ...points.slice(Math.max(1, at))].map(({ time, tokens, cost }) => ({
    time,
    tokens: tokens - before.tokens,
    cost: cost - before.cost,
  }));
}

/** What was used of `key` from the first point to the last, in words, and in an hour of that time. */
export function spent(points, key, words) {
  const first = points[0];
  const last = points[points.length - 1];
  const used = last[key] - first[key];
  const ms = last.time - first.time;
  return ms < PACE_MS ? words(used) : `${words(used)}, ${words((used * HOUR_MS) / ms)} an hour`;
}

/** `[day, tokens, cost, tokens without a price]` of the last days on which something was used, the latest first. */
export function daily(points) {
  const days = new Map();
  for (let at = 1; at < points.length; at += 1) {
    const name = day.format(points[at].time);
    const sum = days.get(name) ?? [name, 0, 0, 0];
    sum[1] += points[at].tokens - points[at - 1].tokens;
    sum[2] += points[at].cost - points[at - 1].cost;
    sum[3] += Math.max(0, points[at].unpriced - points[at - 1].unpriced);
    days.set(name, sum);
  }
  return [...days.values()]
    .filter(([, tokens]) => tokens > 0)
    .reverse()
    .slice(0, DAYS_SHOWN);
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/**
 * What is to be expected of the budget of a day, which ends at midnight UTC: the share that is used, a sentence
 * by the pace of the last hour, and how loud that is.
 */
export function forecast(points, cost, words, now = Date.now()) {
  const { todayUsd: used, dailyBudgetUsd: budget } = cost;
  if (!budget) return { share: 0, kind: "", text: "No budget is set: nothing ends by what it costs." };
  const share = used / budget;
  const mark = [1, 0.8, 0.5].find((one) => share >= one);
  const begins = mark ? `${Math.round(share * 100)} % of today's budget of ${words(budget)} are used. ` : "";
  const kind = !mark ? "" : mark === 0.5 ? "half" : mark === 0.8 ? "warn" : "bad";
  const last = within(points, 1);
  const ms = last.length > 1 ? last.at(-1).time - last[0].time : 0;
  const hourly = ms < PACE_MS ? 0 : ((last.at(-1).cost - last[0].cost) * HOUR_MS) / ms;
  const midnight = new Date(now).setUTCHours(24, 0, 0, 0);
  // To the nearest minute: a moment before three is "about 15:00", not 14:59.
  const at = Math.round((now + ((budget - used) / hourly) * HOUR_MS) / MINUTE_MS) * MINUTE_MS;
  let text = "Of the last hour no pace is known.";
  if (share >= 1) text = "Nothing new starts before midnight UTC.";
  else if (hourly > 0 && at < midnight)
    text = `At the pace of the last hour, ${words(hourly)} an hour, it is spent at about ${clock.format(at)}.`;
  else if (hourly > 0)
    text = `At the pace of the last hour, ${words(hourly)} an hour, ${words(used + (hourly * (midnight - now)) / HOUR_MS)} are used by midnight UTC: it lasts.`;
  else if (ms >= PACE_MS) text = "In the last hour nothing was used.";
  return { share, kind, text: begins + text };
}
