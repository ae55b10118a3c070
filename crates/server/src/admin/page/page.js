// The live page: reads /events, keeps what it told in the last minutes, and draws it. Rates are differences between
// events, by the server's clock. Put behind chart.js into one script.

const RECENT_S = 10;
// Events come once a second.
const SILENT_MS = 5000;
const RETRY_MS = 1000;
const NO_FIGURES = "✕ No figures";

// What was told, oldest first: { at, ms, stats, tiers }, and null for a time in which nothing was.
const history = [];
let last = null;

const number = (rows, name) => {
  const value = rows[name];
  return value === null || value === undefined ? null : Number(value);
};

// Begins a gap, over which nothing is known.
const leaveGap = () => {
  if (history.length > 0 && history[history.length - 1] !== null) history.push(null);
};

const remember = (event) => {
  const now = { at: performance.now() / 1000, ms: event.ms, ...event.status, latency: event.latency };
  if (last && (last.stats.pid !== now.stats.pid || last.ms > now.ms)) leaveGap();
  history.push(now);
  const isOld = (sample) => sample === null || sample.at < now.at - KEPT_S - 2;
  while (history.length > 2 * KEPT_S || isOld(history[0])) history.shift();
  last = now;
};

// The growth of `sum` per second between two samples; null where one is missing or counters were set back.
const rate = (before, now, sum) => {
  if (!before || !now || now.ms <= before.ms) return null;
  const grown = sum(now) - sum(before);
  return grown < 0 || Number.isNaN(grown) ? null : (grown / (now.ms - before.ms)) * 1000;
};

// The sample of ten seconds ago, or the oldest behind a gap.
const recent = () => {
  let found = null;
  for (let at = history.length - 2; at >= 0 && history[at]; at -= 1) {
    found = history[at];
    if (last.ms - found.ms >= RECENT_S * 1000) break;
  }
  return found;
};

// A point for each pair of samples: how long ago, and `values` of the pair.
const points = (values) =>
  history.flatMap((now, at) => {
    if (at === 0) return [];
    const ago = last.at - (now ?? history[at - 1]).at;
    const before = history[at - 1];
    return [[ago, now && before ? values(before, now) : null]];
  });

const rates = (sums) => (before, now) => {
  const found = sums.map((sum) => rate(before, now, sum));
  return found.includes(null) ? null : found;
};

const total = (...names) => (sample) => names.reduce((sum, name) => sum + (number(sample.stats, name) ?? 0), 0);
const ofTiers = (...names) => (sample) => names.reduce((sum, name) => sum + (number(sample.tiers, name) ?? 0), 0);

const fromTiers = total("get_extstore");
const hits = total("get_hits");
const misses = total("get_misses");
const REQUESTS = [
  ["Gets", total("cmd_get")],
  ["Sets", total("cmd_set")],
  ["Others", total("cmd_touch", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses")],
];
const EVICTIONS = [
  ["Tiers full", ofTiers("evictions_tier")],
  ["Index without room", ofTiers("evictions_index")],
  ["Dropped from DRAM", ofTiers("evictions_dram")],
];
const TRAFFIC = [
  ["Received", total("bytes_read")],
  ["Sent", total("bytes_written")],
];
const MEMORY = [
  ["Write buffer", "memory_write_buffer"],
  ["Read cache", "memory_read_cache"],
  ["Index of DRAM", "memory_dram_index"],
  ["Index of tiers", "memory_tier_index"],
  ["Page tables", "memory_page_tables"],
  ["Segment table", "memory_segment_table"],
  ["Staging", "memory_staging"],
  ["Connections", "memory_connections"],
  ["Program", "memory_program"],
  ["Free blocks", "memory_free"],
];
// Not of what the cache uses.
const BESIDE = ["Connections", "Program", "Free blocks"];

const names = (rows) => rows.map(([name]) => name);
const sums = (rows) => rows.map(([, sum]) => sum);

const charts = {
  hits: new Chart(byId("hits-chart"), { title: "Gets by what answered them", names: ["DRAM", "Tiers", "Missed"], format: percent, most: 1 }),
  requests: new Chart(byId("requests-chart"), { title: "Requests", names: names(REQUESTS), format: perSecond }),
  evictions: new Chart(byId("evictions-chart"), { title: "Evictions by cause", names: names(EVICTIONS), format: perSecond }),
  traffic: new Chart(byId("traffic-chart"), { title: "Traffic", names: names(TRAFFIC), format: bytesPerSecond, base: 1024, isStacked: false }),
  latency: null,
};
const makeLatency = (names) => new Chart(byId("latency-chart"), { title: "p99 of gets", names, format: nanos, isStacked: false, least: 100 });

const shares = (before, now) => {
  const [hit, tier, missed] = [hits, fromTiers, misses].map((sum) => rate(before, now, sum));
  if (hit === null || tier === null || missed === null || hit + missed === 0) return null;
  // The counts of one event are not of one moment.
  return [Math.max(0, hit - tier), Math.min(hit, tier), missed].map((value) => value / (hit + missed));
};

const drawHits = () => {
  const now = shares(recent(), last);
  put(byId("hit-ratio"), now ? percent(1 - now[2]) : "–");
  charts.hits.draw(points(shares), now ?? [null, null, null]);
  const all = hits(last) + misses(last);
  const since = all > 0 ? percent(hits(last) / all) : "no gets";
  put(byId("hits-note"), `Since the start or stats reset: ${since}${all > 0 ? ` of ${count(all)} gets` : ""}`);
};

const drawRequests = () => {
  const now = sums(REQUESTS).map((sum) => rate(recent(), last, sum));
  put(byId("request-rate"), now.includes(null) ? "–" : count(now.reduce((sum, value) => sum + value, 0)));
  charts.requests.draw(points(rates(sums(REQUESTS))), now);
  const refused = total("store_too_large", "store_no_memory")(last);
  put(byId("requests-note"), `So far ${count(refused)} values were refused, ${count(number(last.tiers, "store_waits"))} stores waited`);
};

const tierNumbers = () => {
  const found = [];
  while (`tier:${found.length}:device` in last.tiers) found.push(found.length);
  return found;
};

const drawLatency = () => {
  const places = ["dram", ...tierNumbers().map(String)];
  const body = byId("latency").tBodies[0];
  if (charts.latency?.series.length !== places.length) {
    byId("latency-chart").replaceChildren();
    charts.latency = makeLatency(places.map((place) => `p99 from ${placeName(place)}`));
  }
  places.forEach((place, at) => {
    if (!body.rows[at]) {
      const row = make("tr", {}, make("th", { scope: "row" }));
      for (let cell = 0; cell < 5; cell += 1) row.append(make("td"));
      body.append(row);
    }
    const { get, set } = last.latency[place];
    put(body.rows[at].cells[0], placeName(place));
    [get.p50, get.p99, get.p999, set.p50, set.p99].forEach((value, cell) => put(body.rows[at].cells[cell + 1], nanos(value)));
  });
  while (body.rows.length > places.length) body.lastChild.remove();
  const p99 = (sample) => places.map((place) => sample.latency[place]?.get.p99 || null);
  charts.latency.draw(points((before, now) => p99(now)), p99(last));
};

const placeName = (place) => (place === "dram" ? "DRAM" : `Tier ${place}`);

const drawEvictions = () => {
  const now = sums(EVICTIONS).map((sum) => rate(recent(), last, sum));
  put(byId("eviction-rate"), now.includes(null) ? "–" : count(now.reduce((sum, value) => sum + value, 0)));
  charts.evictions.draw(points(rates(sums(EVICTIONS))), now);
  const [evicted, unread, expired] = ["evictions", "evicted_unfetched", "reclaimed"].map((name) => number(last.stats, name));
  put(byId("evictions-note"), `So far ${count(evicted)}, ${count(unread)} of them never read; expired: ${count(expired)}`);
};

const drawMemory = () => {
  const parts = MEMORY.map(([name, row], at) => [name, number(last.tiers, row) ?? 0, at]);
  const used = parts.reduce((sum, [name, value]) => (BESIDE.includes(name) ? sum : sum + value), 0);
  put(byId("memory-used"), bytes(used));
  const [limit, buffers] = ["memory_limit", "memory_connections_limit"].map((name) => number(last.tiers, name));
  parts.push(["Not taken yet", Math.max(0, limit - used - number(last.tiers, "memory_free")), 10]);
  const all = parts.reduce((sum, [, value]) => sum + value, 0);
  put(byId("memory-note"), `of ${bytes(limit)} for the cache (-m); connections may have ${bytes(buffers)} besides`);
  bar(byId("memory-bar"), parts, all, `Memory by use: ${parts.map(([name, value]) => `${name} ${bytes(value)}`).join(", ")}`);
  legend(byId("memory-legend"), parts, bytes);
};

const tierCards = [];

const makeTier = (at) => {
  const title = make("h2", { id: `tier-${at}-title` }, `Tier ${at}`);
  const card = {
    device: make("code"),
    state: make("span", { class: "pill" }),
    bar: make("div", { class: "bar", role: "img" }),
    legend: make("ul", { class: "legend" }),
    facts: make("dl"),
  };
  const charts = [make("div"), make("div")];
  charts[0].append(make("h3", {}, "Reads for requests"));
  charts[1].append(make("h3", {}, "Written to the drive"));
  const head = make("div", { class: "tier-head" }, title, card.device, card.state);
  const section = make("section", { "aria-labelledby": title.id }, head, card.bar, card.legend, make("div", { class: "charts" }, ...charts), card.facts);
  card.reads = new Chart(charts[0], { title: `Tier ${at}: reads`, names: ["Hits", "Reads without one"], format: perSecond });
  card.writes = new Chart(charts[1], { title: `Tier ${at}: bytes written`, names: ["Segments", "Tombstone log"], format: bytesPerSecond, base: 1024 });
  byId("tiers").append(section);
  return card;
};

// How a tier is: good, warn, bad or, where it is no concern any more, nothing; and words for it.
const tierState = (at) => {
  const of = (name) => number(last.tiers, `tier:${at}:${name}`);
  const [state, health] = ["state", "health"].map((name) => last.tiers[`tier:${at}:${name}`]);
  const moved = () => `${percent(1 - of("drain_bytes_left") / Math.max(1, of("drain_bytes_total")))} moved`;
  if (state === "removed") return ["", "– Removed"];
  if (state === "absent") return ["bad", "✕ Absent since the start"];
  if (state === "failed") return ["bad", "✕ Failed"];
  if (of("unresponsive_seconds")) return ["bad", `✕ No answer for ${duration(of("unresponsive_seconds"))}`];
  if (health === "gone") return ["bad", "✕ Gone"];
  if (health === "read_only") return ["bad", "✕ Read-only"];
  if (state === "drained") return ["warn", "! Drained, can be removed"];
  if (state === "no-room") return ["warn", `! Draining, ${moved()}, no room elsewhere`];
  if (state === "draining") {
    const seconds = of("drain_seconds_left");
    return ["warn", `! Draining, ${moved()}${seconds === null ? "" : `, ${duration(seconds)} left`}`];
  }
  if (of("read_errors") + of("write_errors") + of("corrupt_pages") > 0) return ["warn", "! Works, with errors"];
  return ["good", "✓ Works"];
};

const drawTier = (at) => {
  tierCards[at] ??= makeTier(at);
  const card = tierCards[at];
  const row = (name) => `tier:${at}:${name}`;
  const of = (name) => number(last.tiers, row(name));
  put(card.device, String(last.tiers[row("device")]));
  const [kind, words] = tierState(at);
  card.state.className = `pill ${kind}`;
  put(card.state, words);

  const used = of("segments_used") * of("segment_bytes");
  const parts = [
    ["Live records", of("live_bytes"), 0],
    ["Dead records and padding", Math.max(0, used - of("live_bytes")), 2],
    ["Free", Math.max(0, of("capacity_bytes") - used), 9],
  ];
  bar(card.bar, parts, of("capacity_bytes"), `Tier ${at} by use: ${parts.map(([name, value]) => `${name} ${bytes(value)}`).join(", ")}`);
  legend(card.legend, parts, bytes);

  // A hit may take more reads than one, and fewer where requests share them.
  const reads = (before, now) => {
    const [hit, read] = [ofTiers(row("hits")), ofTiers(row("reads"))].map((sum) => rate(before, now, sum));
    return hit === null || read === null ? null : [hit, Math.max(0, read - hit)];
  };
  const written = rates([ofTiers(row("written_bytes")), ofTiers(row("tombstone_log_written_bytes"))]);
  card.reads.draw(points(reads), reads(recent(), last) ?? [null, null]);
  card.writes.draw(points(written), written(recent(), last) ?? [null, null]);

  const [budget, balance, life] = ["budget_bytes_per_second", "budget_balance_bytes", "life_years"].map(of);
  const device = of("device_amplification");
  facts(card.facts, [
    ["Capacity", bytes(of("capacity_bytes")), `${count(of("records"))} live records`],
    ["Drive life", life === null ? "unknown" : `${count(life)} years`, life === null ? "until a day of writing was seen" : "at the rate since the start"],
    ["Write budget", budget ? bytesPerSecond(budget) : "no limit", budget ? `${balance < 0 ? "overdrawn by" : "saved up"} ${bytes(Math.abs(balance))}` : ""],
    ["Write policy", String(last.tiers[row("write_policy")]), `${count(of("dropped_records"))} records dropped unwritten`],
    ["Write amplification", digits(of("write_amplification")), device === null ? "" : `the drive's own ${device}`],
    ["Read time since the start", `p50 ${micros(of("read_us_p50"))}`, `p99 ${micros(of("read_us_p99"))}`],
    ["Reads in flight", `${of("read_depth")} at most`, `${digits(of("reads_per_hit"))} reads per hit`],
    ["Errors", count(of("read_errors") + of("write_errors")), `${count(of("corrupt_pages"))} corrupt pages`],
    ...(of("level") > 0 ? [["Tier level", of("level").toString(), `${count(of("demoted_records"))} records demoted to it`]] : []),
  ]);
};

const drawOthers = () => {
  const of = (name) => number(last.stats, name);
  const inTiers = (name) => number(last.tiers, name);
  facts(byId("connections"), [
    ["Open", count(of("curr_connections")), `of ${count(of("max_connections"))}`],
    ["Since the start", count(of("total_connections")), `${count(of("rejected_connections") ?? 0)} rejected`],
    ["New ones", of("accepting_conns") ? "are taken" : "wait", `waited ${count(of("listen_disabled_num"))} times so far`],
  ]);
  const traffic = sums(TRAFFIC).map((sum) => rate(recent(), last, sum));
  charts.traffic.draw(points(rates(sums(TRAFFIC))), traffic);
  const [waiting, shards] = ["recovery_shards_waiting", "recovery_shards"].map(inTiers);
  const searching = last.tiers.chunk_search === "running";
  facts(byId("recovery"), [
    ["Live records", count(of("curr_items")), bytes(of("bytes"))],
    ["In DRAM", count(inTiers("records_write_buffer")), `and ${count(inTiers("records_read_cache"))} copies of records of tiers`],
    ["Recovery", waiting > 0 ? `${waiting} of ${shards} shards wait` : "done", `${count(inTiers("recovery_refused"))} changes refused meanwhile`],
    ["Search for orphaned chunks", searching ? `${inTiers("chunk_search_shards_waiting")} shards to go` : "done", `${count(inTiers("orphaned_chunks"))} found`],
    ["Index", `${digits(inTiers("index_bytes_per_record"))} B`, "of DRAM per record"],
  ]);
};

const drawState = () => {
  const pills = [];
  const waiting = number(last.tiers, "recovery_shards_waiting");
  for (const at of tierNumbers()) {
    const [kind, words] = tierState(at);
    if (kind === "warn" || kind === "bad") pills.push([kind, `${words[0]} Tier ${at}: ${words.slice(2).toLowerCase()}`]);
  }
  if (waiting > 0) pills.push(["warn", `! Recovering: ${waiting} of ${number(last.tiers, "recovery_shards")} shards wait`]);
  if (number(last.tiers, "state_lost")) pills.push(["bad", "✕ A part of the state was lost"]);
  if (pills.length === 0) pills.push(["good", "✓ Serving"]);
  const state = byId("state");
  if (state.textContent !== pills.map(([, words]) => words).join("")) {
    state.replaceChildren(...pills.map(([kind, words]) => make("span", { class: `pill ${kind}` }, words)));
  }
  put(byId("uptime"), `Up ${duration(number(last.stats, "uptime"))}`);
};

const drawRows = () => {
  const body = byId("rows").tBodies[0];
  if (!byId("rows").closest("details").open) return;
  const all = [...Object.entries(last.stats), ...Object.entries(last.tiers).map(([name, value]) => [`tiers ${name}`, value])];
  all.forEach(([name, value], at) => {
    if (!body.rows[at]) body.append(make("tr", {}, make("td"), make("td")));
    put(body.rows[at].cells[0], name);
    put(body.rows[at].cells[1], String(value ?? "unknown"));
  });
  while (body.rows.length > all.length) body.lastChild.remove();
};

const draw = () => {
  if (!last || document.hidden) return;
  drawState();
  drawHits();
  drawRequests();
  drawLatency();
  drawEvictions();
  drawMemory();
  tierNumbers().forEach(drawTier);
  drawOthers();
  drawRows();
};

// The stream, and what the page says while there is none.

let source = null;
let heard = performance.now();
let goneSince = null;
let why = null;

const sayGone = () => {
  const banner = byId("gone");
  const isGone = goneSince !== null;
  banner.hidden = !isGone;
  document.body.classList.toggle("is-gone", isGone);
  document.title = `${isGone ? "⚠ " : ""}Terrace ${location.host}`;
  if (!isGone) return;
  const [text, time] = banner.children;
  const state = byId("state");
  if (state.textContent !== NO_FIGURES) state.replaceChildren(make("span", { class: "pill bad" }, NO_FIGURES));
  const since = `since ${goneSince.toLocaleTimeString()}`;
  if (why === "token") {
    if (!text.querySelector("a")) text.replaceChildren("The session is over, or the token is another one now. ", make("a", { href: "." }, "Sign in"), ".");
  } else if (why === "full") {
    put(text, `As many pages read these figures as may; nothing was heard ${since}. Trying again.`);
  } else {
    put(text, `No answer from the server ${since}. Trying again.`);
  }
  // Beside the alert, which would be read aloud each second.
  put(time, ` ${duration((Date.now() - goneSince) / 1000)} so far.`);
};

const lose = (reason) => {
  source?.close();
  source = null;
  if (goneSince === null) {
    goneSince = new Date(Date.now() - (performance.now() - heard));
    leaveGap();
  }
  why = reason;
  sayGone();
  setTimeout(tryAgain, RETRY_MS);
};

const tryAgain = async () => {
  // A stream that fails does not say why, and a request does.
  let status = 0;
  try {
    status = (await fetch("events", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(SILENT_MS) })).status;
  } catch {
    // No answer.
  }
  if (status === 200) connect();
  else lose(status === 401 ? "token" : status === 503 ? "full" : "gone");
};

const connect = () => {
  heard = performance.now();
  source = new EventSource("events");
  source.onmessage = ({ data }) => {
    heard = performance.now();
    goneSince = null;
    sayGone();
    remember(JSON.parse(data));
    draw();
  };
  source.onerror = () => lose(why ?? "gone");
};

setInterval(() => {
  if (source && performance.now() - heard > SILENT_MS) lose("gone");
  if (goneSince !== null) sayGone();
}, 1000);
document.addEventListener("visibilitychange", draw);
byId("rows").closest("details").addEventListener("toggle", draw);
put(byId("host"), location.host);
document.title = `Terrace ${location.host}`;
connect();
