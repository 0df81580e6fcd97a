// Who is there, what each is worth, what runs, and what to do where something is missing.

import { element } from "./element.js";
import { age, decimal, milliseconds, percent, UNKNOWN, whole } from "./numbers.js";
import { table, twoLines } from "./table.js";

const NUMBER = "number";

/** The table of all processes. */
export function fleetTable(fleet, sources) {
  const columns = [
    ["Process", null],
    ["Device", null],
    ["Requests", null],
    ["Tokens/s", NUMBER],
    ["Tokens/round", NUMBER],
    ["Accepted", NUMBER],
    ["Round trip", NUMBER],
    ["What it adds", null],
  ];
  const rows = [
    ...fleet.verifiers.map(verifierRow),
    ...fleet.drafters.map((drafter) => drafterRow(drafter, fleet, sources)),
    ...fleet.processes.filter(({ kind }) => kind === "gateway").map(gatewayRow),
  ];
  return table("Every process of the fleet, with what it is worth", columns, rows);
}

// How it shares its cores or device with a drafter.
const SHARING = { turns: " · in turns with a drafter", beside: " · beside a drafter" };

function verifierRow(verifier) {
  const waiting = verifier.waiting ? `, ${whole(verifier.waiting)} waiting` : "";
  const state = verifier.draining ? ", draining" : "";
  return [
    twoLines(verifier.model, `verifier · ${exactness(verifier)}`),
    twoLines(verifier.device + (SHARING[verifier.sharing] ?? ""), verifier.host),
    `${verifier.running} of ${verifier.slots}${waiting}${state}`,
    decimal(verifier.tokens_per_second),
    decimal(verifier.tokens_per_round, 2),
    percent(verifier.acceptance_rate),
    UNKNOWN,
    twoLines(verifier.speedup ? `${decimal(verifier.speedup)}× plain` : "nothing asked of it yet", verifier.payoff.sentence),
  ];
}

function exactness(verifier) {
  const counts = Object.keys(verifier.row_cost).map(Number);
  const rows = counts.find((count) => count >= 8) ?? counts.at(-1);
  const cost = rows > 1 ? ` · ${rows} rows take ${decimal(verifier.row_cost[rows])} steps` : "";
  return `exact in ${verifier.exactness === "strict" ? "every bit" : "law"}${cost}`;
}

function drafterRow(drafter, fleet, sources) {
  const verifier = fleet.verifiers.find(({ id }) => id === drafter.verifier);
  const target = fleet.verifiers.length > 1 && verifier ? ` for ${verifier.model}` : "";
  const mark = element("span", { class: `mark ${sources.mark(drafter.id)}` }, drafter.model);
  return [
    twoLines(mark, drafter.kind === "model" ? `drafter${target}` : `drafter without a model${target}`),
    twoLines(drafter.device, drafter.host),
    `${drafter.sessions} of ${drafter.capacity}`,
    decimal(drafter.tokens_per_second),
    decimal(drafter.tokens_per_round, 2),
    percent(drafter.acceptance_rate),
    milliseconds(drafter.round_trip_ms),
    worth(drafter),
  ];
}

function worth(drafter) {
  if (drafter.refused !== null) return `refused: ${drafter.refused}`;
  if (drafter.adds === null) return "nothing asked of it yet";
  return `+${decimal(drafter.adds, 2)} a round`;
}

function gatewayRow(gateway) {
  return [twoLines(gateway.url, "gateway"), gateway.host, gateway.load, ...Array(5).fill(UNKNOWN)];
}

/** The table of running requests, or why there is none. */
export function requestTable(fleet, sources) {
  if (!fleet.requests.length) {
    const waits = fleet.totals.waiting ? `${whole(fleet.totals.waiting)} wait for a verifier. ` : "";
    const base = new URL("v1", document.baseURI).href;
    return element("p", { class: "empty" }, `${waits}Nothing runs. Ask in the chat, or point a client at `, element("code", {}, base), ".");
  }
  const columns = [
    ["Request", "short"],
    ["Age", NUMBER],
    ["Tokens", NUMBER],
    ["Tokens/s", NUMBER],
    ["Tokens/round", NUMBER],
    ["Speculates?", null],
  ];
  const rows = fleet.requests.map((request) => [
    twoLines(element("code", {}, request.request_id.replace(/^req-/, "").slice(0, 10)), request.model),
    age(request.age_ms),
    whole(request.offset),
    decimal(request.tokens_per_second),
    decimal(request.tokens_per_round, 2),
    why(request, sources),
  ]);
  return table("What the verifiers work on, and why each request speculates or does not", columns, rows);
}

function why(request, sources) {
  const names = request.drafters.map((id) => sources.name(id)).join("; ") || "nobody";
  return request.reason ? twoLines(`no: ${request.reason}`, `asked: ${names}`) : twoLines("yes, its drafts pay", `from ${names}`);
}

/** What needs looking at, and what to do about what is missing: a list of paragraphs. */
export function advice(fleet) {
  const found = fleet.conflicts.map(({ note }) => element("p", {}, `${note}.`));
  for (const { requests, model, reason } of fleet.deserted) {
    found.push(element("p", {}, `${whole(requests)} ${requests === 1 ? "request waits" : "requests wait"} for ${model}: ${reason}.`));
  }
  const command = (text) => element("code", {}, text);
  if (!fleet.verifiers.length) {
    found.push(element("p", {}, "Start everything on this machine with ", command("draftmesh up"), ", or a verifier alone with ", command("draftmesh verifier --target-model FILE"), "."));
  } else if (!fleet.drafters.some(({ refused }) => refused === null)) {
    found.push(element("p", {}, "Any spare device can guess ahead: run ", command("draftmesh join redis://HOST"), " there."));
  }
  return found;
}
