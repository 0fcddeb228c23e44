/** The frame around every view, and which view it is. */

import { useEffect } from "preact/hooks";
import { setLive } from "./data/episode-store";
import { listen } from "./data/events";
import { useJson, useNews } from "./data/hooks";
import type { Runs } from "./data/types";
import { type Place, linkTo } from "./lib/route";
import { ComparePage } from "./pages/compare";
import { EpisodePage } from "./pages/episode";
import { EpisodesPage } from "./pages/episodes";
import { GroupPage } from "./pages/group";
import { PlayPage } from "./pages/play";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { AppContext } from "./parts/app-context";
import { usePlace } from "./parts/place";
import { Safely } from "./parts/safely";
import { Empty, WhenReady } from "./parts/states";
import { toggleTheme, useTheme } from "./parts/theme";

export function App() {
  const place = usePlace();
  const loaded = useJson<Runs>("./api/runs.json", useNews(null));
  return (
    <Frame place={place} runs={loaded.state === "ready" ? loaded.value : null}>
      <WhenReady loaded={loaded} what="the list of runs">
        {(runs) => (
          <AppContext.Provider value={runs}>
            <Safely key={location.hash.split("?")[0]} what="this page">
              <Content place={place} runs={runs} />
            </Safely>
          </AppContext.Provider>
        )}
      </WhenReady>
    </Frame>
  );
}

function Frame({ place, runs, children }: { place: Place; runs: Runs | null; children: preact.ComponentChildren }) {
  const { route } = place;
  const run = "run" in route ? runs?.runs.find(({ id }) => id === route.run) : undefined;
  useEffect(() => {
    document.title = [titleOf(place), run?.name, "Palestra"].filter(Boolean).join(" · ");
  }, [place, run?.name]);
  return (
    <>
      <a class="skip" href="#content" onClick={skipToContent}>
        Skip to content
      </a>
      <header class="frame">
        <a class="brand" href={linkTo({ page: "runs" })}>
          Palestra
        </a>
        <nav aria-label="Views" class={run ? "has-run" : ""}>
          <NavLink href={linkTo({ page: "runs" })} isCurrent={route.page === "runs"} label="Runs" />
          {run && <NavLink href={linkTo({ page: "run", run: run.id })} isCurrent={route.page === "run"} label={run.name} />}
          {run && (
            <NavLink
              href={linkTo({ page: "episodes", run: run.id })}
              isCurrent={["episodes", "episode", "group"].includes(route.page)}
              label="Episodes"
            />
          )}
          {(runs?.runs.length ?? 0) > 1 && (
            <NavLink href={linkTo({ page: "compare" })} isCurrent={route.page === "compare"} label="Compare" />
          )}
          {runs?.can_play && <NavLink href={linkTo({ page: "play" })} isCurrent={route.page === "play"} label="Play" />}
        </nav>
        <ThemeButton />
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

/** The hash is the route, so the link cannot name the place to go to. */
function skipToContent(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function titleOf({ route }: Place): string {
  if (route.page === "episode") return `${route.file}, line ${route.line}`;
  if (route.page === "group") return route.task;
  return route.page === "runs" || route.page === "run" ? "" : route.page;
}

function NavLink({ href, isCurrent, label }: { href: string; isCurrent: boolean; label: string }) {
  return (
    <a href={href} aria-current={isCurrent ? "page" : undefined}>
      {label}
    </a>
  );
}

function ThemeButton() {
  const theme = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <button type="button" class="theme" onClick={toggleTheme} aria-label={`Use ${other} colors`} title={`Use ${other} colors`}>
      {theme === "dark" ? "☀" : "☾"}
    </button>
  );
}

function NotHere({ children }: { children: preact.ComponentChildren }) {
  return (
    <>
      <h1>Not here</h1>
      <Empty>
        {children} <a href={linkTo({ page: "runs" })}>All runs</a>
      </Empty>
    </>
  );
}

function Content({ place: { route, query }, runs }: { place: Place; runs: Runs }) {
  useEffect(() => {
    setLive(runs.live);
    if (runs.live) listen();
  }, [runs.live]);
  if ("run" in route && !runs.runs.some(({ id }) => id === route.run)) return <NotHere>There is no run {route.run} here.</NotHere>;
  switch (route.page) {
    case "runs":
      if (runs.runs.length === 0 && runs.can_play) return <PlayPage />;
      return runs.runs.length === 1 && !runs.can_play ? <RunPage id={runs.runs[0]!.id} /> : <RunsPage runs={runs.runs} />;
    case "run":
      return <RunPage key={route.run} id={route.run} />;
    case "episodes":
      return <EpisodesPage key={route.run} run={route.run} query={query} />;
    case "episode":
      return <EpisodePage run={route.run} file={route.file} line={route.line} query={query} />;
    case "group":
      return <GroupPage run={route.run} file={route.file} task={route.task} query={query} />;
    case "compare":
      return <ComparePage query={query} />;
    case "play":
      return <PlayPage />;
    case "unknown":
      return <NotHere>There is no page at {route.path}.</NotHere>;
  }
}
