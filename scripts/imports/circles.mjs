// Circles of imports that stay, each with the reason. All of them are of types alone: a circle of values has
// no place here.

const client = (names) => names.map((name) => `packages/client/src/${name}.ts`);

export const CIRCLES = [
  {
    files: client(["client", "prepared"]),
    reason: "A client returns prepared publications, and each has its client.",
  },
  {
    files: [
      ...client(["message"]),
      ...client(["envelope", "json", "layers", "payload", "pipeline"].map((name) => `core/${name}`)),
    ],
    reason: "A layer is a step of the pipeline, and the pipeline is made of layers.",
  },
  {
    files: [
      ...client(["events", "options"]),
      ...client(
        ["outbound", "producer", "queue-port", "session", "size", "subscriptions", "topic", "topics"].map(
          (name) => `core/${name}`,
        ),
      ),
    ],
    reason:
      "The parts of a session name it in their types, and the queue's port names what a session and a producer are.",
  },
  {
    files: client(["group", "hub", "pipe", "port", "realm", "tab", "topics"].map((name) => `shared/${name}`)),
    reason: "The realm of a page names the groups of its tabs, whose hub it runs.",
  },
];
