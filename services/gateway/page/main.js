// The page: takes snapshots from the feed and gives every part its share of them.

import { Chart } from "./chart.js";
import { Chat } from "./chat.js";
import { byId } from "./element.js";
import { Feed } from "./feed.js";
import { advice, fleetTable, requestTable } from "./fleet.js";
import { Key } from "./key.js";
import { decimal, percent, whole } from "./numbers.js";
import { Sources } from "./sources.js";

const KEPT_S = 300;
const STATES = {
  connected: "connected",
  disconnected: "not connected, trying again",
  locked: "needs an API key",
  resting: "resting while nobody looks",
};

const charts = [
  new Chart({
    title: "Speed",
    least: 1,
    shown: decimal,
    series: [
      { name: "tokens/s", kind: "main", value: (point) => point.tokens_per_second },
      { name: "without drafts", kind: "other", value: (point) => point.plain_tokens_per_second },
    ],
  }),
  new Chart({
    title: "Tokens per round",
    least: 1,
    shown: (value) => decimal(value, 2),
    series: [{ name: "per request", kind: "main", value: (point) => (point.running ? point.tokens_per_round : null) }],
  }),
  new Chart({
    title: "Requests",
    least: 1,
    shown: whole,
    series: [
      { name: "waiting", kind: "main", value: (point) => point.waiting },
      { name: "running", kind: "other", value: (point) => point.running },
    ],
  }),
  new Chart({
    title: "KV cache",
    least: 1,
    shown: percent,
    series: [
      { name: "running", kind: "main", value: (point) => (point.cells ? point.cells_running / point.cells : null) },
      { name: "held", kind: "other", value: (point) => (point.cells ? point.cells_used / point.cells : null) },
    ],
  }),
];

const sources = new Sources();
const key = new Key(() => feed.restart());
const chat = new Chat(key, sources, () => key.ask());
const feed = new Feed("status/events", key, {
  event: take,
  state: show,
  locked: () => key.ask(),
});

let points = [];
let fleet = null;
const drawn = {}; // what each part shows now, as text, so that only what changed is built anew

function take(type, value) {
  if (type === "trouble") return show("disconnected", value.message);
  show("connected");
  if (type === "history") points = value.points;
  else if (type === "status") {
    fleet = value;
    points = [...points.filter(({ at }) => at > value.at - KEPT_S), { at: value.at, ...value.totals }];
    requestAnimationFrame(draw);
  }
}

function show(state, words = STATES[state]) {
  const connection = byId("connection");
  if (connection.textContent !== words) connection.textContent = words;
  connection.dataset.state = state;
  document.body.classList.toggle("stale", state === "disconnected");
  document.body.classList.toggle("locked", state === "locked");
}

function draw() {
  if (sources.learn(fleet.drafters)) chat.legend();
  chat.offer([...new Set(fleet.verifiers.filter(({ draining }) => !draining).map(({ model }) => model))]);
  byId("verdict").textContent = fleet.verdict;
  part("advice", [fleet.verifiers.length, fleet.drafters, fleet.conflicts, fleet.deserted], () => advice(fleet));
  part("requests", [fleet.requests, fleet.totals.waiting, fleet.drafters], () => [requestTable(fleet, sources)]);
  part("fleet", [fleet.processes, fleet.verifiers, fleet.drafters], () => [fleetTable(fleet, sources)]);
  for (const chart of charts) chart.draw(points, fleet.at);
}

function part(id, facts, build) {
  const text = JSON.stringify(facts);
  if (drawn[id] === text) return;
  drawn[id] = text;
  byId(id).replaceChildren(...build());
}

byId("charts").replaceChildren(...charts.map(({ figure }) => figure));
feed.restart();
