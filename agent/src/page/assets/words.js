// Words, amounts and elements that every part of the page uses. Nothing is ever written as markup.
'use strict';

const CAUSES = {
  memcgOom: 'Out of memory in a cgroup',
  groupOom: 'Out of memory, whole group',
  globalOom: 'Out of memory on the node',
  kernelOom: 'Out of memory',
  eviction: 'Eviction',
  wouldEvict: 'Would have evicted',
  foreignKill: 'Killed from outside',
};
const MISSING = {
  kernelLacksIt: 'this kernel does not tell it',
  programNotLoaded: 'the kernel program that tells it is not loaded',
  processGone: 'the process was gone before it could be read',
  notPermitted: 'the agent may not read it',
  redacted: 'left out by configuration',
  notApplicable: 'does not apply',
  pending: 'still to come',
  lost: 'no time or room to take it',
  beforeStart: 'from before the agent’s start',
  malformed: 'what was read made no sense',
};
const METHODS = {
  oomControl: 'the kernel’s own oom_control',
  eventDelta: 'its count of OOMs rose',
  underOom: 'it stood under OOM',
  atLimit: 'the nearest one at its limit',
  onlyLimit: 'the only one with a limit',
  lastReclaim: 'the task’s last reclaim was for it',
};

// What steers, turns the direction of writing or is not seen is shown as what it is.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0]/gu;
const shown = (letter) =>
  letter === '\n' || letter === '\t' ? ' ' : `\\u{${letter.codePointAt(0).toString(16)}}`;
const plain = (text) => String(text).replace(UNSEEN, shown);

const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' };
// A browser may refuse to keep anything; the choice then lasts as long as the page.
const kept = {
  read() { try { return localStorage.getItem('brink-theme'); } catch { return null; } },
  write(theme) { try { localStorage.setItem('brink-theme', theme); } catch { /* See above. */ } },
};
function setTheme(theme) {
  document.documentElement.dataset.theme = THEMES[theme] ? theme : 'auto';
}
function themeButton() {
  const names = Object.keys(THEMES);
  const now = () => document.documentElement.dataset.theme;
  const label = () => `Colours: ${THEMES[now()]}`;
  const button = el('button', { type: 'button', id: 'theme' }, label());
  button.addEventListener('click', () => {
    const next = names[(names.indexOf(now()) + 1) % names.length];
    setTheme(next);
    kept.write(next);
    button.textContent = label();
  });
  return button;
}
setTheme(kept.read());

/** An element with attributes; strings among its children become text. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null) made.setAttribute(name, plain(value));
  }
  const parts = children.flat(2).filter((child) => child !== undefined && child !== null && child !== '');
  made.append(...parts.map((child) => (child instanceof Node ? child : plain(child))));
  return made;
}

/** Sets a text only where it is another one, so that selections and screen readers are left alone. */
function tell(element, text) {
  const wanted = plain(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

function bytes(value) {
  let size = Number(value);
  for (const suffix of ['B', 'Ki', 'Mi', 'Gi', 'Ti']) {
    if (Math.abs(size) < 1024 || suffix === 'Ti') {
      return size.toFixed(Math.abs(size) < 100 && suffix !== 'B' ? 1 : 0) + suffix;
    }
    size /= 1024;
  }
}
const count = (value) => Number(value).toLocaleString('en').replaceAll(',', '\u202f');
const percent = (part, whole) => (whole > 0 ? `${Math.floor((part * 100) / whole)} %` : '');
const isCount = (signal) => signal.startsWith('pid.') || signal.endsWith('.inodesFree');
const amount = (signal, value) => (isCount(signal) ? count(value) : bytes(value));

function stretch(millis) {
  const seconds = Math.floor(millis / 1000);
  const both = (large, unit, small, smaller) => `${large} ${unit}${small ? ` ${small} ${smaller}` : ''}`;
  if (millis < 10) return `${Number(millis.toFixed(3))} ms`;
  if (millis < 1000) return `${Math.round(millis)} ms`;
  if (millis < 60e3) return `${Math.floor(millis / 100) / 10} s`;
  if (millis < 3600e3) return both(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  if (millis < 86400e3) return both(Math.floor(seconds / 3600), 'h', Math.floor(seconds / 60) % 60, 'min');
  return both(Math.floor(seconds / 86400), 'd', Math.floor(seconds / 3600) % 24, 'h');
}

/** `2026-01-01 12:00:00.123456 UTC`, cut to so many digits of a second. */
function wall(text, digits = 3) {
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+|)Z$/.exec(text);
  return found ? `${found[1]} ${found[2]}${found[3].slice(0, digits + 1)} UTC` : text;
}
const time = (at, digits) => el('time', { datetime: at.wall }, wall(at.wall, digits));

const fullName = (one) => (one.namespace ? `${one.namespace}/${one.name}`.replace('//', '/') : one.name);
/** A preference, and whose word it is where it is not the node's. */
const preference = (one) => (one.preferenceBy ? `${one.preference} (${one.preferenceBy})` : one.preference);
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : noun === 'process' ? 'es' : 's'}`;
const causeName = (cause) => CAUSES[cause] ?? cause;
const none = (words) => el('p', { class: 'missing' }, words);
const missing = (reason) => el('span', { class: 'missing' }, MISSING[reason] ?? reason);

/** The value of a field as `show` makes it, or why there is none. */
function field(found, show = (value) => value) {
  if (!found) return missing('not told by this version');
  return 'value' in found ? show(found.value) : missing(found.missing);
}
/** A value that may be null, or the reason beside it. */
function nullable(of, key, show = (value) => value) {
  const reason = of[`${key}Missing`];
  return reason ? missing(reason) : of[key] === null ? null : show(of[key]);
}
/** A field in a cell, where the reason is short; the table of missing fields has it in full. */
const brief = (found, show) => (found && 'missing' in found
  ? el('span', { class: 'missing' }, found.missing.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)) : field(found, show));
const valueOf = (found) => found?.value;

const LOOKS = { '#': 'number', '~': 'long', '@': 'when' };
const lookOf = (head) => LOOKS[head[0]] ?? null;

/** Makes the cells of a row, of which the first is its head. */
const cellsUnder = (heads) => (content, index) =>
  el(index ? 'td' : 'th', { class: lookOf(heads[index]), scope: index ? null : 'row' }, content);

/** A table that can be scrolled by keyboard. A head that begins with `#` is one of numbers, with `~` one of long texts, with `@` one of times. */
function table(caption, heads, rows) {
  const head = heads.map((text) => el('th', { scope: 'col', class: lookOf(text) }, text.replace(/^[#~@]/, '')));
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', null, el('caption', null, caption), el('thead', null, el('tr', null, head)),
      el('tbody', null, rows.map((row) => el('tr', null, row.map(cellsUnder(heads)))))));
}

/** Terms and what they are; terms without anything are left out. */
function facts(pairs) {
  const known = pairs.filter(([, what]) => what !== undefined && what !== null && what !== '');
  return el('dl', { class: 'facts' }, known.map(([term, what]) => el('div', null, el('dt', null, term), el('dd', null, what))));
}

function section(id, title, ...content) {
  return el('section', { id, 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title` }, title), ...content);
}
const more = (id, title, ...content) => el('details', { id }, el('summary', null, title), ...content);
