/** A page with an application of Vue and one of Svelte, on the client's build for production. */

import { createTidewire, useConnection, usePresence, useTopic } from "@tidewire/vue";
import { mount, unmount } from "svelte";
import { createApp, h } from "vue";
import App from "./svelte/App.svelte";

/** Shows an application in a place of its own. The result takes it away. */
type Show = (place: HTMLElement, url: string) => () => void;

const show: Record<string, Show> = {
  vue(place, url) {
    const app = createApp({
      setup() {
        const { messages } = useTopic<number>("kept.chat", { replay: 100, max: 1000 });
        const { members } = usePresence<{ name: string }>("room.chat", { data: { name: "Vue" } });
        const { state } = useConnection();
        const names = () => members.value.map(({ data }) => data?.name).join(",");
        return () =>
          h("p", `${state.value} ${names()} ${messages.value.map(({ payload }) => payload).join(",")}`);
      },
    });
    app.use(createTidewire({ url }));
    app.mount(place);
    return () => app.unmount();
  },
  svelte(place, url) {
    const app = mount(App, { target: place, props: { url } });
    return () => void unmount(app);
  },
};

let places = 0;

const frameworks = {
  /** How often what is shown has changed. */
  changes: 0,
  end: () => {},
  text: () => document.body.lastElementChild?.textContent?.trim(),
  start(name: string, url: string): void {
    const place = document.createElement("div");
    place.id = `place-${++places}`;
    document.body.append(place);
    frameworks.changes = 0;
    const options = { subtree: true, childList: true, characterData: true };
    new MutationObserver(() => void frameworks.changes++).observe(place, options);
    frameworks.end = show[name]!(place, url);
  },
};

Object.assign(globalThis, { frameworks });

export type Frameworks = typeof frameworks;
