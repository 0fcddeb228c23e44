import { useEffect, useRef } from "preact/hooks";

const KEYS: [string, string][] = [
  ["← → or k j", "previous, next turn"],
  ["Home End", "first turn, the end"],
  ["[ ]", "previous, next episode of the list"],
  ["t", "token view"],
  ["s", "scene"],
  ["?", "this help"],
];

/** Which key does what. */
export function KeyHelp({ onClose }: { onClose: () => void }) {
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => close.current?.focus(), []);
  return (
    <section class="key-help" aria-label="Keys">
      <dl>
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>{keys.split(" ").map((key) => (key === "or" ? " or " : <kbd key={key}>{key}</kbd>))}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <button ref={close} type="button" onClick={onClose}>
        Close
      </button>
    </section>
  );
}
