import { empty, h } from "./dom.js";

export default function missing(view) {
  view.append(
    h("h1", "There is no such page"),
    empty("The address leads nowhere.", "Go back to ", h("a", { href: "#/" }, "the agents"), "."),
  );
}
