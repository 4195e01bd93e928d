// One incident: a sentence, its course, the recording, tables.
'use strict';

const COUNTERS = /^(total_)?(pg|workingset_|thp_|zswp|swpin|swpout|numa_)|^HugePages_/;
const processName = (one) => `${one.comm} (${one.pid})`;
const bySize = (map) => Object.entries(map).sort((one, other) => other[1] - one[1]);
const quoted = (argument) => (/^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`);
const bullets = (texts) => el('ul', null, texts.map((each) => el('li', null, each)));
const code = (text) => el('code', null, text);
const commandLine = (argv) => code(argv.map(quoted).join(' '));
/** What may be null beside its reason, as a field. */
const fieldOf = (of, key) => (of[`${key}Missing`] ? { missing: of[`${key}Missing`] } : { value: of[key] });
const limitOf = (incident, path) => valueOf(valueOf(incident.cgroups)?.find((one) => one.path === path)?.max) ?? null;

/** What happened, in a sentence. */
function sentence(incident) {
  const [first] = incident.victims;
  const others = incident.victims.length - 1 + incident.moreVictims;
  const workload = valueOf(incident.workload);
  const who = first ? `${processName(first)}${others > 0 ? ` and ${plural(others, 'process')} more` : ''}` : 'nobody';
  const whom = workload ? (first ? `${who} of ${fullName(workload)}` : fullName(workload)) : who;
  const limit = valueOf(incident.limit);
  const highest = limit && limitOf(incident, limit.cgroup);
  const at = limit ? `cgroup ${limit.cgroup} was at its limit${highest ? ` of ${bytes(highest)}` : ''}` : 'a cgroup was at its limit';
  const crossed = valueOf(incident.decision)?.threshold;
  const [left, wanted, short] = crossed ? [crossed.available, crossed.quantity, crossed.quantity - crossed.available].map((each) => amount(crossed.signal, each)) : [];
  const because = crossed ? `: ${crossed.signal} was ${left.replace('.0', '') === wanted.replace('.0', '') ? `${short} less than ${wanted}` : `${left}, less than ${wanted}`}` : '';
  const trigger = valueOf(incident.trigger);
  const killed = `The kernel killed ${whom}`;
  switch (incident.cause) {
    case 'memcgOom': return `${killed}: ${at}.`;
    case 'groupOom': return `${killed}, all together: ${at}.`;
    case 'globalOom': return `${killed}: the node was out of memory.`;
    case 'kernelOom': return `${killed}: memory ran out, and it is not known for whose limit.`;
    case 'eviction': return `Brink evicted ${whom}${because}.`;
    case 'wouldEvict': return `Brink would have evicted ${whom}${because}.`;
    case 'foreignKill': return `${trigger ? processName(trigger) : 'Somebody else'} killed ${whom} with SIGKILL.`;
    default: return `${causeName(incident.cause)}: ${whom}.`;
  }
}

function overview(incident) {
  const workload = valueOf(incident.workload);
  const limit = (one) => `${one.cgroup} (${METHODS[one.method] ?? one.method}; ${one.confidence})`;
  return [
    facts([
      ['Incident', incident.id],
      ['When', time(incident.at, 6)],
      ['State', `${incident.isFinal ? 'closed' : 'open'}, revision ${incident.revision}`],
      ['Cause', incident.cause],
      ['Limit that was hit', field(incident.limit, limit)],
      ['Fork root', field(incident.forkRoot, processName)],
      ['Workload', field(incident.workload, fullName)],
      ...(workload ? [
        ['Container', nullable(workload, 'container')],
        ...(workload.containerId ? [['Container id', code(workload.containerId)]] : []),
        ['QoS class', nullable(workload, 'qos')],
        ['Priority', String(workload.priority)],
        ['Memory requested', nullable(workload, 'request', bytes)],
        ['Owner', nullable(workload, 'owner')],
        ['Uid', workload.uid],
      ] : []),
    ]),
    incident.evidence.length ? [el('h3', null, 'Evidence'), bullets(incident.evidence)] : null,
  ];
}

/** How long after the incident's own moment another one was. */
const distance = (incident) => (at) => {
  const millis = (at.monotonicNs - incident.at.monotonicNs) / 1e6;
  return millis < 0 ? `−${stretch(-millis)}` : `+${stretch(millis)}`;
};

/** The moments of its course, with the distance from the first. */
function course(incident) {
  const { killed, exited, memoryBack, freed, containerSurvived, end } = incident.course;
  const row = (name, at) => [name, field(at, distance(incident)), field(at, (found) => time(found, 6))];
  return [
    table('Course', ['Step', '#After', '@At'], [
      ['Victim chosen or signalled', '0 ms', time(incident.at, 6)],
      row('First signal sent', killed), row('Last victim exited', exited), row('Memory back', memoryBack),
    ]),
    facts([
      ['Memory freed', field(freed, bytes)],
      ['Container', field(containerSurvived, (lives) => (lives ? 'survived: it still had processes' : 'gone: no process was left'))],
      ['Over because', end ?? 'it is still open'],
    ]),
  ];
}

const track = (points, key) =>
  points.filter((point) => point[key] !== null && point[key] !== undefined).map((point) => [-point.beforeMs, point[key]]);

/** What a counter rose by in a second, over at least a tenth of one. */
function rate(points, key, factor = 1) {
  const rates = [];
  let from = null;
  for (const point of track(points, key)) {
    if (from && point[0] - from[0] < 100) continue;
    if (from) rates.push([point[0], Math.max(0, ((point[1] - from[1]) * 1000 * factor) / (point[0] - from[0]))]);
    from = point;
  }
  return rates;
}

const memory = (title, points, names, marks) =>
  ({ title, end: 'kill', marks, series: names.map(([name, key]) => ({ name, points: track(points, key) })) });

/** What was counted all the while, where it was. */
function rates(points) {
  const whole = (value) => count(Math.round(value));
  const all = [
    ['Waiting for memory (PSI, some): share of time', 'waiting', rate(points, 'stallUs', 1 / 10_000), (value) => `${Number(value.toFixed(1))} %`],
    ['Direct reclaims a second', 'reclaims/s', rate(points, 'reclaims'), whole],
    ['Forks a second', 'forks/s', rate(points, 'forks'), whole],
  ];
  return all.filter((each) => each[2].length > 0).map(([title, name, found, format]) =>
    ({ title, height: 96, isBytes: false, end: 'kill', format, series: [{ name, points: found }] }));
}

function cgroupPanels(incident, { path, points, limit }) {
  const highest = limit ?? limitOf(incident, path);
  const names = [['in use', 'usage'], ['working set', 'workingSet'], ['anonymous', 'anon'], ['files', 'file']];
  const marks = highest ? [{ name: 'limit', y: highest, look: 'hard' }] : [];
  return [memory(`Memory of ${path}`, points, names, marks), ...rates(points)];
}

function nodePanels(incident, points) {
  const crossed = valueOf(incident.decision)?.threshold;
  const names = [['available', 'available'], ['headroom', 'headroom'], ['anonymous', 'anon'], ['files', 'file']];
  const marks = crossed?.signal.startsWith('memory.') ? [{ name: crossed.signal, y: crossed.quantity, look: 'hard' }] : [];
  return [memory('Memory of the node', points, names, marks), ...rates(points)];
}

function drawn(id, name, panels, points) {
  const longest = points.reduce((most, point) => Math.max(most, point.beforeMs), 1000);
  const domain = [-Math.ceil(longest / 1000) * 1000, 0];
  return [chart(name, panels, domain), more(id, `${name} as a table`, chartTable(name, panels, domain))];
}

/** The flight recorder: the victim's cgroup, any other that was near its limit, and the node. */
function recorder(incident, recording) {
  const own = incident.victims.map((victim) => valueOf(victim.cgroup)).find(Boolean) ?? valueOf(incident.cgroups)?.[0]?.path ?? 'the victim’s cgroup';
  const tracks = [{ path: own, points: recording.cgroup }, ...recording.others].filter((each) => each.points.length > 0);
  const place = el('div');
  const show = (chosen) => place.replaceChildren(...drawn('cgroup-table', 'The cgroup before it', cgroupPanels(incident, chosen), chosen.points));
  const choice = el('select', { id: 'track' }, tracks.map((each, index) => el('option', { value: index }, each.path)));
  choice.addEventListener('change', () => show(tracks[Number(choice.value)]));
  if (tracks.length) show(tracks[0]);
  const reason = recording.cgroupMissing;
  const unseen = recording.nodeMissing;
  return [
    recording.isBrief ? el('p', { class: 'note' }, 'Thinned, and without other cgroups: many incidents came at once.') : null,
    reason && reason !== 'notApplicable' ? el('p', { class: 'note' }, `The victim’s cgroup was not recorded: ${MISSING[reason] ?? reason}.`) : null,
    tracks.length > 1 ? el('p', null, el('label', { for: 'track' }, 'Cgroup '), choice) : null,
    tracks.length ? place : none('No cgroup was recorded.'),
    recording.node.length ? drawn('node-table', 'The node before it', nodePanels(incident, recording.node), recording.node)
      : none(`The node was not recorded${unseen ? `: ${MISSING[unseen] ?? unseen}` : ''}.`),
  ];
}

const crowded = (number, noun) => (number ? el('p', null, `${plural(number, noun)} more found no room in the record.`) : null);

function victims(incident) {
  const heads = ['Process', '#Anonymous', '#Files', '#Shared', '#Swap', '#Page tables', '#oom_score_adj', '#User', '#Age', '#Exited', '~Cgroup', '~Arguments'];
  const row = (one) => [
    processName(one), ...[one.anon, one.file, one.shmem, one.swap, one.pageTables].map((each) => brief(each, bytes)),
    brief(one.oomScoreAdj, String), brief(one.uid, String), brief(one.ageNs, (age) => stretch(age / 1e6)),
    brief(one.exited, distance(incident)), brief(one.cgroup, code), brief(one.argv, commandLine),
  ];
  return [
    incident.victims.length ? table('Victims', heads, incident.victims.map(row)) : none('No victim is known.'),
    crowded(incident.moreVictims, 'victim'),
  ];
}

/** Whom somebody else killed while our order for their workload was open. */
function otherKills(incident) {
  const row = (one) => [
    processName(one), distance(incident)(one.at), time(one.at, 6), processName({ comm: one.senderComm, pid: one.senderPid }), String(one.signalCode),
  ];
  return [
    table('Killed by others', ['Process', '#After', '@At', 'Sent by', '#Signal code'], incident.otherKills.map(row)),
    crowded(incident.moreOtherKills, 'process'),
  ];
}

/** Where the processes came from that took all ids. */
function forkRoot(root) {
  const started = (one) => field(one.startNs, (nanos) => `${(nanos / 1e9).toFixed(6)} s after boot`);
  const parent = valueOf(root.parent);
  return facts([
    ['Process', processName(root)],
    ['Started', started(root)],
    ['Arguments', field(root.argv, commandLine)],
    ['Forked by', field(root.parent, processName)],
    ['Which was started', parent && started(parent)],
    ['Share', `${count(root.descendants)} of the ${count(root.of)} that were forked last descend from it`],
  ]);
}

function cgroups(list) {
  const limit = (value) => (value === null ? 'none' : bytes(value));
  const events = (map) => bySize(map).map(([name, number]) => `${name} ${count(number)}`).join(', ') || 'none';
  const row = (one) => [
    code(one.path), brief(one.usage, bytes), brief(one.max, limit), brief(one.high, limit), brief(one.swap, bytes),
    brief(one.group, (together) => (together ? 'together' : 'one by one')), brief(one.events, events),
  ];
  return table('Cgroups, innermost first', ['~Cgroup', '#In use', '#memory.max', '#memory.high', '#Swap', 'Killed', '~memory.events'], list.map(row));
}

/** A map of amounts: what is bytes in a table, and what only counts behind a fold. */
function amounts(id, caption, map) {
  const isCounter = ([name]) => COUNTERS.test(name);
  // The kernel of cgroup v1 writes a limit that is none as the largest number of pages.
  const row = ([name, size]) => [name, ...(name.startsWith('hierarchical_') && size >= 2 ** 62 ? ['none', ''] : [bytes(size), count(size)])];
  const all = bySize(map);
  const counters = all.filter(isCounter);
  return [
    table(caption, ['Name', '#Size', '#Bytes'], all.filter((each) => !isCounter(each)).map(row)),
    counters.length ? more(`${id}-counters`, 'Counters', table(`${caption}: counters`, ['Name', '#Count'], counters.map(([name, number]) => [name, count(number)]))) : null,
  ];
}

const processes = (caption, list) => table(caption, ['Process', '#Resident', '#Swap', '#oom_score_adj'],
  list.map((one) => [processName(one), bytes(one.rss), brief(fieldOf(one, 'swap'), bytes), brief(fieldOf(one, 'oomScoreAdj'), String)]));

/** The first cells of a workload in eviction order. */
const ranked = (one, index, usage) => [String(index + 1), fullName(one), usage, bytes(one.request), String(one.priority), one.refusal ?? ''];

/** Who could have been evicted instead. */
function workloads(found) {
  const row = (one, index) => [
    ...ranked(one, index, brief(one.usage, bytes)), one.usageAgeMs === null ? '' : stretch(one.usageAgeMs), one.qos, preference(one), one.cgroup && code(one.cgroup),
  ];
  return [
    table('In the order of memory.available', ['#Place', 'Workload', '#Uses', '#Requested', '#Priority', 'Refuses', '#Read before', 'QoS class', 'Preference', '~Cgroup'], found.lines.map(row)),
    crowded(found.more, 'workload'),
  ];
}

function configuration(found) {
  return [
    facts([
      ['Mode', found.mode],
      ['Memory policy', found.memoryPolicy],
      ['Pressure transition period', found.pressureTransition],
      ['Longest grace of a soft eviction, in seconds', found.maxPodGraceSeconds],
    ]),
    table('Thresholds', ['Threshold', '#Minimum reclaim'], found.thresholds.map((one, index) => [one, found.parts?.[index]?.minReclaim])),
  ];
}

function nodeState(node) {
  const zoneState = (zone) => (zone.free < zone.min ? 'below min' : zone.free < zone.low ? 'below low' : zone.free < zone.high ? 'below high' : 'above high');
  const zones = (list) => table('Zones against their watermarks, in pages', ['Zone', '#Free', '#min', '#low', '#high', 'State'],
    list.map((zone) => [`node ${zone.node}, ${zone.zone}`, ...[zone.free, zone.min, zone.low, zone.high].map(count), zoneState(zone)]));
  return [
    facts([
      ['memory.available', field(node.available, bytes)],
      ['memory.headroom', field(node.headroom, bytes)],
      ['Capacity', field(node.capacity, bytes)],
      ['Usable swap', field(node.usableSwap, bytes)],
      ['Waited for memory, 10 s', field(node.pressure, (psi) => `some ${psi.some} %, full ${psi.full === null ? 'unknown' : `${psi.full} %`}`)],
      ['Reclaim cost the victim', field(node.reclaimNs, (nanos) => stretch(nanos / 1e6))],
    ]),
    field(node.zones, zones),
    more('meminfo', '/proc/meminfo', field(node.meminfo, (map) => amounts('meminfo', '/proc/meminfo', map))),
    more('vmstat', 'Reclaim since boot', field(node.vmstat, (map) => table('/proc/vmstat', ['Name', '#Count'], bySize(map).map(([name, number]) => [name, count(number)])))),
  ];
}

function trigger(one) {
  const frame = (each) => `${each.buildId ? `${each.buildId} + ` : ''}0x${each.offset.toString(16)}`;
  const stack = (frames, text) => (frames.length ? el('ol', { class: 'stack', start: 0 }, frames.map((each) => el('li', null, code(text(each))))) : 'empty');
  return [
    facts([
      ['Process', `${one.comm} (${one.pid}, thread ${one.tid})`],
      ['Cgroup', field(one.cgroup, code)],
      ['Signal code', field(one.signalCode, String)],
      ['Allowed for the allocation', field(one.gfp, code)],
      ['By the names of its flags', field(one.gfpFlags, (flags) => code(flags.join('|')))],
      ['Allocation', field(one.order, (order) => `order ${order}: ${plural(2 ** order, 'page')}`)],
    ]),
    el('h3', null, 'Kernel stack'), field(one.kernelStack, (frames) => stack(frames, String)),
    el('h3', null, 'User stack'),
    el('p', { class: 'note' }, 'Made by following frame pointers: code without them is skipped or cut off.'),
    field(one.userStack, (frames) => stack(frames, frame)),
  ];
}

function decision(record) {
  const place = (one, index) => ranked(one, index, one.usage === null ? 'unknown' : bytes(one.usage));
  const stage = (one) => [one.stage, one.sinceSampleNs === null ? '' : stretch(one.sinceSampleNs / 1e6), wall(one.wall, 6)];
  const whole = el('pre');
  whole.textContent = JSON.stringify(record, null, 2).split('\n').map(plain).join('\n');
  return [
    Array.isArray(record.why) ? bullets(record.why) : null,
    Array.isArray(record.ranking) ? table('Eviction order', ['#Place', 'Workload', '#Uses', '#Requested', '#Priority', 'Refuses'], record.ranking.map(place)) : null,
    Array.isArray(record.stages) ? table('Stages', ['Stage', '#After the sample', '@At'], record.stages.map(stage)) : null,
    more('decision-json', 'The whole record', whole),
  ];
}

/** Every field without a value, with the reason. */
function absent(value, path = '') {
  if (value === null || typeof value !== 'object') return [];
  const entries = Object.entries(value);
  if (entries.length === 1 && typeof value.missing === 'string') return [[path, value.missing]];
  const step = (key) => (Array.isArray(value) ? `[${key}]` : key === 'value' ? '' : `${path ? '.' : ''}${key}`);
  const beside = entries.filter(([key, each]) => key.endsWith('Missing') && typeof each === 'string')
    .map(([key, each]) => [path + step(key.slice(0, -7)), each]);
  return [...beside, ...entries.flatMap(([key, each]) => absent(each, path + step(key)))];
}

function absences(incident) {
  const { decision: _decision, ...rest } = incident;
  const reasons = Map.groupBy([...absent(rest), ...('missing' in incident.decision ? absent({ decision: incident.decision }) : [])], ([, reason]) => reason);
  const rows = [...reasons].map(([reason, found]) => [MISSING[reason] ?? reason, found.map(([path]) => path).join(', ')]);
  return rows.length ? table('Missing fields', ['Reason', '~Fields'], rows) : el('p', null, 'Nothing is missing.');
}

/** An incident as an article. */
function incidentView(incident) {
  const part = (id, title, found, show) => section(id, title, field(found, show));
  return el('article', { 'aria-labelledby': 'incident-title' },
    el('h1', { id: 'incident-title', tabindex: -1 }, causeName(incident.cause)),
    el('p', { class: 'lead' }, sentence(incident)),
    section('overview', 'Overview', overview(incident)),
    section('course', 'What became of it', course(incident)),
    part('recorder', 'Flight recorder', incident.recording, (found) => recorder(incident, found)),
    section('victims', 'Victims', victims(incident)),
    incident.otherKills?.length ? section('other-kills', 'Killed by others meanwhile', otherKills(incident)) : null,
    valueOf(incident.forkRoot) ? part('fork-root', 'Where its processes came from', incident.forkRoot, forkRoot) : null,
    part('cgroups', 'Cgroups', incident.cgroups, cgroups),
    part('memory-stat', 'memory.stat of the victim’s cgroup', incident.memoryStat, (map) => amounts('memory-stat', 'memory.stat', map)),
    part('top-of-cgroup', 'Processes of the cgroup', incident.topOfCgroup, (list) => processes('Most memory in the cgroup', list)),
    part('top-of-node', 'Processes of the node', incident.topOfNode, (list) => processes('Most memory on the node', list)),
    part('ranked', 'Workloads of the node', incident.workloads, workloads),
    part('node', 'The node', incident.node, nodeState),
    part('trigger', 'Trigger', incident.trigger, trigger),
    part('decision', 'Brink’s decision', incident.decision, decision),
    part('configuration', 'Configuration', incident.configuration, configuration),
    section('missing', 'Missing fields', absences(incident)));
}
