// The page of the console. All that comes from the broker (names, records, settings) is inserted by textContent or
// setAttribute of plain attributes: nothing here makes HTML of a text.
"use strict";

const REFRESH_MS = 2000;
const KEPT = 300; // points of a chart
const SVG = "http://www.w3.org/2000/svg";
const PLACES = ["overview", "topics", "messages", "groups", "settings"];
const byId = (id) => document.getElementById(id);

// -- elements

/** An element with attributes and children; a child that is no node becomes text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  return filled(element, attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return element;
}

/** A link into the page: its words are parts of an address, whatever characters they have. */
function link(text, view, parameters = {}, key = null) {
  return make("a", { href: address(view, parameters), "data-key": key || `${view} ${text}` }, text);
}

function address(view, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

// -- numbers

const plain = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 0 });
const rate = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const known = (show) => (value) => (value === null || value === undefined ? "not known" : show(value));

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toLocaleString("en", { maximumFractionDigits: unit ? 1 : 0 })} ${units[unit]}`;
}

function seconds(value) {
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  return value < 7200 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`;
}

const when = (ms) => (ms < 0 || !Number.isFinite(ms) || ms > 8.64e15 ? "no time" : new Date(ms).toISOString());

// -- charts: what this page has seen since it was opened

const seen = new Map();

function remember(name, value) {
  const points = seen.get(name) || [];
  points.push({ at: Date.now(), value });
  if (points.length > KEPT) points.shift();
  seen.set(name, points);
}

/** A line over time, and the same in words for those who do not see it. */
function chart(name, title, show, small = false) {
  const points = seen.get(name) || [];
  const values = points.map((point) => point.value);
  const top = Math.max(1, ...values);
  const last = values.length ? values[values.length - 1] : 0;
  const words = `${title}: ${show(last)} now, at most ${show(Math.max(0, ...values))} in ${seconds(spread(points))}`;
  const said = small ? { role: "img", "aria-label": words } : { "aria-hidden": "true" }; // the caption has the words
  const picture = drawn("svg", { class: small ? "chart small" : "chart", ...said,
    viewBox: "0 0 100 100", preserveAspectRatio: "none" }, drawn("path", { d: line(points, top) }));
  return small ? picture : make("figure", {}, picture, make("figcaption", {}, words));
}

const spread = (points) => (points.length < 2 ? 0 : (points[points.length - 1].at - points[0].at) / 1000);

function line(points, top) {
  if (!points.length) return "M0 97H100";
  const first = points[0].at, width = Math.max(1, points[points.length - 1].at - first);
  const at = (point) => `${((point.at - first) / width * 100).toFixed(2)} ${(97 - point.value / top * 94).toFixed(2)}`;
  return `M${points.map(at).join("L")}${points.length === 1 ? "H100" : ""}`;
}

// -- tables

/** A column: a title, what a cell has, and, where rows can be sorted by it, the name that the server knows. */
const column = (title, cell, sort = null, isNumber = true) => ({ title, cell, sort, isNumber });
const named = (title, cell, sort = null) => column(title, cell, sort, false);

/** The first column is the row's header. */
function table(caption, columns, rows, place = null) {
  const head = make("tr", {}, columns.map((one) => headCell(one, place)));
  const body = rows.map((row) => make("tr", {}, columns.map((one, number) =>
    make(number ? "td" : "th", { scope: number ? null : "row", class: one.isNumber && number ? "number" : null },
      one.cell(row)))));
  return make("div", { class: "wide" }, make("table", {}, make("caption", {}, caption), make("thead", {}, head),
    make("tbody", {}, body)));
}

function headCell(one, place) {
  const attributes = { scope: "col", class: one.isNumber ? "number" : null };
  if (!place || !one.sort) return make("th", attributes, one.title);
  const sort = place.parameters.sort || "";
  const isHere = sort.replace("-", "") === one.sort;
  if (isHere) attributes["aria-sort"] = sort.startsWith("-") ? "descending" : "ascending";
  const next = isHere ? (sort.startsWith("-") ? one.sort : `-${one.sort}`) : (one.isNumber ? `-${one.sort}` : one.sort);
  const arrow = isHere ? (sort.startsWith("-") ? " ↓" : " ↑") : "";
  return make("th", attributes, make("button", { type: "button", "data-key": `sort ${one.sort}`,
    click: () => go({ sort: next, page: "" }) }, one.title + arrow));
}

function filter(place, words) {
  const box = make("input", { type: "search", id: "filter", value: place.parameters.filter || "", autocomplete: "off",
    "data-key": "filter", maxlength: "1000", input: () => later(() => go({ filter: box.value, page: "" }, true)) });
  return make("form", { role: "search", submit: (event) => event.preventDefault() }, make("label", {}, words, box));
}

function pager(data) {
  const turn = (page, text, id) => make("button", { type: "button", id, "data-key": id,
    disabled: page < 1 || page > data.pages, click: () => go({ page }) }, text);
  return make("form", { "aria-label": "Pages", submit: (event) => event.preventDefault() },
    turn(data.page - 1, "← Previous", "previous"), make("span", {}, `Page ${data.page} of ${data.pages}`),
    turn(data.page + 1, "Next →", "next"));
}

// -- views: each has the address of its data, and what becomes of them

const VIEWS = {
  overview: { data: () => "api/overview", show: overview },
  topics: { data: (given) => api("topics", given), show: topics },
  topic: { data: (given) => api("topic", given), show: topic, under: "topics" },
  messages: { data: (given) => (given.topic ? api("messages", given) : null), show: messages, isStill: true },
  groups: { data: (given) => api("groups", given), show: groups },
  group: { data: (given) => api("group", given), show: group, under: "groups" },
  settings: { data: (given) => api("settings", given), show: settings },
  differences: { data: (given) => api("differences", given), show: differences, under: "settings", isStill: true },
};

const api = (name, given) => `api/${name}?${new URLSearchParams(given)}`;

/** What is wrong, load, processes and disks need a right that not every reader has: `needs` says which. */
function overview(data) {
  const brokers = table(`Brokers of the cluster ${data.cluster_id}`, BROKERS, data.brokers);
  if (data.needs) {
    const parts = [make("p", { class: "needs" }, data.needs), brokers];
    return { title: "Overview", status: `${plain(data.topics)} topics; not all is shown`, parts };
  }
  for (const name of ["messages_in", "bytes_in", "bytes_out"]) remember(`rate ${name}`, data.rates[name]);
  const charts = [
    chart("rate messages_in", "Records in a second", rate),
    chart("rate bytes_in", "Bytes in a second", bytes),
    chart("rate bytes_out", "Bytes out a second", bytes),
  ];
  return {
    title: "Overview",
    status: `${data.findings.length} findings, ${plain(data.topics)} topics`,
    parts: [
      make("h3", {}, "What is wrong first"), findings(data.findings),
      make("h3", {}, "Load"), make("div", { class: "charts" }, charts),
      brokers,
      table(`Processes of broker ${data.broker}`, PROCESSES, data.processes),
      table("Log directories of this broker", DISKS, data.disks),
    ],
  };
}

function findings(found) {
  if (!found.length) {
    return make("ul", { class: "findings" }, make("li", { class: "good" }, make("strong", {}, "Nothing is wrong")));
  }
  return make("ul", { class: "findings" }, found.map((one) => make("li", { class: one.severity },
    make("strong", {}, one.severity.toUpperCase()), ` ${one.text}`, make("p", {}, `To do: ${one.mend}`))));
}

const BROKERS = [
  named("Broker", (one) => `${one.id}${one.is_this ? " (this one)" : ""}`),
  named("Role", (one) => (one.is_controller ? "controller" : "")),
  named("Rack", (one) => one.rack || ""),
  named("Listeners", (one) => one.listeners.join(" ")),
];
const PROCESSES = [
  named("Process", (one) => one.name),
  named("State", (one) => one.state),
  column("Starts", (one) => plain(one.starts)),
  column("CPU", (one) => `${(one.cpu * 100).toFixed(0)} %`),
  column("Memory", (one) => bytes(one.memory)),
  column("Connections", (one) => plain(one.connections)),
  column("Requests/s", (one) => rate(one.requests)),
  column("In/s", (one) => bytes(one.bytes_in)),
  column("Out/s", (one) => bytes(one.bytes_out)),
  column("Errors/s", (one) => rate(one.errors)),
  column("Files", (one) => plain(one.files)),
];
const DISKS = [
  named("Directory", (one) => one.path),
  column("Size", (one) => bytes(one.size)),
  column("Free", (one) => bytes(one.free)),
  named("Used", (one) => make("meter", { min: 0, max: one.size, value: one.size - one.free, high: one.size * 0.9,
    "aria-label": `used ${(100 - one.free / one.size * 100).toFixed(0)} %` })),
];

function topics(data, place) {
  const size = (one) => (data.sizes_known ? bytes(one.bytes) : "not known yet");
  const columns = [
    named("Topic", (one) => link(one.name, "topic", { name: one.name }), "name"),
    column("Partitions", (one) => plain(one.partitions), "partitions"),
    column("Here", (one) => plain(one.here), "here"),
    column("Led", (one) => plain(one.led), "led"),
    column("Under-replicated", (one) => plain(one.under_replicated), "under_replicated"),
    column("Offline", (one) => plain(one.offline), "offline"),
    column("Records", (one) => plain(one.records), "records"),
    column("Size", size, "bytes"),
    column("Records/s", (one) => rate(one.records_s), "records_s"),
    column("In/s", (one) => bytes(one.bytes_s), "bytes_s"),
  ];
  const caption = `${plain(data.total)} topics; records and sizes are those of the partitions on this broker, ` +
    "sizes up to half a minute old";
  return { title: "Topics", status: caption, parts: [filter(place, "Topics whose name contains"),
    table(caption, columns, data.rows, place), pager(data)] };
}

function topic(data) {
  const columns = [
    named("Partition", (one) => link(one.partition, "messages", { topic: data.name, partition: one.partition })),
    named("State here", (one) => one.state),
    column("Leader", (one) => (one.leader < 0 ? "none" : one.leader)),
    named("Replicas", (one) => one.replicas.join(", ")),
    named("In sync", (one) => one.isr.join(", ") + (one.isr.length < one.replicas.length ? " (too few)" : "")),
    column("Start", (one) => known(plain)(one.start)),
    column("End", (one) => known(plain)(one.end)),
    column("Size", (one) => known(bytes)(one.bytes)),
    column("Records/s", (one) => known(rate)(one.records_s)),
  ];
  const configs = Object.entries(data.config || {}).map(([name, value]) => `${name}=${value}`).join(", ");
  const config = data.config === null ? "its configs need DescribeConfigs on it" : configs;
  return {
    title: `Topic ${data.name}`,
    status: `topic ${data.name}: ${plain(data.total)} partitions`,
    parts: [
      make("p", {}, link("Messages", "messages", { topic: data.name }), ` · ${config || "no configs of its own"}`),
      table(`${plain(data.total)} partitions; a partition's number leads to its messages`, columns, data.rows),
      pager(data),
    ],
  };
}

// -- messages

function messages(data, place) {
  const parts = [messageForm(place.parameters)];
  if (!data) return { title: "Messages", status: "choose a topic", parts };
  const more = { ...place.parameters, offset: data.next, time: "" };
  const range = `Offsets ${plain(data.first)} to ${plain(data.end)} (the end); read from ${plain(data.from)}`;
  parts.push(make("p", {}, `${range}, ${bytes(data.bytes)}. `,
    data.next < data.end ? link("Go on", "messages", more, "next") : "This is the end."));
  parts.push(...data.notes.map((line) => make("p", {}, line)));
  parts.push(...data.skipped.map((line) => make("p", {}, `Not shown: ${line}`)));
  parts.push(table(`${data.rows.length} records of ${data.topic}-${data.partition}`, RECORDS, data.rows));
  const status = `${data.rows.length} records of ${data.topic}-${data.partition}, read from offset ${data.from}`;
  return { title: "Messages", status: [status, ...data.notes].join(". "), parts };
}

const RECORDS = [
  named("Offset", (one) => one.offset),
  named("Time", (one) => when(one.timestamp)),
  named("Key", (one) => content(one.key, `Key of offset ${one.offset}`)),
  named("Value", (one) => content(one.value, `Value of offset ${one.offset}`)),
  named("Headers", (one) => [
    ...one.headers.map((header) => make("p", {}, `${header.name}: ${header.value === null ? "null" : header.value}`)),
    one.more_headers ? `and ${one.more_headers} more` : null]),
];

function content(shown, what) {
  if (shown === null) return make("span", { class: "soft" }, "null");
  const cut = shown.cut ? ` of ${bytes(shown.bytes)}, only the first are shown` : "";
  const note = shown.note ? make("p", { class: "soft" }, shown.note) : null;
  return [make("span", { class: "tag soft" }, shown.as + cut), note, make("pre", { "data-what": what }, shown.text)];
}

function messageForm(given) {
  const box = (name, label, type, value, more = {}) =>
    make("label", {}, label, make("input", { name, type, value: value === undefined ? "" : value,
      "data-key": `box ${name}`, ...more }));
  const local = given.time ? new Date(Number(given.time)).toISOString().slice(0, 19) : "";
  const formats = ["auto", "text", "json", "avro", "hex"].map((one) =>
    make("option", { value: one, selected: one === (given.format || "auto") }, one));
  const form = make("form", { "aria-label": "What to read", submit: read },
    box("topic", "Topic", "text", given.topic, { required: true, id: "filter" }),
    box("partition", "Partition", "number", given.partition || 0, { min: 0 }),
    box("offset", "From offset (empty: the newest)", "number", given.offset, { min: 0 }),
    box("time", "or from a time (UTC)", "datetime-local", local, { step: 1 }),
    box("key", "Key contains", "text", given.key),
    box("limit", "At most", "number", given.limit || 50, { min: 1, max: 200 }),
    make("label", {}, "Show as", make("select", { name: "format", "data-key": "box format" }, formats)),
    make("button", { type: "submit", "data-key": "read" }, "Read"));
  return form;
}

function read(event) {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  if (given.time) given.time = Date.parse(`${given.time}Z`);
  if (given.format === "auto") given.format = "";
  const there = address("messages", given);
  if (there === location.hash) follow(); else location.hash = there;
}

// -- groups

function groups(data, place) {
  for (const one of data.rows) remember(`lag ${one.name}`, one.lag);
  const columns = [
    named("Group", (one) => link(one.name, "group", { name: one.name }), "name"),
    column("Members", (one) => plain(one.members), "members"),
    column("Partitions", (one) => plain(one.partitions), "partitions"),
    column("Lag", (one) => plain(one.lag), "lag"),
    column("Lag in time", (one) => seconds(one.lag_s), "lag_s"),
    named("Since you look", (one) => chart(`lag ${one.name}`, `Lag of ${one.name}`, plain, true)),
    named("Farthest behind", (one) => one.farthest, "farthest"),
  ];
  const caption = `${plain(data.total)} groups that this broker coordinates`;
  return { title: "Groups", status: caption, parts: [filter(place, "Groups whose name contains"),
    table(caption, columns, data.rows, place), pager(data)] };
}

function group(data) {
  remember(`lag ${data.name}`, data.lag);
  const columns = [
    named("Topic", (one) => link(one.topic, "topic", { name: one.topic }, `${one.topic}-${one.partition}`)),
    column("Partition", (one) => one.partition),
    column("Committed", (one) => plain(one.committed)),
    column("Lag", (one) => known(plain)(one.lag)),
    column("Lag in time", (one) => known(seconds)(one.lag_s)),
  ];
  return {
    title: `Group ${data.name}`,
    status: `group ${data.name}: lag ${plain(data.lag)}`,
    parts: [
      make("p", {}, `${plain(data.members)} members, lag ${plain(data.lag)}`),
      chart(`lag ${data.name}`, "Lag in records", plain),
      table(`${plain(data.total)} partitions, the farthest behind first`, columns, data.rows), pager(data),
    ],
  };
}

// -- settings

const settingName = (one) => make("span", { tabindex: -1, "data-key": `setting ${one.name}` }, one.name);

function settings(data, place) {
  const columns = [
    named("Setting", settingName, "name"),
    named("Value", (one) => (one.value === null ? make("span", { class: "soft" }, "not set") : one.value)),
    named("Source", (one) => make(one.is_default ? "span" : "strong", {}, one.source), "source"),
    named("Also set", (one) => one.others.map((other) => make("p", { class: "soft" }, other))),
    named("What it is", (one) => one.doc),
  ];
  const caption = `${plain(data.total)} settings of this broker, those that are set first`;
  return { title: "Settings", status: caption, parts: [
    make("p", {}, link("What differs between the brokers", "differences")),
    filter(place, "Settings whose name contains"), table(caption, columns, data.rows, place), pager(data)] };
}

function differences(data) {
  const columns = [named("Setting", settingName)];
  data.brokers.forEach((broker, at) => columns.push(named(`Broker ${broker}`, (one) => [
    one.values[at].value === null ? make("span", { class: "soft" }, "not set") : one.values[at].value,
    make("p", { class: "soft" }, one.values[at].source)])));
  const failed = Object.entries(data.failed).map(([broker, line]) => make("p", {}, `Broker ${broker}: ${line}`));
  const caption = `${data.rows.length} settings differ between ${data.brokers.length} brokers`;
  const parts = [...failed, table(caption, columns, data.rows)];
  return { title: "What differs between the brokers", status: caption, parts };
}

// -- moving

let here = null, isPaused = false, wait = null, timer = null, ticket = 0;

function place() {
  const [path, query = ""] = location.hash.replace(/^#\//, "").split("?", 2);
  return { view: path in VIEWS ? path : "overview", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

function go(changes, isSmall = false) {
  const now = place();
  const there = address(now.view, { ...now.parameters, ...changes });
  if (isSmall) { window.history.replaceState(null, "", there); follow(); } else location.hash = there;
}

function later(call) {
  clearTimeout(wait);
  wait = setTimeout(call, 200);
}

/** Show the place of the address; on a change of the view say so and go to its begin. */
async function follow() {
  const now = place(), mine = ++ticket;
  const isNew = !here || here.view !== now.view;
  clearTimeout(timer);
  here = now;
  if (isNew) mark(now.view);
  await load(now, mine, isNew, true);
  if (mine === ticket && !VIEWS[now.view].isStill) timer = setTimeout(refresh, REFRESH_MS);
}

async function refresh() {
  const mine = ++ticket, now = place();
  if (!isPaused && !document.hidden) await load(now, mine, false);
  if (mine === ticket) timer = setTimeout(refresh, REFRESH_MS);
}

/** `isAsked`: the reader waits for it, so that what came is said. */
async function load(now, mine, isNew, isAsked = false) {
  const view = VIEWS[now.view], source = view.data(now.parameters);
  try {
    const found = source ? await fetched(source) : null;
    if (mine !== ticket) return;
    put(view.show(found, now), isNew, isAsked);
    say("");
  } catch (error) {
    if (mine !== ticket) return;
    if (isNew || view.isStill || error.isLogin) put(empty(now), isNew, isAsked);
    if (error.isLogin && !isPaused) pause(); // each refresh would ask for the password again
    say(error.message);
  }
}

/** A view without data: its form stays. */
function empty(now) {
  const name = VIEWS[now.view].under || now.view;
  const parts = now.view === "messages" ? [messageForm(now.parameters)] : [];
  return { title: name.charAt(0).toUpperCase() + name.slice(1), status: "", parts };
}

async function fetched(source) {
  const whole = new URL(source, location.origin + location.pathname); // never with a user and a password, as typed
  let answer;
  try {
    answer = await fetch(whole, { headers: { Accept: "application/json" } });
  } catch {
    throw new Error("the console does not answer: the broker may have stopped; look at odradek status");
  }
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { isLogin: answer.status === 401 });
  return found;
}

function say(line) {
  byId("error").hidden = !line;
  if (byId("error").textContent !== line) byId("error").textContent = line;
}

/** Replace what is shown; the focus, what is typed and what is scrolled stay where they are. */
function put(shown, isNew, isAsked) {
  const focus = document.activeElement && document.activeElement.getAttribute("data-key");
  const typed = document.activeElement instanceof HTMLInputElement ? document.activeElement : null;
  const scrolled = isNew ? [] : [...document.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  byId("view").replaceChildren(make("h2", { id: "title" }, shown.title), ...shown.parts.flat());
  document.querySelectorAll("#view .wide, #view pre").forEach(reachable);
  document.querySelectorAll(".wide").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
  document.title = `${shown.title} · Odradek console`;
  document.body.setAttribute("data-shown", here.view);
  const again = focus && byId("view").querySelector(`[data-key="${CSS.escape(focus)}"]`);
  if (again) {
    if (typed && again instanceof HTMLInputElement) keep(typed, again);
    again.focus({ preventScroll: true });
  } else if (focus) byId("main").focus({ preventScroll: !isNew }); // what had it is gone: a screen reader says the title
  if (isAsked) byId("status").textContent = shown.status;
}

/** What does not fit and scrolls gets the focus, so that keys can scroll it. */
function reachable(one, at) {
  if (one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth) return;
  const name = one.getAttribute("data-what") || one.querySelector("caption").textContent;
  const found = { tabindex: 0, role: "group", "aria-label": name, "data-key": `scrolls ${at}`, "data-scrolls": true };
  filled(one, found, []);
}

function keep(before, after) {
  after.value = before.value;
  if (before.type === "text" || before.type === "search") {
    after.setSelectionRange(before.selectionStart, before.selectionEnd);
  }
}

function mark(view) {
  const top = VIEWS[view].under || view;
  for (const one of document.querySelectorAll("nav a")) {
    if (one.getAttribute("data-view") === top) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

// -- keys

function press(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.hasAttribute("data-scrolls") && event.key.startsWith("Arrow")) return;
  const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (isTyping) {
    if (event.key === "Escape") byId("main").focus();
    else if (event.key === "ArrowDown" && event.target.type === "search") moved(event, () => step(1));
    return;
  }
  if (event.key === "/") moved(event, () => byId("filter") && byId("filter").focus());
  else if (event.key === "ArrowDown") moved(event, () => step(1));
  else if (event.key === "ArrowUp") moved(event, () => step(-1));
  else if (event.key === "ArrowRight") click("next");
  else if (event.key === "ArrowLeft") click("previous");
  else if (event.key === "p") pause();
  else if (/^[1-5]$/.test(event.key)) location.hash = address(PLACES[event.key - 1], {});
}

function moved(event, call) {
  event.preventDefault();
  call();
}

/** Move to the link of the next or the previous row. */
function step(by) {
  const rows = [...document.querySelectorAll("tbody th a, tbody th [tabindex]")];
  if (!rows.length) return window.scrollBy(0, by * 60);
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))].focus();
}

function click(id) {
  const button = byId(id);
  if (button && !button.disabled) button.click();
}

function pause() {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  byId("status").textContent = isPaused ? "paused: the page does not change" : "";
}

byId("pause").addEventListener("click", pause);
byId("skip").addEventListener("click", (event) => moved(event, () => byId("main").focus()));
document.addEventListener("keydown", press);
window.addEventListener("hashchange", follow);
follow();
fetched("api/overview").then(
  (found) => {
    const reader = found.user ? `, read as ${found.user}` : "";
    byId("broker").textContent = `Broker ${found.broker}, cluster ${found.cluster_id}${reader}`;
  },
  () => {}, // the view says what is wrong
);
