"""JavaScript that runs in a page: small functions on elements and on the document."""

SETTLED = """new Promise(done => {
  const quiet = %d, most = %d;
  const probed = () => { try { return %s; } catch { return null; } };
  const state = () => ({
    ready: document.readyState,
    title: document.title,
    top: Math.round(window.scrollY),
    height: window.innerHeight,
    whole: Math.max(document.documentElement ? document.documentElement.scrollHeight : 0, \
window.innerHeight),
    elements: document.getElementsByTagName('*').length,
    probed: probed(),
  });
  const end = () => { observer.disconnect(); clearTimeout(timer); clearTimeout(limit); \
done(state()); };
  let timer = setTimeout(end, quiet);
  const limit = setTimeout(end, most);
  const observer = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(end, \
quiet); });
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: \
true});
})"""
"""The state of the page once nothing has changed for `quiet` milliseconds, or after `most`, with
the value of an expression.
"""

AIM = """function () {
  const isTicked = element => {
    if (element instanceof HTMLInputElement && ['checkbox', 'radio'].includes(element.type)) \
return element.checked;
    const stated = element.getAttribute && (element.getAttribute('aria-checked') || \
element.getAttribute('aria-pressed'));
    return stated === null || stated === undefined ? null : stated === 'true';
  };
  const aimed = aim => ({ticked: isTicked(this), ...aim});
  let element = this, box = null;
  if (this.nodeType === Node.TEXT_NODE) {
    element = this.parentElement;
    const range = document.createRange();
    range.selectNodeContents(this);
    if (element) element.scrollIntoViewIfNeeded(true);
    box = range.getClientRects()[0];
  } else {
    if (element.tagName === 'OPTION') return aimed({how: 'option'});
    if (element.scrollIntoViewIfNeeded) element.scrollIntoViewIfNeeded(true);
    box = Array.from(element.getClientRects()).find(r => r.width > 0 && r.height > 0);
  }
  if (!element || !element.isConnected) return aimed({how: 'gone'});
  if (element.disabled) return aimed({how: 'disabled'});
  if (!box || !box.width || !box.height) return aimed({how: 'hidden'});
  const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 1);
  const y = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 1);
  let hit = document.elementFromPoint(x, y);
  while (hit && hit.shadowRoot && hit.shadowRoot.elementFromPoint(x, y) !== hit) hit = \
hit.shadowRoot.elementFromPoint(x, y);
  const label = hit && hit.closest ? hit.closest('label') : null;
  const fits = hit && (element.contains(hit) || hit.contains(element) || (label && label.control \
=== element));
  let left = 0, top = 0;
  for (let inner = window; inner.frameElement; inner = inner.parent) {
    const outer = inner.frameElement.getBoundingClientRect();
    left += outer.left + inner.frameElement.clientLeft;
    top += outer.top + inner.frameElement.clientTop;
  }
  return aimed({how: fits ? 'mouse' : 'covered', x: x + left, y: y + top});
}"""
"""Scrolls an element into view. Returns where to click, or why a mouse click is impossible, and
whether it is ticked.
"""

CLICK = """function () {
  const element = this.nodeType === Node.TEXT_NODE ? this.parentElement : this;
  if (element.focus) element.focus();
  if (element.click) element.click(); else element.dispatchEvent(new MouseEvent('click', {bubbles: \
true}));
}"""

PREPARE = """function () {
  const element = this.nodeType === Node.TEXT_NODE ? this.parentElement : this;
  if (element.disabled || element.readOnly) return 'readonly';
  element.scrollIntoViewIfNeeded && element.scrollIntoViewIfNeeded(true);
  if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) {
    if (['checkbox', 'radio', 'button', 'submit', 'reset', 'image', \
'file'].includes(element.type)) return 'no field';
    element.focus();
    if (['date', 'time', 'datetime-local', 'month', 'week', 'color', \
'range'].includes(element.type)) return 'set';
    element.select();
    return element.value ? 'filled' : 'empty';
  }
  if (element.isContentEditable) {
    element.focus();
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return element.textContent ? 'filled' : 'empty';
  }
  if (element.tabIndex >= 0 && !['A', 'BUTTON', 'SELECT'].includes(element.tagName)) { \
element.focus(); return 'empty'; }
  return 'no field';
}"""
"""Puts the cursor into a field with all its content selected."""

SET = """function (text) {
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  set.call(this, text);
  this.dispatchEvent(new Event('input', {bubbles: true}));
  this.dispatchEvent(new Event('change', {bubbles: true}));
  return this.value;
}"""

SELECT = """function (wanted) {
  const list = this.closest ? this.closest('select') : null;
  if (!list) return {error: 'no list'};
  const clean = text => text.replace(/\\s+/g, ' ').trim();
  const names = Array.from(list.options, option => clean(option.label || option.text));
  let at = this.tagName === 'OPTION' && wanted === null ? Array.from(list.options).indexOf(this) : \
names.indexOf(clean(wanted));
  if (at < 0 && wanted !== null) at = names.findIndex(name => name.toLowerCase() === \
clean(wanted).toLowerCase());
  if (at < 0) return {error: 'no option', names: names.slice(0, 50)};
  if (list.options[at].disabled || list.disabled) return {error: 'disabled'};
  list.focus();
  if (list.multiple) list.options[at].selected = wanted === null ? !list.options[at].selected : \
true; else list.selectedIndex = at;
  list.dispatchEvent(new Event('input', {bubbles: true}));
  list.dispatchEvent(new Event('change', {bubbles: true}));
  return {};
}"""

SCROLL = """(direction) => {
  const scrolls = element => element.scrollHeight > element.clientHeight + 2 && \
/(auto|scroll)/.test(getComputedStyle(element).overflowY);
  let element = document.activeElement;
  while (element && element !== document.body && !scrolls(element)) element = element.parentElement;
  if (!element || element === document.body) {
    const page = document.scrollingElement;
    element = page && page.scrollHeight > innerHeight + 2 ? null : \
Array.from(document.querySelectorAll('body *')).find(scrolls);
  }
  const target = element || window;
  const height = target === window ? innerHeight : element.clientHeight;
  target.scrollBy({top: direction * 0.8 * height, behavior: 'instant'});
}"""
"""Scrolls the focused element if possible, otherwise the page, otherwise its first scrollable
element.
"""
