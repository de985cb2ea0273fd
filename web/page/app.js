// The dashboard: asks the admin API every two seconds and draws what it says.
// Everything from outside goes in as text, never as markup.
'use strict';

const every = 2000, history = 60; // ms; points of a load line
const $ = id => document.getElementById(id);
const seen = new Map();   // target -> {first: decisions when the page opened, load: [...]}
const open = new Set();   // receipts whose candidates are shown
const why = new Set();    // targets whose learned speed is shown
let failed = 0, failedSince = null;

function el(tag, attrs, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...kids.filter(k => k !== null && k !== undefined));
  return e;
}
const td = (cls, ...kids) => el('td', cls ? {class: cls} : {}, ...kids);
const chip = (cls, text) => el('span', {class: 'chip ' + cls}, text);
const num = n => n === null || n === undefined ? '–' : n.toLocaleString('en');
const pct = x => (100 * x).toFixed(x < .1 && x > 0 ? 1 : 0) + ' %';
const cost = c => c === null || c === undefined ? '–' : Math.abs(c) >= 100 ? c.toFixed(0) : c.toPrecision(3);
const ms = v => v === null || v === undefined ? '–' : v >= 10000 ? (v / 1000).toFixed(1) + ' s' : v.toFixed(v < 10 ? 1 : 0) + ' ms';

function ago(at) {
  const s = Math.max(0, (Date.now() - new Date(at)) / 1000);
  if (!isFinite(s) || s > 50 * 365 * 86400) return '';
  return s < 90 ? Math.round(s) + ' s' : s < 5400 ? Math.round(s / 60) + ' min' : s < 172800 ? Math.round(s / 3600) + ' h' : Math.round(s / 86400) + ' d';
}

function bar(share, tick) {
  const b = el('div', {class: 'bar', title: pct(share)}), i = el('i');
  i.style.width = 100 * Math.min(1, Math.max(0, share)) + '%';
  b.append(i);
  if (tick !== undefined && tick !== null) {
    const t = el('b');
    t.style.left = 'calc(' + 100 * Math.min(1, Math.max(0, tick)) + '% - 1px)';
    b.append(t);
  }
  return b;
}

function spark(values, top) {
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg'), line = document.createElementNS(ns, 'polyline');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', '0 0 120 24');
  line.setAttribute('points', values.map((v, i) => (120 - 2 * (values.length - 1 - i)) + ',' + (22 - 20 * v / Math.max(1, top))).join(' '));
  svg.append(line);
  return svg;
}

const trustClass = {exact: 'good', filling: 'warn', stale: 'warn', blind: 'bad', unknown: 'dim'};
const stateClass = {up: 'good', starting: 'dim', draining: 'warn', down: 'bad'};
const outcomeClass = {completed: 'good', failed: 'bad'};

function drawFleet(f) {
  $('about').textContent = [f.version && 'version ' + f.version, 'policy ' + f.policy, (f.models || []).join(', ')].filter(Boolean).join(' · ');
  const ranks = f.replicas.flatMap(r => (r.ranks || []).map(k => ({r, k})));
  let picked = 0, top = 1;
  for (const {k} of ranks) {
    const s = seen.get(k.target) || {first: k.decisions, load: []};
    if (k.decisions < s.first) s.first = 0; // another router, or another engine in its place
    s.load.push(k.requests);
    if (s.load.length > history) s.load.shift();
    seen.set(k.target, s);
    picked += k.decisions - s.first;
    top = Math.max(top, ...s.load);
  }
  const all = ranks.reduce((a, {k}) => a + k.decisions, 0); // until there are new ones
  const share = k => picked ? (k.decisions - seen.get(k.target).first) / picked : all ? k.decisions / all : 0;
  const rows = [];
  for (const r of f.replicas) {
    (r.ranks && r.ranks.length ? r.ranks : [null]).forEach((k, i) => {
      const name = td('', r.name + (r.ranks && r.ranks.length > 1 ? ' · rank ' + i : ''), r.url === r.name ? null : el('small', {}, r.url));
      const state = td('why', chip(stateClass[r.state] || 'dim', r.state), ' ', el('span', {class: 'dim whole'}, ago(r.since)), r.reason ? el('small', {}, r.reason) : null);
      if (!k) return rows.push(el('tr', {}, name, state, el('td', {colspan: 9, class: 'dim'}, 'no rank known yet')));
      const e = k.engine, d = k.drift, held = (k.held_blocks || {}).gpu || 0;
      const below = Object.entries(k.held_blocks || {}).filter(([t, n]) => t !== 'gpu' && n).map(([t, n]) => num(n) + ' ' + t).join(', ');
      const row = el('tr', k.learned ? {class: 'row', tabindex: 0, 'aria-expanded': why.has(k.target)} : {}, name, state,
        td('why', chip(trustClass[k.trust] || 'dim', k.trust), ' ', el('span', {class: 'dim whole'}, ago(k.trust_since)), k.trust_reason ? el('small', {}, k.trust_reason) : null),
        td('n', num(k.requests) + (k.prefilling ? ' (' + num(k.prefilling) + ')' : '')),
        td('n', num(k.prefill_tokens)),
        e ? td('', bar(e.kv_usage), el('small', {}, num(e.running) + ' + ' + num(e.waiting) + ', KV ' + pct(e.kv_usage))) : td('dim', '–'),
        td('n', num(held), r.blocks ? el('small', {}, 'of ' + num(r.blocks)) : null, below ? el('small', {}, below) : null),
        td('', bar(share(k)), el('small', {}, num(k.decisions) + (k.failed ? ', ' + num(k.failed) + ' failed' : ''))),
        speed(k.learned),
        td('n', d.requests_compared ? (d.predicted_tokens ? pct(d.served_tokens / d.predicted_tokens) : num(d.served_tokens) + ' / 0') : '–',
          d.phantom_requests ? el('small', {class: 'bad'}, num(d.phantom_requests) + ' phantom') : null),
        td('', spark(seen.get(k.target).load, top)));
      rows.push(row);
      if (!k.learned) return;
      unfold(row, why, k.target, () => drawFleet(f));
      if (why.has(k.target)) rows.push(el('tr', {class: 'more'}, el('td', {colspan: 11}, learned(k.learned))));
    });
  }
  if (!rows.length) rows.push(el('tr', {}, el('td', {colspan: 11, class: 'empty'}, 'No engines configured.')));
  $('fleet').tBodies[0].replaceChildren(...rows);

  const up = f.replicas.filter(r => r.state === 'up').length;
  const exact = ranks.filter(({k}) => k.trust === 'exact').length;
  const sum = g => ranks.reduce((a, {k}) => a + g(k), 0);
  const over = sum(k => k.drift.over_tokens), predicted = sum(k => k.drift.predicted_tokens);
  sums([
    [up + ' / ' + f.replicas.length, 'replicas up'],
    [exact + ' / ' + ranks.length, 'ranks whose cache is known exactly'],
    [num(sum(k => k.requests)), 'requests in flight'],
    [num(sum(k => k.prefill_tokens)), 'prompt tokens still to compute'],
    [num(sum(k => k.decisions)), 'decisions'],
    [predicted ? pct(over / predicted) : '–', 'of predicted tokens were not there'],
  ]);
}

// unfold makes a click on row, or Enter, add id to set or take it out.
function unfold(row, set, id, draw) {
  const flip = () => { set.has(id) ? set.delete(id) : set.add(id); draw(); };
  row.onclick = flip;
  row.onkeydown = e => { if (e.key === 'Enter') flip(); };
}

const times = x => x.toFixed(2) + ' ×';
const us = s => (s * 1e6).toPrecision(3) + ' µs';
const within = e => e.standard_error ? ' ± ' + pct(e.standard_error) : '';

// speed is a rank's in short: its ratio where that is clear, and the times.
function speed(l) {
  if (!l) return td('dim', '–');
  if (!l.known) return td('dim whole', 'not known yet', el('small', {}, num(l.prefill.fleet_samples) + ' samples'));
  const e = l.prefill, cls = !e.clear ? 'dim' : e.ratio > 1 ? 'warn' : 'good';
  return td('whole', el('span', {class: cls}, e.clear ? times(e.ratio) + ' as long' : 'as the fleet'),
    el('small', {}, us(l.prefill_token_s) + ' / token'), el('small', {}, ms(1000 * l.decode_step_s) + ' / step'));
}

// learned says why a rank is thought fast or slow.
function learned(l) {
  const say = [];
  for (const [what, e] of [['prefill', l.prefill], ['decode', l.decode]]) {
    let verdict = 'as fast as the fleet, as far as can be told';
    if (e.clear) verdict = e.ratio > 1 ? 'slower than the fleet: requests are priced accordingly' : 'faster than the fleet: requests are priced accordingly';
    else if (e.samples < 16) verdict = 'too few samples to tell it from the fleet';
    say.push(el('tr', {}, td('', what), td('n', times(e.ratio) + within(e)), td('n', num(e.samples)), td('n', num(e.fleet_samples)),
      td('n', e.age_s === null ? '–' : ago(Date.now() - 1000 * e.age_s) + ' ago'), td(e.clear ? 'warn' : 'dim', verdict)));
  }
  const head = el('tr', {}, ...['', 'time against the fleet', 'samples of this rank', 'of the fleet', 'latest'].map((t, i) => el('th', {class: i ? 'n' : ''}, t)), el('th', {}, 'so it is thought'));
  const sums = l.known
    ? us(l.prefill_token_s) + ' per prompt token that isn\u2019t cached · ' + ms(1000 * l.step_s) + ' per step with prefill · ' + ms(1000 * l.decode_step_s) + ' per decode step'
    : 'No times are known yet: tokens are counted instead.';
  return el('div', {}, el('p', {class: 'dim'}, sums + (l.mean_output_tokens ? ' · answers have ' + num(Math.round(l.mean_output_tokens)) + ' tokens on average' : '')),
    el('table', {}, el('thead', {}, head), el('tbody', {}, ...say)));
}

function sums(list) {
  $('sums').replaceChildren(...list.map(([n, what]) => el('div', {class: 'sum'}, el('b', {}, n), el('span', {}, what))));
}

function drawDecisions(list) {
  if (list.length && list[0].cost_unit) $('unit').textContent = 'cost, ' + list[0].cost_unit;
  const rows = [];
  for (const d of list) {
    const o = d.overlap, predicted = o.gpu + (o.host || 0) + (o.disk || 0) + (o.predicted || 0);
    const served = d.served_cached_tokens;
    const known = d.prompt_tokens > 0;
    const row = el('tr', {class: 'row', tabindex: 0, 'aria-expanded': open.has(d.id)},
      td('dim', new Date(d.at).toLocaleTimeString('en-GB')), td('', d.model || '–'), td('n', known ? num(d.prompt_tokens) : '?'),
      td('', d.replica + (d.rank ? ' · rank ' + d.rank : '')),
      known ? td('', bar(predicted / d.prompt_tokens, served === null ? null : served / d.prompt_tokens)) : td('dim', d.no_tokens || '–'),
      td('n', known ? num(predicted) : '–'), td('n' + (served !== null && served < predicted ? ' warn' : ''), num(served)),
      td('n', cost(d.cost)), td('n', ms(d.first_token_ms)), td('n', ms(d.took_ms)),
      td(outcomeClass[d.outcome] || 'dim', d.outcome));
    unfold(row, open, d.id, () => drawDecisions(list));
    rows.push(row);
    if (open.has(d.id)) rows.push(el('tr', {class: 'more'}, el('td', {colspan: 11}, candidates(d))));
  }
  if (!rows.length) rows.push(el('tr', {}, el('td', {colspan: 11, class: 'empty'}, 'No decisions yet. Send a request to the router.')));
  $('decisions').tBodies[0].replaceChildren(...rows);
}

function candidates(d) {
  const terms = Object.keys((d.candidates[0] || {}).cost_terms || {});
  const head = el('tr', {}, ...['candidate', 'trust', 'held', 'predicted', 'requests', 'prefill owed', 'cost', ...terms].map((t, i) => el('th', {class: i > 1 ? 'n' : ''}, t)));
  const rows = (d.candidates || []).map(c => el('tr', {},
    td('', c.replica), td('', c.trust), td('n', num(c.overlap.gpu + (c.overlap.host || 0) + (c.overlap.disk || 0))), td('n', num(c.overlap.predicted || 0)),
    td('n', num(c.requests)), td('n', num(c.prefill_tokens)), td('n', cost(c.cost)), ...terms.map(t => td('n', cost((c.cost_terms || {})[t])))));
  const said = 'receipt ' + d.id + ' · ' + d.policy + (d.branch ? ' (' + d.branch + ')' : '') + ' · tokens: ' + (d.token_source || d.no_tokens || 'not known') +
    (d.session ? ' · session ' + d.session : '') + (d.output_tokens ? ' · ' + num(d.output_tokens) + ' tokens out' : '') +
    (d.candidates_considered > rows.length ? ' · the best ' + rows.length + ' of ' + d.candidates_considered + ' candidates' : '');
  return el('div', {}, el('p', {class: 'dim'}, said), el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)));
}

async function get(url) {
  const r = await fetch(url, {cache: 'no-store', signal: AbortSignal.timeout(5000)});
  if (!r.ok) throw new Error(url + ': ' + r.status);
  return r.json();
}

async function tick() {
  try {
    if (!document.hidden) {
      const s = $('session').value.trim();
      const [f, d] = await Promise.all([get('v1/kvasir/fleet'), get('v1/kvasir/decisions?limit=40' + (s ? '&session=' + encodeURIComponent(s) : ''))]);
      drawFleet(f);
      if (!$('pause').checked) drawDecisions(d.decisions);
      failed = 0;
    }
  } catch (e) {
    if (!failed++) failedSince = new Date();
    $('stale').textContent = 'no answer since ' + failedSince.toLocaleTimeString('en-GB') + ': what you see is old';
  }
  $('stale').hidden = failed === 0;
  setTimeout(tick, every);
}
tick();
