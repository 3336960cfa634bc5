// Prints what the TypeScript client receives of topics, one JSON object for each event: follow.mjs URL TOPIC...
import { connect } from "../../../packages/client/dist/esm/index.js";

const [url, ...topics] = process.argv.slice(2);
const show = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const client = connect(url);
const messages = client.subscribe(topics);
for (const kind of ["gap", "unrecovered"]) messages.on(kind, () => show({ kind }));
messages.on("message", ({ topic, position, payload }) => show({ kind: "publication", topic, ...position, payload }));
await messages.ready();
show({ kind: "ready" });
