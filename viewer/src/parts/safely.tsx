/** Keeps a part that cannot be drawn, say because a file of the run has an unknown form, from taking the rest of the page with it. */

import { Component, type ComponentChildren } from "preact";

interface Props {
  what: string;
  children: ComponentChildren;
}

export class Safely extends Component<Props, { why: string | null }> {
  override state = { why: null };

  static override getDerivedStateFromError(error: unknown): { why: string } {
    return { why: error instanceof Error ? error.message : String(error) };
  }

  override render({ what, children }: Props) {
    if (this.state.why === null) return children;
    return (
      <div class="notice is-error" role="alert">
        <strong>Could not show {what}.</strong> {this.state.why}
      </div>
    );
  }
}
