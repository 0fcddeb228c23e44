/** A small picture for a button, drawn so that it looks the same with every font. */
export function Icon({ path }: { path: string }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}
