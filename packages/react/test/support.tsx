import { cleanup, configure, render } from "@testing-library/react";
import { type ReactNode, StrictMode } from "react";
import { afterEach } from "vitest";
import { TidewireProvider } from "../src/index.js";
import { FakeServer } from "./server.js";

// A machine that is busy with other tests is slow.
configure({ asyncUtilTimeout: 20_000 });
afterEach(cleanup);

export interface Screen {
  readonly server: FakeServer;
  text(): string;
  show(children: ReactNode): void;
  unmount(): void;
}

/** Renders components under a provider that owns its client, under StrictMode as an application in development does. */
export function show(children: ReactNode, server = new FakeServer()): Screen {
  const tree = (inner: ReactNode) => (
    <StrictMode>
      <TidewireProvider url="ws://fake.test/ws" options={{ transport: server.transport }}>
        {inner}
      </TidewireProvider>
    </StrictMode>
  );
  const screen = render(tree(children));
  return {
    server,
    text: () => screen.container.textContent ?? "",
    show: (next) => screen.rerender(tree(next)),
    unmount: () => screen.unmount(),
  };
}

/** Waits until a frame, and what it starts, is over. */
export async function frame(): Promise<void> {
  await new Promise<void>((resolve) => requestAnimationFrame(() => resolve()));
  await new Promise((resolve) => setTimeout(resolve));
}
