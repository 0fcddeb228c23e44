/** A longer text as it is, which scrolls and can be scrolled by keyboard. */
export function Block({ label, text }: { label: string; text: string }) {
  return (
    <pre class="block" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}
