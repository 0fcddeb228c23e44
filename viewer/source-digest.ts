/** One digest of all that the page is built from, so that a test can tell whether the built page belongs to it. */

import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const FILES = ["index.html", "package-lock.json", "package.json", "source-digest.ts", "tsconfig.json", "vite.config.ts"];

/** Over the name and the content of each file, names sorted (tests/unit/test_view_page.py does the same). */
export function sourceDigest(folder: string): string {
  const names = [...FILES, ...filesUnder(folder, "src")].sort();
  const hash = createHash("sha256");
  for (const name of names) {
    hash
      .update(name)
      .update("\0")
      .update(readFileSync(join(folder, name)))
      .update("\0");
  }
  return hash.digest("hex");
}

function filesUnder(folder: string, name: string): string[] {
  return readdirSync(join(folder, name), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesUnder(folder, `${name}/${entry.name}`) : [`${name}/${entry.name}`],
  );
}
