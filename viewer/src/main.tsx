/** The page begins here. */

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/episode.css";
import "./style/scene.css";
import { App } from "./app";

/** The cookie knows the token by now; the address, which people pass on, should not. */
function forgetToken(): void {
  const address = new URL(location.href);
  if (!address.searchParams.has("token")) return;
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

forgetToken();
render(<App />, document.getElementById("app")!);
