/** A connection of the Node transport as tests use it: what it was told, and waiting for it. */

import {
  type CloseInfo,
  type Frame,
  type NodeSocket,
  type NodeTransportOptions,
  nodeTransport,
  type OpenOptions,
} from "../../src/node.js";

export interface Client {
  readonly socket: NodeSocket;
  /** Messages that came; binary as hexadecimal digits after `0x`. */
  readonly messages: string[];
  /** How many messages each call brought. */
  readonly batches: number[];
  readonly pongs: string[];
  drains: number;
  isOpen: boolean;
  readonly closes: CloseInfo[];
}

/** Opens a connection. */
export function connect(
  url: string,
  options: Partial<OpenOptions> = {},
  transport: NodeTransportOptions = {},
  onMessages: (client: Client, frames: readonly Frame[]) => void = () => {},
): Client {
  const client = {
    messages: [] as string[],
    batches: [] as number[],
    pongs: [] as string[],
    drains: 0,
    isOpen: false,
    closes: [] as CloseInfo[],
  } as Omit<Client, "socket"> as Client;
  const socket = nodeTransport(transport).open(
    { url, protocols: [], headers: {}, messageBytesMax: 1 << 20, ...options },
    {
      onOpen: () => {
        client.isOpen = true;
      },
      onMessages: (frames) => {
        client.batches.push(frames.length);
        for (const frame of frames) client.messages.push(shown(frame));
        onMessages(client, frames);
      },
      onDrain: () => {
        client.drains += 1;
      },
      onPong: (payload) => client.pongs.push(Buffer.from(payload).toString()),
      onClose: (info) => client.closes.push(info),
    },
  );
  return Object.assign(client, { socket });
}

function shown(frame: Frame): string {
  return typeof frame === "string" ? frame : `0x${Buffer.from(frame).toString("hex")}`;
}

/** Waits until a condition holds, without a limit but that of the test. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}
