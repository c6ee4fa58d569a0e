// Shows the operations that have every word of the search in their method, path, name or text.
const form = document.querySelector('form');
const search = document.querySelector('input');
const count = document.querySelector('output');
const operations = [...document.querySelectorAll('details')].map(element => ({
  element,
  text: `${element.id} ${element.textContent}`.toLowerCase(),
}));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { element, text } of operations) {
    element.hidden = !words.every(word => text.includes(word));
    shown += element.hidden ? 0 : 1;
  }
  count.textContent = `${shown} of ${operations.length} operations`;
}

function open_named() {
  const named = document.getElementById(location.hash.slice(1));
  if (named instanceof HTMLDetailsElement) named.open = true;
}

form.hidden = false;
form.addEventListener('submit', event => event.preventDefault());
search.addEventListener('input', filter);
search.value = new URLSearchParams(location.search).get('q') ?? '';
addEventListener('hashchange', open_named);
filter();
open_named();

// "Try it": a form in each operation that is opened, made of its table. It asks this node and no other.
const SHOWN_CHARS = 65536;
let key = '';

function field(label, element) {
  const around = document.createElement('label');
  around.append(label, element);
  return around;
}

function made(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}

function form_of(details) {
  const rows = [...details.querySelectorAll('table tr')].map(row => [...row.cells].map(cell => cell.textContent));
  const named = rows.filter(([, kind]) => ['path', 'query', 'header'].includes(kind))
    .map(([name, kind]) => ({ name, kind, input: made('input', { required: kind === 'path', autocomplete: 'off' }) }));
  const bodies = rows.filter(([, kind]) => kind === 'body');
  const media = made('select'), body = made('textarea', { value: bodies[0]?.[2] ?? '', spellcheck: false });
  media.append(...bodies.map(([name]) => made('option', { textContent: name })));
  media.addEventListener('change', () => { body.value = bodies[media.selectedIndex][2]; });
  const secret = made('input', { type: 'password', autocomplete: 'off', value: key });
  secret.addEventListener('input', () => { key = secret.value; });
  const answer = made('pre', { tabIndex: 0, hidden: true });
  answer.setAttribute('aria-live', 'polite');
  answer.setAttribute('aria-label', 'Answer');
  answer.setAttribute('role', 'group');
  const form = made('form', { className: 'try' });
  form.append(
    ...named.map(({ name, kind, input }) => field(`${name} (${kind})`, input)),
    ...(bodies.length ? [field('media type', media), field('body', body)] : []),
    field('API key, on nodes that ask for one', secret), made('button', { textContent: 'Try it' }), answer,
  );
  let asking = new AbortController();
  form.addEventListener('submit', event => {
    event.preventDefault();
    asking.abort();
    asking = new AbortController();
    void show_answer(details, named, bodies.length ? [media.value, body.value] : [], answer, asking.signal);
  });
  details.addEventListener('toggle', () => { if (!details.open) asking.abort(); });
  return form;
}

async function show_answer(details, named, [media, body], answer, signal) {
  const method = details.querySelector('summary b').textContent;
  let where = details.querySelector('summary code').textContent.slice(1);
  const query = new URLSearchParams(), headers = new Headers();
  for (const { name, kind, input } of named) {
    if (kind === 'path') where = where.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value && kind === 'query') query.append(name, input.value);
    else if (input.value) headers.set(name, input.value);
  }
  if (key) headers.set('Authorization', `Bearer ${key}`);
  if (media && body) headers.set('Content-Type', media);
  answer.hidden = false;
  answer.textContent = '…';
  try {
    const found = await fetch(query.size ? `${where}?${query}` : where, {
      method, headers, signal, body: media && body ? body : undefined,
    });
    answer.textContent = `${found.status} ${found.statusText}\n`;
    const reader = found.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let part; reader && !(part = await reader.read()).done;) {
      answer.append(part.value);
      if (answer.textContent.length > SHOWN_CHARS) { await reader.cancel(); answer.append(' …'); break; }
    }
  } catch (error) {
    if (!signal.aborted) answer.textContent = `No answer: ${error.message}`;
  }
}

for (const { element } of operations) {
  element.addEventListener('toggle', () => {
    if (element.open && !element.querySelector('.try')) element.append(form_of(element));
  });
}
