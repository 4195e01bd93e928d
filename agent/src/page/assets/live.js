// The live page: figures are asked for every second, events listened to, incidents shown by the address.
'use strict';

const BOUNDS = { incidents: 500, relistMs: 1000, events: 200, places: 200, trendMs: 120_000, pollMs: 1000, retryMs: 2000, patienceMs: 8000 };
const SIGNALS = ['memory.available', 'memory.headroom', 'allocatableMemory.available', 'pid.available',
  ...['nodefs', 'imagefs', 'containerfs'].flatMap((role) => [`${role}.available`, `${role}.inodesFree`])];
const INCIDENT_KINDS = ['eviction-ordered', 'eviction-completed', 'oom-kill', 'kill-observed', 'incident-closed'];
const OTHER_KINDS = ['agent-started', 'pressure', 'threshold-crossed', 'threshold-cleared', 'workload-started', 'workload-ended', 'limit-imminent', 'oom-score-adj-differs', 'node-reclaim', 'loss', 'rung-changed', 'configuration-changed'];
const MODES = {
  enforcing: 'orders are carried out',
  observing: 'orders are told and not carried out',
  standby: 'another agent enforces on this node',
  paused: 'the stop button is pressed',
  throttled: 'too many kills came in a row; `brink resume` enforces again',
  exhausted: 'too many kills came within the window; `brink resume` enforces again',
};

const at = (id) => document.getElementById(id);
/** The boot and the number of an event, or of an incident: within a boot they order, whatever becomes of the wall clock. */
const place = (one) => (one.bootId ? [one.bootId, one.seq] : one.id.split('-'));
function newest(one, other) {
  const [boot, number] = place(one);
  const [otherBoot, otherNumber] = place(other);
  return boot === otherBoot ? otherNumber - number : one.at.wall < other.at.wall ? 1 : -1;
}
const incidents = new Map();
let events = [];
let trend = [];
/** What the connection stands on: the polls, the event stream, where it stands, and when the page began to look. */
const link = { answers: false, hears: false, source: null, last: null, began: null, tries: 0, node: null };
/** The incident that is looked at. */
const story = { id: null, revision: 0 };

async function ask(path) {
  const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(BOUNDS.patienceMs) });
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let refusal = {};
  try { refusal = JSON.parse(text); } catch { /* An answer that is no refusal of the agent's has no words for us. */ }
  const said = [refusal.error, refusal.next].filter(Boolean).join('; ');
  throw Object.assign(new Error(said || `the agent answers ${response.status}`), { answered: true });
}

// The connection.

function tellConnection() {
  const isLive = link.answers && link.hears;
  const begun = link.began !== null || link.tries > 1;
  at('connection').dataset.state = isLive ? 'live' : begun ? 'lost' : 'new';
  tell(at('connection'), isLive ? 'live' : begun ? 'disconnected, retrying' : 'connecting');
  document.body.classList.toggle('stale', begun && !link.answers);
}

function listen() {
  link.source?.close();
  link.tries += 1;
  // The journalled past, so that nothing is missed between this and the list; later from where it broke off.
  const since = link.last ?? '10m';
  const source = new EventSource(`/v1/events?follow=1&since=${encodeURIComponent(since)}`);
  link.source = source;
  source.addEventListener('open', () => {
    link.hears = true;
    tellConnection();
    loadIncidents();
  });
  source.addEventListener('error', () => {
    link.hears = false;
    tellConnection();
    // A refused stream is not tried again by the browser. Perhaps the place in it is not known any more.
    if (source.readyState === EventSource.CLOSED) link.last = null;
  });
  for (const kind of ['message', ...INCIDENT_KINDS, ...OTHER_KINDS]) source.addEventListener(kind, hear);
}

/** Ends the wait for the next poll. */
let wake = () => {};

/** Listens while somebody looks: a browser has six connections to one host, and hidden tabs would keep them from the others. */
function attend() {
  if (document.hidden) {
    link.source?.close();
    link.source = null;
  } else if (!link.source) {
    listen();
  }
  wake();
}

let relisting = null;
function hear(message) {
  if (message.lastEventId) link.last = message.lastEventId;
  const event = JSON.parse(message.data);
  if (event.kind !== 'Event') return;
  link.node = event.node;
  if (INCIDENT_KINDS.includes(event.type)) {
    const isNew = takeIncident(event.data);
    if (isNew && link.began !== null && event.at.monotonicNs > link.began) announce(event.data);
  } else if (!events.some((known) => known.seq === event.seq && known.bootId === event.bootId)) {
    events = [event, ...events].sort(newest).slice(0, BOUNDS.events);
    // What this page was too slow for can be asked for; such losses come in crowds.
    if (event.type === 'loss' && event.data.place === 'reader') {
      relisting ??= setTimeout(() => {
        relisting = null;
        loadIncidents();
      }, BOUNDS.relistMs);
    }
  }
  redraw();
}

let fresh = [];
function announce(incident) {
  if (fresh.push(incident) > 1) return;
  setTimeout(() => {
    const last = sentence(fresh.at(-1));
    tell(at('news'), fresh.length === 1 ? `New incident. ${last}` : `${fresh.length} new incidents. The newest: ${last}`);
    fresh = [];
  }, 1000);
}

// What is known of incidents.

/** Keeps what the list shows, from the whole or from what is listed of it; whether it was not known at all. */
function takeIncident(incident) {
  const known = incidents.get(incident.id);
  if (known?.revision >= incident.revision) return false;
  const workload = valueOf(incident.workload) ?? (incident.name ? incident : null);
  const [first] = incident.victims;
  const summary = {
    id: incident.id, cause: incident.cause, revision: incident.revision, isFinal: incident.isFinal, at: incident.at,
    namespace: workload?.namespace ?? '', workload: workload ? fullName(workload) : '',
    process: first ? processName(first) : '', more: incident.victims.length - 1 + incident.moreVictims,
    limit: valueOf(incident.limit)?.cgroup ?? '',
  };
  summary.words = [incident.id, causeName(incident.cause), summary.workload, summary.process, summary.limit, valueOf(first?.cgroup) ?? ''].join(' ').toLowerCase();
  incidents.set(incident.id, summary);
  if (incidents.size > BOUNDS.incidents) incidents.delete([...incidents.values()].sort(newest).at(-1).id);
  if (story.id === incident.id && incident.revision > story.revision) {
    if (incident.recording) showIncident(incident);
    else loadStory();
  }
  return !known;
}

async function loadIncidents() {
  try {
    const answer = await ask(`/v1/incidents?limit=${BOUNDS.incidents}`);
    answer.items.forEach(takeIncident);
    redraw();
    if (story.id && !story.revision) loadStory();
  } catch (error) {
    if (error.answered) tell(at('found'), error.message);
  }
}

// Polls.

async function poll() {
  try {
    const status = await ask('/v1/status');
    link.answers = true;
    // That clock begins anew with each boot.
    if (link.began === null || status.now.monotonicNs < link.began) link.began = status.now.monotonicNs;
    showStatus(status);
    if (!at('home').hidden) await showRanking();
    if (link.source?.readyState === EventSource.CLOSED) listen();
  } catch (error) {
    link.answers = Boolean(error.answered);
    link.tries += 1;
  }
  tellConnection();
}

/** One poll after the other; none while nobody looks. */
async function keepPolling() {
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => {
      wake = resolve;
      if (!document.hidden) setTimeout(resolve, link.answers ? BOUNDS.pollMs : BOUNDS.retryMs);
    });
  }
}

function showStatus(status) {
  tell(at('agent'), `${link.node ?? location.host} · ${status.mode} · version ${status.version}`);
  const order = status.openOrder;
  tell(at('orders'), [
    `${status.mode}: ${MODES[status.mode] ?? 'no word for it here'}.`,
    status.conditions.length ? `Conditions: ${status.conditions.join(', ')}.` : 'No pressure is reported.',
    order ? `Order ${order.order} is open: ${order.victim}, for ${order.signal}.` : '',
  ].filter(Boolean).join(' '));
  gauges(status);
  trend.push({ at: status.now.monotonicNs / 1e6 - (status.figuresAgeMs ?? 0), values: Object.fromEntries(status.signals.map((one) => [one.signal, one.available])) });
  // After a new boot the clock begins anew.
  trend = trend.filter((each, index) => trend.at(-1).at - each.at <= BOUNDS.trendMs && (trend.at(-1).at > each.at || index === trend.length - 1));
  drawTrend(status);
}

function thresholdState(threshold) {
  if (!threshold.observed) return 'not measured here';
  if (!threshold.met) return 'clear';
  const since = threshold.metForMs === null ? '' : ` for ${stretch(threshold.metForMs)}`;
  return `MET${since}${threshold.held ? `, held: ${threshold.held}` : ''}`;
}

const bar = (ticks) => el('div', { class: 'bar', 'aria-hidden': 'true' }, el('i', { class: 'fill' }), ticks.map((each) => el('i', { class: `tick ${each.hard ? 'hard' : 'soft'}` })));

/** One block for each signal; built when signals or thresholds are others than before, filled anew every time. */
function gauges(status) {
  const place = at('gauges');
  const ofSignal = (name) => status.thresholds.filter((each) => each.signal === name);
  const known = new Map(status.signals.map((one) => [one.signal, one]));
  const places = (name) => (known.has(name) ? 0 : 100) + (SIGNALS.indexOf(name) + 1 || 50);
  const names = [...new Set([...known.keys(), ...status.thresholds.map((each) => each.signal)])].sort((one, other) => places(one) - places(other));
  const shape = JSON.stringify([names, status.thresholds.map((each) => [each.signal, each.value, each.graceSeconds])]);
  if (place.dataset.shape !== shape) {
    place.dataset.shape = shape;
    place.replaceChildren(...names.map((name) => {
      const own = ofSignal(name);
      return el('div', { class: 'gauge' }, el('h3', null, name), el('p', { class: 'figure' }), bar(own), el('ul', null, own.map(() => el('li'))));
    }));
  }
  const whyOf = (name) => status.disks?.filesystems.find((one) => name.startsWith(one.role))?.why;
  names.forEach((name, index) => fillGauge(place.children[index], known.get(name), ofSignal(name), whyOf(name)));
}

function fillGauge(gauge, seen, thresholds, why) {
  const share = (value) => `${Math.max(0, Math.min(100, (value * 100) / (seen?.capacity || 1))).toFixed(2)}%`;
  const name = seen?.signal;
  tell(gauge.querySelector('.figure'), seen ? `${amount(name, seen.available)} of ${amount(name, seen.capacity)} (${percent(seen.available, seen.capacity)})` : `not measured here${why ? ` (${why})` : ''}, so its thresholds are never met`);
  gauge.dataset.state = thresholds.some((each) => each.met) ? 'met' : seen ? 'clear' : 'unknown';
  gauge.querySelector('.fill').style.width = seen ? share(seen.available) : '0';
  const ticks = gauge.querySelectorAll('.tick');
  const lines = gauge.querySelectorAll('li');
  thresholds.forEach((each, index) => {
    ticks[index].hidden = !seen || each.quantity === null;
    if (!ticks[index].hidden) ticks[index].style.left = share(each.quantity);
    const kind = each.hard ? 'hard' : `soft, ${stretch(each.graceSeconds * 1000)}`;
    tell(lines[index], `below ${each.value} (${kind}): ${thresholdState(each)}`);
  });
}

function drawTrend(status) {
  const place = at('trend');
  const width = place.clientWidth;
  if (width < 100 || trend.length < 2) return;
  const now = trend.at(-1).at;
  const names = ['memory.available', 'memory.headroom'];
  const series = names.map((name) => ({ name, points: trend.filter((each) => each.values[name] !== undefined).map((each) => [each.at - now, each.values[name]]) }));
  const marks = status.thresholds.filter((each) => names.includes(each.signal) && each.observed && each.quantity !== null)
    .map((each) => ({ name: `${each.signal} ${each.hard ? 'hard' : 'soft'}`, y: each.quantity, look: each.hard ? 'hard' : 'soft' }));
  place.replaceChildren(panel({ title: 'The last two minutes', series, marks, gap: 10_000 }, width, [-BOUNDS.trendMs, 0]).box);
}

// Tables whose rows stay the same elements while their order and figures change.

function liveTable(place, caption, heads) {
  place.replaceChildren(table(caption, heads, []));
  const body = place.querySelector('tbody');
  return (rows) => {
    const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
    rows.forEach(({ key, cells, look }, index) => {
      const row = old.get(key) ?? el('tr', null, heads.map(() => '').map(cellsUnder(heads)));
      old.delete(key);
      row.dataset.key = key;
      row.className = look ?? '';
      cells.forEach((content, column) => fillCell(row.children[column], content));
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    old.forEach((row) => row.remove());
  };
}

function fillCell(cell, content) {
  if (typeof content === 'string') return tell(cell, content);
  if (!cell.firstChild) cell.append(content.href ? el('a', { href: content.href }, content.text) : el('span'), content.share === undefined ? '' : bar([{ hard: false }]));
  tell(cell.firstChild, content.text);
  if (content.share !== undefined) {
    cell.querySelector('.fill').style.width = `${(content.share * 100).toFixed(1)}%`;
    cell.querySelector('.tick').style.left = `${(content.tick * 100).toFixed(1)}%`;
  }
}

const fillRanking = liveTable(at('ranking'), 'First to go in front', ['Workload', 'Uses against request', '#Requested', '#Priority', 'Preference', 'Refuses', '~Why before the next']);
async function showRanking() {
  const signal = at('signal').value;
  try {
    const ranking = await ask(`/v1/rank?signal=${encodeURIComponent(signal)}`);
    if (signal !== at('signal').value) return;
    const { workloads, why } = ranking;
    // Of inodes the request is one for bytes.
    const asks = (one) => (isCount(signal) ? 0 : one.request);
    const most = Math.max(1, ...workloads.map((one) => Math.max(one.usage ?? 0, asks(one))));
    const first = workloads.find((one) => one.refusal === null);
    tell(at('verdict'), workloads.length === 0 ? 'No workload is watched over.'
      : `${first ? `${fullName(first)} would go first.` : 'Nobody would go: all of them refuse.'} ${plural(workloads.length, 'candidate')}${workloads.length > BOUNDS.places ? `, of which the first ${BOUNDS.places} are shown` : ''}; figures are ${stretch(ranking.figuresAgeMs)} old.`);
    fillRanking(workloads.slice(0, BOUNDS.places).map((one, place) => ({
      key: one.uid || fullName(one), look: one.refusal === null ? '' : 'refuses',
      cells: [
        `${place + 1}. ${fullName(one)}`,
        { text: one.usage === null ? 'unknown' : amount(signal, one.usage), share: (one.usage ?? 0) / most, tick: asks(one) / most },
        signal.startsWith('pid.') ? '' : bytes(one.request), String(one.priority), preference(one), one.refusal ?? '', why[place]?.sentence ?? '',
      ],
    })));
  } catch (error) {
    if (!error.answered) throw error;
    tell(at('verdict'), error.message);
    fillRanking([]);
  }
}

// Incidents and events, filtered.

const fillIncidents = liveTable(at('incident-list'), 'Newest first', ['Incident', '@When', 'What', 'Workload', 'First victim', '~Limit', 'State']);
const fillEvents = liveTable(at('event-list'), 'Newest first', ['@When', 'What', 'Whom', '~Data']);

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    showLists();
  });
}

function matches(filter, what, namespace, words) {
  return ['', what].includes(filter.what) && ['', `=${namespace}`].includes(filter.namespace) && words.includes(filter.text);
}

function showLists() {
  const text = at('text').value.trim().toLowerCase();
  const filter = { what: at('cause').value, namespace: at('namespace').value, text };
  const all = [...incidents.values()].sort(newest);
  const chosen = all.filter((one) => matches(filter, one.cause, one.namespace, one.words));
  fillIncidents(chosen.map((one) => ({
    key: one.id, look: one.isFinal ? '' : 'open',
    cells: [
      { text: one.id, href: `#/incident/${encodeURIComponent(one.id)}` }, wall(one.at.wall), causeName(one.cause), one.workload,
      one.process + (one.more > 0 ? ` and ${one.more} more` : ''), one.limit, one.isFinal ? 'closed' : 'open',
    ],
  })));
  const told = events.map((event) => ({ event, data: JSON.stringify(event.data) }))
    .filter(({ event, data }) => matches(filter, event.type, event.subject?.namespace ?? '', `${event.type} ${event.subject ? fullName(event.subject) : ''} ${data}`.toLowerCase()));
  fillEvents(told.map(({ event, data }) => ({
    key: `${event.bootId}:${event.seq}`, cells: [wall(event.at.wall), event.type, event.subject ? fullName(event.subject) : '', data],
  })));
  tell(at('found'), `${chosen.length} of ${plural(all.length, 'incident')}`);
  fillNamespaces([...all.map((one) => one.namespace), ...events.filter((event) => event.subject).map((event) => event.subject.namespace)]);
}

const option = (value, text = value) => el('option', { value }, text);

/** Offers the namespaces that anything is of. */
function fillNamespaces(names) {
  const select = at('namespace');
  const wanted = new Set(names);
  for (const each of [...select.options].slice(1)) {
    // What is chosen stays: without it another filter would be in force.
    if (!wanted.delete(each.value.slice(1)) && !each.selected) each.remove();
  }
  for (const name of wanted) select.append(option(`=${name}`, name || '(none)'));
}

function fillFilters() {
  at('cause').append(option('', 'everything'), el('optgroup', { label: 'Incidents' }, Object.keys(CAUSES).map((cause) => option(cause, causeName(cause)))),
    el('optgroup', { label: 'Other events' }, OTHER_KINDS.map((kind) => option(kind))));
  at('namespace').append(option('', 'all'));
  at('signal').append(...SIGNALS.map((signal) => option(signal)));
  at('signal').addEventListener('change', () => showRanking().catch(tellConnection));
  at('filters').addEventListener('input', redraw);
  at('filters').addEventListener('submit', (event) => event.preventDefault());
}

// The incident that the address names.

const placeOf = (id) => `/v1/incidents/${encodeURIComponent(id)}`;

async function loadStory() {
  const { id } = story;
  try {
    const incident = await ask(placeOf(id));
    if (story.id === id) showIncident(incident);
  } catch (error) {
    if (story.id !== id) return;
    const words = error.answered ? error.message : 'The agent has not answered yet; it is asked again.';
    at('story').replaceChildren(back(), el('h1', { id: 'incident-title', tabindex: -1 }, `Incident ${id}`), el('p', { class: 'lead' }, words));
    focusTitle();
  }
}

/** Whoever followed a link stands at the heading of what it led to. */
function focusTitle() {
  if (document.activeElement === document.body) at('incident-title').focus();
}

const back = () => el('p', null, el('a', { href: '#/', id: 'back' }, '← All incidents'));

/** Shows it; what was unfolded and who had the focus stay when it is told anew. */
function showIncident(incident) {
  const place = at('story');
  const unfolded = [...place.querySelectorAll('details[open]')].map((each) => each.id);
  const focused = place.contains(document.activeElement) ? document.activeElement.id : null;
  const again = story.revision > 0;
  story.revision = incident.revision;
  const json = el('a', { href: placeOf(incident.id) }, 'as JSON');
  const command = el('code', null, `brink incident ${incident.id} --html`);
  place.replaceChildren(back(), incidentView(incident), el('p', { class: 'note' }, 'The same ', json, ', or as one file to attach to a ticket: ', command));
  unfolded.forEach((id) => { if (at(id)) at(id).open = true; });
  document.title = `${incident.id}: ${causeName(incident.cause)} · Brink`;
  if (focused) at(focused)?.focus({ preventScroll: true });
  else focusTitle();
  if (again) tell(at('news'), `Incident ${incident.id} is told anew: ${incident.isFinal ? 'it is closed' : 'it is open'}.`);
}

/** The id that the address names; what is not written as addresses are is the id of nothing. */
function named(written) {
  try { return decodeURIComponent(written); } catch { return written; }
}

function route() {
  const found = /^#\/incident\/(.+)$/.exec(location.hash);
  if (!found && !['', '#', '#/'].includes(location.hash)) return;
  const before = story.id;
  story.id = found ? named(found[1]) : null;
  story.revision = 0;
  at('home').hidden = Boolean(found);
  at('story').hidden = !found;
  at('story').replaceChildren();
  document.title = 'Brink';
  if (found) {
    document.activeElement?.blur();
    scrollTo(0, 0);
    loadStory();
  } else if (before) {
    showLists();
    const row = [...document.querySelectorAll('#incident-list a')].find((each) => each.textContent === before);
    (row ?? at('main')).focus();
  }
}

fillFilters();
at('tools').append(themeButton());
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  at('main').focus();
});
addEventListener('hashchange', route);
document.addEventListener('visibilitychange', attend);
tellConnection();
attend();
route();
keepPolling();
