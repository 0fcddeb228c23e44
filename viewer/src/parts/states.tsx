/** What is shown while there is nothing to show yet, or nothing at all. */

import type { ComponentChildren } from "preact";
import type { Loaded } from "../data/hooks";

export function Loading({ what }: { what: string }) {
  return (
    <p class="state" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what} …
    </p>
  );
}

export function Failed({ what, why }: { what: string; why: string }) {
  return (
    <div class="notice is-error" role="alert">
      <strong>Could not load {what}.</strong> {why}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="state">{children}</p>;
}

export function WhenReady<T>({ loaded, what, children }: { loaded: Loaded<T>; what: string; children: (value: T) => ComponentChildren }) {
  if (loaded.state === "loading") return <Loading what={what} />;
  if (loaded.state === "failed") return <Failed what={what} why={loaded.why} />;
  return <>{children(loaded.value)}</>;
}
