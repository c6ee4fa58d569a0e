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
