import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { Application } from "./application.js";
import { ScenarioServer, Seen, type Step } from "./server.js";

interface Scenario {
  name: string;
  options?: Record<string, unknown>;
  servers: Step[][][];
  client: Record<string, unknown>[];
}

const FOLDER = new URL("../../../../protocol/scenarios/", import.meta.url);

for (const file of ["life.json", "told.json", "wrong-servers.json"]) {
  const { title, scenarios } = JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")) as {
    title: string;
    scenarios: Scenario[];
  };
  describe(title, () => {
    test.concurrent.each(scenarios)(
      "$name",
      async (scenario) => {
        const seen = new Seen();
        const servers = scenario.servers.map((scripts) => new ScenarioServer(scripts, seen));
        for (const server of servers) await server.listen();
        // Without a server nobody listens.
        const urls = servers.length ? servers.map(({ url }) => url) : ["ws://127.0.0.1:9/ws"];
        const application = new Application(urls, scenario.options ?? {}, seen);
        try {
          for (const step of scenario.client) await application.step(step);
          await application.end();
        } finally {
          for (const server of servers) await server.end();
        }
      },
      60_000,
    );
  });
}
