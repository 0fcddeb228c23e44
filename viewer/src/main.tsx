/** The page begins here. */

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/episode.css";
import "./style/scene.css";
import { App } from "./app";

render(<App />, document.getElementById("app")!);
