import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { sourceDigest } from "./source-digest.ts";

const digest = sourceDigest(import.meta.dirname);

/** The built page contains these packages, and their licences ask to be told. */
const LICENCES = ["preact", "uplot"].map((name) => {
  const text = readFileSync(join(import.meta.dirname, "node_modules", name, "LICENSE"), "utf-8");
  return `/* contains ${name}\n\n${text.trim()}\n*/\n`;
});

/** Writes the digest of the source, and licences, into each built file. */
function stampDigest(): Plugin {
  return {
    name: "stamp-digest",
    enforce: "post",
    transformIndexHtml: (html) =>
      html.replace(/ crossorigin/g, "").replace("<head>", `<head>\n    <meta name="source-digest" content="${digest}">`),
    generateBundle(_options, bundle) {
      for (const file of Object.values(bundle)) {
        const stamp = `/* source ${digest} */\n${LICENCES.join("")}`;
        if (file.type === "chunk") file.code = stamp + file.code;
        else if (file.fileName.endsWith(".css")) file.source = stamp + String(file.source);
      }
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [stampDigest()],
  build: {
    outDir: "../palestra/view/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rollupOptions: { output: { entryFileNames: "app.js", chunkFileNames: "app.js", assetFileNames: "app.[ext]" } },
  },
  server: { proxy: { "/api": process.env["PALESTRA_VIEW"] ?? "http://127.0.0.1:8100" } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
